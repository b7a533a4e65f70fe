"""`holdfast search`: documents by their words, and the index of this machine."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.errors import UnderWay, UsageError
from holdfast.search.records import IndexStatus, SearchFilter, SearchHit, SearchResults

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
    until: Annotated[
        datetime | None, typer.Option("--until", help="Only pages that were fetched before (UTC).")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="At most this many results.")] = 10,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, max=10_000, help="Skip this many first.")] = 0,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index of this machine anew first.")] = False,
    as_json: output.Json = False,
) -> None:
    """Search the content of pages that jobs store as Markdown (`crawl --markdown`).

    All words must be there, in any of their forms; the best pages come first. The index of this machine is brought up to date before.

    Examples:
        holdfast search annual report
        holdfast search '"annual report" OR title:balance' --domain example.com
        holdfast search "report NOT draft" --language en --since 2026-01-01
        holdfast search --rebuild
    """
    query = " ".join(words or ())
    if not query and not rebuild:
        raise UsageError("Say what to search for: holdfast search WORDS.")
    service = _service(ctx, rebuild=rebuild)
    if not query:
        _print_status(service.status(), as_json=as_json)
        return
    where = SearchFilter(domain, job, language, kind, _utc(since), _utc(until))
    found = service.search(query, where, limit=limit, offset=offset)
    if as_json:
        output.print_json(found)
        return
    for hit in found.hits:
        _print_hit(hit)
    _say_found(found, offset)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=at.tzinfo or UTC)


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
    with output.ProgressBar("Indexing", total, "document", hidden=total == 0) as bar:
        try:
            (service.rebuild if rebuild else service.update)(lambda read: bar.show(read, read, total))
        except UnderWay as problem:
            if rebuild:
                raise
            command_context.say(f"{problem} The results are those of its last commit.")
    return service


def _print_hit(hit: SearchHit) -> None:
    output.print_marked([(hit.title or hit.url, True)])
    output.print_line(f"  {output.safe(hit.url)}")
    output.print_marked(((part.text, part.marked) for part in hit.snippet), indent="  ")
    output.print_line()


def _say_found(found: SearchResults, offset: int) -> None:
    """Print how many pages were found, and what to do if that is none."""
    if found.hits and offset + len(found.hits) < found.total:
        command_context.say(
            f"{pluralize(found.total, 'page')} found; --offset {offset + len(found.hits)} shows the next."
        )
    elif found.hits or found.total:
        command_context.say(f"{pluralize(found.total, 'page')} found.")
    elif found.index.documents:
        command_context.say(
            f"No page found among {pluralize(found.index.documents, 'document')}. Use fewer words or filters, or OR between the words."
        )
    elif not found.index.waiting:
        command_context.say(
            "No page found: no job has stored the content of pages. `holdfast crawl URL --markdown` does, also for pages that it "
            "crawled before."
        )
    _say_lag(found.index)


def _print_status(found: IndexStatus, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    output.print_line(f"{pluralize(found.documents, 'document')} in the index, {format_bytes(found.bytes)}.")
    _say_lag(found)


def _say_lag(found: IndexStatus) -> None:
    if found.waiting:
        verb = "is" if found.waiting == 1 else "are"
        command_context.say(f"{pluralize(found.waiting, 'new or changed document')} {verb} not in the index yet.")
