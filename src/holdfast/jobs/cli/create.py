"""`holdfast jobs create` and `holdfast jobs plan`: a new job, and what a job has to do."""

from collections.abc import Callable
from shlex import quote
from typing import Annotated, Final

import typer

from holdfast.cli import command_context, job_options, output, secret_options
from holdfast.cli.output import pluralize
from holdfast.cli.seeds import bad_seeds
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.cli.context import Which, local_jobs
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.records import CrawlPlan, CreatedJob
from holdfast.jobs.seed_import import ImportProgress
from holdfast.jobs.service import JobService


def _create(
    ctx: typer.Context, request: CrawlRequest, on_progress: Callable[[ImportProgress], None], schedule: str | None
) -> CreatedJob:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).create(request, on_progress, schedule)
    if (parser := (request.options or {}).get("parser")) is not None:
        from holdfast.control.parsers import check_known

        check_known(parser, context.settings.parsing)
    return local_jobs(context).create(job_options.crawl_service(context), request, on_progress, schedule)


def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", callback=command_context.valid_text, help="A name for it.")],
    urls: job_options.Urls = None,
    seeds: job_options.Seeds = None,
    max_pages: job_options.MaxPages = None,
    max_pages_per_domain: job_options.MaxPagesPerDomain = None,
    rounds: job_options.Rounds = None,
    max_depth: job_options.MaxDepth = None,
    delay: job_options.Delay = None,
    concurrency: job_options.Concurrency = None,
    scope: job_options.LinkScope = None,
    include: job_options.Include = None,
    exclude: job_options.Exclude = None,
    strip_param: job_options.StripParam = None,
    refresh: job_options.Refresh = None,
    sitemaps: job_options.ReadSitemaps = None,
    types: job_options.Types = None,
    allow_private: job_options.AllowPrivate = False,
    no_robots: job_options.NoRobots = False,
    no_archive: job_options.NoArchive = False,
    text: job_options.KeepText = False,
    images: job_options.StoreImages = False,
    markdown: job_options.StoreMarkdown = False,
    links: job_options.RecordLinks = False,
    check_external: job_options.CheckExternal = False,
    header: secret_options.Header = None,
    cookie: secret_options.Cookie = None,
    basic_auth: secret_options.BasicAuth = None,
    user_agent: job_options.UserAgent = None,
    parser: job_options.JobParser = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help='Crawl it again and again: "6h", or a cron expression, perhaps with a time zone.'
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only plan it: pages, time, what they assume. Nothing is made.",
        ),
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Create a job for running or later workers. `holdfast crawl` creates one and crawls it at once.

    Examples:
        holdfast jobs create news https://example.com --max-pages 500
        holdfast jobs create news --seeds sites.txt --max-pages 500 --dry-run
        holdfast jobs create top --seeds tranco.csv.gz --scope domain
        holdfast jobs create prices shop.example --schedule "30 6 * * mon-fri"
    """
    if not urls and seeds is None:
        raise UsageError("Name what to crawl: URLs, or --seeds FILE.")
    options = job_options.spec_fields(
        max_pages=max_pages,
        max_pages_per_domain=max_pages_per_domain,
        rounds=rounds,
        max_depth=max_depth,
        delay=delay,
        concurrency=concurrency,
        scope=scope,
        include=include,
        exclude=exclude,
        strip_param=strip_param,
        allow_private=allow_private,
        no_robots=no_robots,
        no_archive=no_archive,
        text=text,
        user_agent=user_agent,
        refresh=refresh,
        sitemaps=sitemaps,
        images=images,
        markdown=markdown,
        links=links,
        check_external=check_external,
        types=types,
        parser=parser,
    )
    secrets = secret_options.parse_secrets(header, cookie, basic_auth)
    if parser is not None and no_archive:
        raise UsageError("--parser reads pages from the archive, so --no-archive cannot be given with it.")
    if dry_run:
        planned = _plan(ctx, CrawlRequest(tuple(urls or ()), seeds, name, options))
        _print_plan(planned, seeds, as_json)
        if planned.problem:
            raise HoldfastError(planned.problem)
        if planned.bad:
            raise typer.Exit(1)
        return
    imported = ImportProgress()

    with output.ProgressBar("Loading seeds", None, "line", hidden=seeds is None) as bar:

        def show(progress: ImportProgress) -> None:
            nonlocal imported
            imported = progress
            bar.show(progress.bytes_read, progress.lines)

        request = CrawlRequest(tuple(urls or ()), seeds, name, options, secrets=secrets)
        created = _create(ctx, request, show, schedule)
    for line in bad_seeds(created.bad_seeds, created.bad, seeds):
        command_context.say(line)
    new = created.job
    if as_json:
        output.print_json({"id": new.id, "job": new.name, "seeds": created.seeds, "bad": created.bad})
    else:
        output.print_line(
            f"Made job {output.safe(new.name)} with {pluralize(created.seeds, 'seed')}; workers take it up, "
            f"or `holdfast crawl --job {output.safe(quote(new.name))}`."
        )
    if imported.stopped:
        raise HoldfastError(imported.stopped)
    if created.bad:
        raise typer.Exit(1)


def _plan(ctx: typer.Context, request: CrawlRequest) -> CrawlPlan:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).plan(request)
    return JobService(context.store(), command_context.actor()).plan(job_options.crawl_service(context), request)


def plan(
    ctx: typer.Context,
    job: Which,
    again: Annotated[
        bool, typer.Option("--again", help="Plan all URLs that it knows, as its schedule would crawl them.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Plan what a job has left to do: pages and time of its domains, and what they assume. Nothing is fetched.

    A job that does not exist yet is planned by `holdfast jobs create NAME URL --dry-run`.

    Examples:
        holdfast jobs plan news
        holdfast jobs plan news --again --json
    """
    _print_plan(_plan(ctx, CrawlRequest(job=job, again=again)), None, as_json)


_SHOWN_DOMAINS: Final = 20
"""Domains of a plan that are printed; --json has a hundred."""


def _print_plan(planned: CrawlPlan, file: str | None, as_json: bool) -> None:
    for line in bad_seeds(planned.bad_seeds, planned.bad, file):
        command_context.say(line)
    if as_json:
        output.print_json(planned)
        return
    unknown = f", {pluralize(planned.unknown_domains, 'domain')} unknown" if planned.unknown_domains else ""
    seconds = "unknown" if planned.seconds is None else _about(planned.seconds)
    slowest = f" ({planned.slowest_domain} takes longest)" if planned.slowest_domain and planned.domains > 1 else ""
    output.print_fields(
        [
            ("Domains", f"{planned.domains:,}"),
            ("Pages", f"{planned.pages:,}{unknown}"),
            ("Time", f"{seconds if planned.complete or planned.seconds is None else f'at least {seconds}'}{slowest}"),
        ]
    )
    output.print_line()
    rows = [
        (
            one.domain,
            "unknown" if one.pages is None else f"{one.pages:,}",
            one.pages_from.replace("_", " "),
            f"{one.delay_seconds:g} s ({one.delay_source})",
            "unknown" if one.seconds is None else _about(one.seconds),
        )
        for one in planned.listed[:_SHOWN_DOMAINS]
    ]
    output.print_table(["DOMAIN", "PAGES", "FROM", "DELAY", "TIME"], rows, right="PAGES")
    if planned.domains > len(rows):
        output.print_line(f"… and {planned.domains - len(rows):,} more domains")
    output.print_line()
    for sentence in planned.assumptions:
        output.print_line(output.safe(f"- {sentence}"))


def _about(seconds: float) -> str:
    """A time in its two largest units: `3 h 20 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    units = ((1440, "d"), (60, "h"), (1, "min"))
    parts = []
    for size, unit in units:
        count, minutes = divmod(minutes, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
