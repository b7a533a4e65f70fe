"""`holdfast show`: the main content of a page, in the terminal or as Markdown."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.documents.records import Document
from holdfast.model.seed_lines import make_seed

if TYPE_CHECKING:
    from holdfast.cli.remote.pages import RemoteDocuments
    from holdfast.documents.service import DocumentService


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("show", cls=Command)(show)


def show(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL of a page that was crawled.")],
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="Name or id of the job; without it, the one that fetched it last."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the Markdown as it is, to save or to pass on.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="Print plain text.")] = False,
    as_json: output.Json = False,
) -> None:
    """Show the main content of a page, without menus and footers.

    What the job stores (`crawl --markdown`) is shown; other pages are read from the archive. In a pipe it prints Markdown.

    Examples:
        holdfast show https://example.com/news
        holdfast show https://example.com/news --markdown > news.md
        holdfast show https://example.com/news --json
    """
    found = _documents(ctx, url).show(url, job)
    if as_json:
        output.print_json(found)
    elif text:
        output.print_text(found.text)
    elif markdown or not sys.stdout.isatty():
        output.print_text(found.markdown)
    else:
        output.print_fields(_fields(found))
        output.print_line()
        output.print_markdown(found.markdown)


def _documents(ctx: typer.Context, url: str) -> "DocumentService | RemoteDocuments":
    context = command_context.get(ctx)
    settings = context.settings
    make_seed(url, rules=factories.url_rules(settings), registrable=settings.domains.registrable)
    if context.remote:
        from holdfast.cli.remote.pages import RemoteDocuments

        return RemoteDocuments(context.client)
    return factories.document_service(settings, context.store())


def _fields(found: Document) -> list[tuple[str, object]]:
    fields = [
        ("Title", found.title),
        ("By", found.author),
        ("Site", found.site_name),
        ("Published", found.published),
        ("Language", found.language),
        ("Fetched", output.format_time(found.fetched_at)),
    ]
    return [(name, output.safe(str(value))) for name, value in fields if value]
