"""`holdfast search`: documents by their words, and the index of this machine."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.errors import UnderWay, UsageError
from holdfast.search.records import IndexStatus, SearchFilter, SearchHit

if TYPE_CHECKING:
    from holdfast.cli.remote.pages import RemoteSearch
    from holdfast.search.service import SearchService


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("search", cls=Command)(search)


def search(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help='Words, "a phrase", OR, NOT, title:word.')
    ] = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="DOMAIN", help="Only of this domain.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only of this job.")] = None,
    language: Annotated[
        str | None, typer.Option("--language", metavar="CODE", help="Only in this language, as en.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only pages of this kind, as article.")
    ] = None,
    since: Annotated[datetime | None, typer.Option("--since", help="Only pages that were fetched since (UTC).")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="At most so many results.")] = 10,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, max=10_000, help="Leave out so many first.")
    ] = 0,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index of this machine anew first.")] = False,
    as_json: output.Json = False,
) -> None:
    """Search the content of pages that jobs store as Markdown (`crawl --markdown`).

    All words must be there, in any of their forms; the best pages come first. The index of this machine is brought up to date before.

    Examples:
        holdfast search annual report
        holdfast search '"annual report" OR title:balance' --domain example.com
        holdfast search report --language en --since 2026-01-01
        holdfast search --rebuild
    """
    query = " ".join(words or ())
    if not query and not rebuild:
        raise UsageError("Say what to search for: holdfast search WORDS.")
    service = _service(ctx, rebuild=rebuild)
    if not query:
        _print_status(service.status(), as_json=as_json)
        return
    where = SearchFilter(domain, job, language, kind, since and since.replace(tzinfo=since.tzinfo or UTC))
    found = service.search(query, where, limit=limit, offset=offset)
    if as_json:
        output.print_json(found)
        return
    for hit in found.hits:
        _print_hit(hit)
    command_context.say(f"{pluralize(found.total, 'page')} found.")
    _say_lag(found.index)


def _service(ctx: typer.Context, *, rebuild: bool) -> "SearchService | RemoteSearch":
    """The search of a server, or of this machine with its index brought up to date."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.pages import RemoteSearch

        if rebuild:
            raise UsageError("--rebuild is for the index of this machine; run it where the server runs.")
        return RemoteSearch(context.client)
    service = factories.search_service(context.settings, context.store())
    total = None if rebuild else service.status().waiting
    with output.ProgressBar("Indexing", total, "document") as bar:
        try:
            (service.rebuild if rebuild else service.update)(lambda read: bar.show(read, read, total))
        except UnderWay as problem:
            if rebuild:
                raise
            command_context.say(f"{problem} The results are those of its last commit.")
    return service


def _print_hit(hit: SearchHit) -> None:
    output.print_line(output.safe(hit.title or hit.url))
    output.print_line(f"  {output.safe(hit.url)}")
    output.print_line("  " + output.safe(" ".join("".join(part.text for part in hit.snippet).split())))
    output.print_line()


def _print_status(found: IndexStatus, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    output.print_line(f"{pluralize(found.documents, 'document')} in the index, {format_bytes(found.bytes)}.")
    _say_lag(found)


def _say_lag(found: IndexStatus) -> None:
    if found.waiting:
        command_context.say(f"{pluralize(found.waiting, 'document')} changed since and not in the index yet.")
