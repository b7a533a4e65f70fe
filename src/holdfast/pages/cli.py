"""`holdfast pages`: the versions of a page, and what changed between two of them."""

from typing import Annotated, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.model.seed_lines import make_seed
from holdfast.pages.records import FactChange, PageDiff, PageVersion

app = typer.Typer(cls=Group, help="Pages: their versions, and what changed.", no_args_is_help=True)

Url = Annotated[str, typer.Argument(metavar="URL", help="The URL of the page.")]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Name or id of the job; without it, the one that answered last."),
]


class Pages(Protocol):
    """Pages of a database, or of a server."""

    def versions(self, url: str, job: str | int | None = None) -> list[PageVersion]: ...

    def diff(
        self, url: str, job: str | int | None = None, older: int | None = None, newer: int | None = None
    ) -> PageDiff: ...


def _pages(ctx: typer.Context, url: str) -> Pages:
    context = command_context.get(ctx)
    settings = context.settings
    rules, registrable = factories.url_rules(settings), settings.domains.registrable
    make_seed(url, rules=rules, registrable=registrable)  # an invalid URL is refused before a database is started
    if context.remote:
        from holdfast.cli.remote.pages import RemotePages

        return RemotePages(context.client)
    return factories.page_service(settings, context.store())


@app.command("versions", cls=Command)
def versions(ctx: typer.Context, url: Url, job: JobOption = None, as_json: output.Json = False) -> None:
    """List the versions of a page, the newest first: the last answer, and those that it replaced because the content changed.

    A version is kept when a crawl finds other content, "not found" or an error; `crawl.page_versions` says how many of a page are kept.

    Examples:
        holdfast pages versions https://example.com/news
        holdfast pages versions https://example.com/news --job news --json
    """
    found = _pages(ctx, url).versions(url, job)
    if as_json:
        output.print_json(found)
        return
    rows = [
        (
            version.number,
            output.format_time(version.crawled_at),
            "current" if version.replaced_at is None else output.format_time(version.replaced_at),
            version.change or "-",
            "-" if version.status is None else version.status,
            f"{version.content_length:,}",
            version.title or "",
        )
        for version in found
    ]
    titles = ["VERSION", "LAST SEEN", "REPLACED", "BECAUSE", "STATUS", "BYTES", "TITLE"]
    output.print_table(titles, rows, right="VERSION STATUS BYTES")


@app.command("diff", cls=Command)
def diff(
    ctx: typer.Context,
    url: Url,
    older: Annotated[
        int | None, typer.Option("--older", metavar="N", min=1, help="Version; without it, the one before --newer.")
    ] = None,
    newer: Annotated[
        int | None, typer.Option("--newer", metavar="N", min=1, help="Version; without it, the current one.")
    ] = None,
    job: JobOption = None,
    as_json: output.Json = False,
) -> None:
    """Show what changed on a page between two versions: status, title and the like, and a unified diff of the visible text.

    The texts are read from the archive; `holdfast pages versions URL` lists the versions.

    Examples:
        holdfast pages diff https://example.com/news
        holdfast pages diff https://example.com/news --older 1 --newer 3
        holdfast pages diff https://example.com/news --json
    """
    found = _pages(ctx, url).diff(url, job, older, newer)
    if as_json:
        output.print_json(found)
        return
    versions = f"{found.older.number} and {found.newer.number}, job {found.newer.job}"
    facts = [(fact.name.replace("_", " ").capitalize(), _change(fact)) for fact in found.facts]
    output.print_fields([("URL", found.url), ("Versions", versions), *facts])
    if found.text:
        output.print_line()
        for line in found.text.splitlines():
            output.print_line(output.safe(line))
    elif found.text is not None:
        output.print_line("The visible text is the same.")
    if found.note:
        command_context.say(found.note)


def _change(fact: FactChange) -> str:
    return " → ".join("-" if value is None else str(value) for value in (fact.older, fact.newer))
