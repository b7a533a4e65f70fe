"""Options of a job, shared by every command that creates or changes one."""

from typing import Annotated, Any

import typer

from holdfast import factories
from holdfast.cli import command_context
from holdfast.errors import UsageError
from holdfast.jobs.crawls import CrawlService
from holdfast.model.content_type import ContentGroup, read_groups
from holdfast.model.job import Scope, Sitemaps
from holdfast.model.request_secrets import check_user_agent as checked_user_agent
from holdfast.model.scope import RuleSettings

Urls = Annotated[list[str] | None, typer.Argument(metavar="URL", help="Seeds: URLs or domains to start from.")]
Seeds = Annotated[
    str | None, typer.Option(metavar="FILE", help="File with more seeds, one a line; - is standard input.")
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", callback=command_context.valid_text, help="Name of the job; an existing job continues."
    ),
]
MaxPages = Annotated[int | None, typer.Option(min=1, help="Stop after N pages in total, over all domains.")]
MaxPagesPerDomain = Annotated[int | None, typer.Option(min=1, help="Stop after N pages of each domain.")]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Stop after N shares (domains.max_pages_per_run) of each domain.")
]
MaxDepth = Annotated[int | None, typer.Option(min=0, max=32_000, help="Follow links up to N levels from a seed.")]
Delay = Annotated[float | None, typer.Option(min=0, max=86400, help="Seconds between two requests to a domain.")]
Concurrency = Annotated[int | None, typer.Option(min=1, max=1000, help="Requests to a domain at the same time.")]
LinkScope = Annotated[Scope | None, typer.Option(metavar="SCOPE", help="Which links to follow: host, domain or any.")]
Include = Annotated[list[str] | None, typer.Option(metavar="REGEX", help="Only URLs that match (may be repeated).")]
Exclude = Annotated[list[str] | None, typer.Option(metavar="REGEX", help="No URLs that match (may be repeated).")]
StripParam = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Drop this parameter from URLs; x* is a prefix (may be repeated)."),
]
AllowPrivate = Annotated[bool, typer.Option("--allow-private", help="Also fetch from private and loopback addresses.")]
NoRobots = Annotated[bool, typer.Option("--no-robots", help="Ignore robots.txt (your own sites only).")]
NoArchive = Annotated[bool, typer.Option("--no-archive", help="Do not store pages in the archive (WARC).")]
UserAgent = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The User-Agent of requests, also for robots.txt. Not a secret."),
]
Parser = Annotated[
    str | None,
    typer.Option(
        "--parser",
        metavar="NAME",
        callback=command_context.valid_text,
        help="Extract items from every page with this parser: a name, or the path of a Python file.",
    ),
]
JobParser = Annotated[
    str | None,
    typer.Option(
        "--parser",
        metavar="NAME",
        callback=command_context.valid_text,
        help="Extract items from every page with this parser, which must be installed where workers run.",
    ),
]
Refresh = Annotated[
    bool | None,
    typer.Option(
        "--refresh/--no-refresh",
        help="Fetch pages again when their refresh is due (cooldown.exhausted), by any worker.",
    ),
]
ReadSitemaps = Annotated[
    Sitemaps | None,
    typer.Option(
        "--sitemaps",
        help="Take URLs from sitemaps and feeds also, only (links of pages are not followed), or not at all; by default also.",
    ),
]
StoreImages = Annotated[bool, typer.Option("--images", help="Fetch and store the images of pages, wherever they are.")]
RecordLinks = Annotated[
    bool, typer.Option("--links", help="Record the links of pages, for `holdfast links`: broken ones, orphans …")
]
CheckExternal = Annotated[
    bool,
    typer.Option(
        "--check-external", help="Check links out of scope, too: each is fetched once, not crawled. Implies --links."
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--types",
        metavar="TYPES",
        help="Also archive pdf, json, xml, text (CSV, Markdown …), feeds, office, or all, with commas between (may be repeated).",
    ),
]
StoreMarkdown = Annotated[
    bool,
    typer.Option(
        "--markdown", help="Store the main content of pages as Markdown, without menus and footers, beside the crawl."
    ),
]
KeepText = Annotated[
    bool, typer.Option("--text", help="Keep the text of pages in the database, without menus and footers.")
]


def spec_fields(
    *,
    max_pages: int | None,
    max_pages_per_domain: int | None,
    rounds: int | None,
    max_depth: int | None,
    delay: float | None,
    concurrency: int | None,
    scope: Scope | None,
    include: list[str] | None,
    exclude: list[str] | None,
    strip_param: list[str] | None,
    allow_private: bool,
    no_robots: bool,
    no_archive: bool,
    text: bool,
    user_agent: str | None,
    parser: str | None = None,
    refresh: bool | None = None,
    sitemaps: Sitemaps | None = None,
    images: bool = False,
    markdown: bool = False,
    links: bool = False,
    check_external: bool = False,
    types: list[str] | None = None,
) -> dict[str, Any]:
    """The fields of a JobSpec whose options are set; the others keep their value."""
    fields = {
        "max_pages": max_pages,
        "max_pages_per_domain": max_pages_per_domain,
        "rounds": rounds,
        "max_depth": max_depth,
        "delay": delay,
        "concurrency": concurrency,
        "scope": scope,
        "include": tuple(include) if include else None,
        "exclude": tuple(exclude) if exclude else None,
        "strip_params": tuple(dict.fromkeys(strip_param)) if strip_param else None,
        "allow_private": allow_private or None,
        "robots": False if no_robots else None,
        "archive": False if no_archive else None,
        "text": text or None,
        "user_agent": _user_agent(user_agent),
        "parser": parser,
        "refresh": refresh,
        "sitemaps": sitemaps,
        "images": images or None,
        "markdown": markdown or None,
        "links": (links or check_external) or None,
        "check_external": check_external or None,
        "types": _types(types) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _types(texts: list[str] | None) -> tuple[ContentGroup, ...]:
    try:
        return read_groups(",".join(texts or ()))
    except ValueError as problem:
        raise UsageError(f"--types: {problem}.") from None


def _user_agent(text: str | None) -> str | None:
    try:
        return checked_user_agent(text) if text else text
    except ValueError as problem:
        raise UsageError(f"--user-agent {problem}.") from None


def rule_settings(context: command_context.CommandContext) -> RuleSettings:
    """The settings by which URLs are judged when the rules of a job are edited."""
    return RuleSettings(context.settings.crawl.max_depth, context.settings.domains.registrable)


def crawl_service(context: command_context.CommandContext) -> CrawlService:
    """The service for crawls, on the database of this invocation."""
    settings = context.settings
    database = context.store()
    importer = factories.seed_importer(settings, database)
    return CrawlService(database, importer, factories.secret_sealer(settings), settings.crawl.max_depth)
