"""`holdfast links`: who links where, and reports on links."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any, Protocol, TypeVar

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize, safe
from holdfast.db.keyset_pagination import MAX_PAGE, Key, Page
from holdfast.errors import UsageError
from holdfast.links import report
from holdfast.links.records import (
    BrokenLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    TargetState,
    UncheckedTarget,
)
from holdfast.links.service import SHOWN_PLACES
from holdfast.model.outcome import Outcome

app = typer.Typer(
    cls=Group, help="Links of pages: who links where, broken links, redirects, orphans.", no_args_is_help=True
)

Row = TypeVar("Row")

_Job = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="NAME",
        callback=command_context.valid_text,
        help="Links of this job; by default of the newest one that has recorded links.",
    ),
]
_Url = Annotated[str, typer.Argument(metavar="URL", callback=command_context.valid_text)]
_Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Show at most N rows.")]
_Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write all rows to a CSV file.")]
_Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write all rows to a page of HTML.")]
_External = Annotated[
    bool | None,
    typer.Option(
        "--external/--internal", help="Only targets out of scope, which --check-external checked; or only the others."
    ),
]


class Links(Protocol):
    """The links of a store, or of a server."""

    def incoming(
        self, url: str, job: str | None = None, *, after: Key | None = None, limit: int
    ) -> Page[LinkPlace]: ...

    def outgoing(self, url: str, job: str | None = None) -> PageLinkList: ...

    def broken(
        self, job: str | None = None, *, external: bool | None, after: Key | None, limit: int, places: int | None
    ) -> Page[BrokenLink]: ...

    def redirects(
        self,
        job: str | None = None,
        *,
        min_hops: int,
        external: bool | None,
        after: Key | None,
        limit: int,
        places: int | None,
    ) -> Page[RedirectedLink]: ...

    def orphans(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[Orphan]: ...

    def unchecked(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[UncheckedTarget]: ...

    def missing_places(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[MissingPlace]: ...

    def top(self, job: str | None = None, *, limit: int) -> list[LinkDegree]: ...

    def summary(self, job: str | None = None) -> LinkSummary: ...


def _links(ctx: typer.Context) -> Links:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.links import RemoteLinks

        return RemoteLinks(context.client)
    return factories.link_service(context.settings, context.store())


@dataclass(frozen=True, slots=True)
class _Output:
    """Where the rows of a report go."""

    csv: str | None
    html: str | None
    as_json: bool

    def __post_init__(self) -> None:
        if sum((self.csv is not None, self.html is not None, self.as_json)) > 1:
            raise UsageError("--csv, --html and --json each say where a report goes; give one of them.")
        for option, name in (("--csv", self.csv), ("--html", self.html)):
            if name is not None:
                report.check_file(option, name)

    @property
    def places(self) -> int | None:
        """Pages that are read of each target: all of them for a file of CSV."""
        return None if self.csv is not None else SHOWN_PLACES


@app.command("in", cls=Command)
def incoming(
    ctx: typer.Context, url: _Url, job: _Job = None, limit: _Limit = 100, as_json: output.Json = False
) -> None:
    """List the pages that link to a URL, whether it was crawled or not.

    Examples:
        holdfast links in https://example.com/about
        holdfast links in https://example.com/about --job site --json
    """
    service = _links(ctx)
    rows, more = _first(lambda after, size: service.incoming(url, job, after=after, limit=size), limit)
    if as_json:
        output.print_json({"links": rows, "more": more})
        return
    if not rows:
        command_context.say("No page is known that links to it.")
        return
    output.print_table(["PAGE", "LINK", "IN", "REL", "TEXT"], [_place(one) for one in rows], right="LINK")
    _say_more(more)


@app.command("out", cls=Command)
def outgoing(ctx: typer.Context, url: _Url, job: _Job = None, as_json: output.Json = False) -> None:
    """List the links of a page, with what is known of their targets.

    Examples:
        holdfast links out https://example.com/
        holdfast links out https://example.com/ --json
    """
    found = _links(ctx).outgoing(url, job)
    if as_json:
        output.print_json(found)
        return
    notes = {}
    rows = []
    for at, one in enumerate(found.links):
        rows.append(
            (one.position, one.kind, str(one.state).replace("_", " "), one.text or "-", _target(one.url, one.fragment))
        )
        said = [f"ends at {one.ends_at}"] if one.ends_at else []
        said += [one.reason] if one.reason and one.state is not TargetState.OK else []
        if said:
            notes[at] = ", ".join(said)
    output.print_table(["LINK", "IN", "TARGET IS", "TEXT", "URL"], rows, notes, right="LINK")
    if found.cut:
        command_context.say(f"{pluralize(found.cut, 'link')} more are not recorded (crawl.links_per_page).")


@app.command("broken", cls=Command)
def broken(
    ctx: typer.Context,
    job: _Job = None,
    external: _External = None,
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 1 if there is a broken link.")] = False,
    limit: _Limit = 100,
    csv: _Csv = None,
    html: _Html = None,
    as_json: output.Json = False,
) -> None:
    """List broken links with the pages that hold them: targets that are errors, at once or behind redirects.

    What was not requested (denied by robots.txt, out of scope, nofollow …) is no broken link; `holdfast links unchecked` lists it.

    Exit code: 0, or with --fail 1 if there is a broken link.

    Examples:
        holdfast links broken
        holdfast links broken --job site --html broken.html
        holdfast links broken --internal --csv broken.csv --fail
    """
    target = _Output(csv, html, as_json)
    service = _links(ctx)

    def read(after: Key | None, size: int) -> Page[BrokenLink]:
        return service.broken(job, external=external, after=after, limit=size, places=target.places)

    def print_rows(rows: list[BrokenLink]) -> None:
        for one in rows:
            output.print_line(safe(f"{one.url}  {report.why(one)}"))
            for hop in one.hops:
                output.print_line(safe(f"    redirects to {hop}"))
            _print_places(one.links, one.pages)

    found = _report(service, job, report.BROKEN, target, read, limit, print_rows)
    if external and not found and not as_json:
        _say_not_checked(service, job)
    if fail and found:
        raise typer.Exit(1)


def _say_not_checked(service: Links, job: str | None) -> None:
    """Say that targets out of scope were not requested, if so."""
    facts = service.summary(job)
    count = facts.not_checked.get(Outcome.OUT_OF_SCOPE, 0)
    if count and not facts.checked:
        command_context.say(
            f"{pluralize(count, 'target')} out of scope {'was' if count == 1 else 'were'} not requested: `holdfast crawl --job "
            f"{safe(quote(facts.job))} --check-external --again` checks them."
        )


@app.command("redirects", cls=Command)
def redirects(
    ctx: typer.Context,
    job: _Job = None,
    external: _External = None,
    min_hops: Annotated[int, typer.Option(min=1, metavar="N", help="Only chains of at least N redirects.")] = 1,
    limit: _Limit = 100,
    csv: _Csv = None,
    html: _Html = None,
    as_json: output.Json = False,
) -> None:
    """List links to redirects, with where they end and the pages that hold them.

    Examples:
        holdfast links redirects --min-hops 2
        holdfast links redirects --html redirects.html
    """
    target = _Output(csv, html, as_json)
    service = _links(ctx)

    def read(after: Key | None, size: int) -> Page[RedirectedLink]:
        return service.redirects(
            job, min_hops=min_hops, external=external, after=after, limit=size, places=target.places
        )

    def print_rows(rows: list[RedirectedLink]) -> None:
        for one in rows:
            output.print_line(safe(one.url))
            for hop in one.hops:
                output.print_line(safe(f"    redirects to {hop}"))
            if one.state is not TargetState.OK:
                output.print_line(safe(f"    {one.reason or one.state}"))
            _print_places(one.links, one.pages)

    _report(service, job, report.REDIRECTS, target, read, limit, print_rows)


@app.command("orphans", cls=Command)
def orphans(
    ctx: typer.Context,
    job: _Job = None,
    limit: _Limit = 100,
    csv: _Csv = None,
    html: _Html = None,
    as_json: output.Json = False,
) -> None:
    """List URLs that a sitemap lists or that are seeds, and to which no page links.

    Examples:
        holdfast links orphans
        holdfast links orphans --job site --csv orphans.csv
    """
    service = _links(ctx)

    def print_rows(rows: list[Orphan]) -> None:
        table = [(one.state, one.outcome or "-", "sitemap" if one.listed else "seed", one.url) for one in rows]
        output.print_table(["STATE", "OUTCOME", "FROM", "URL"], table)

    _report(
        *(service, job, report.ORPHANS, _Output(csv, html, as_json)),
        *(lambda after, size: service.orphans(job, after=after, limit=size), limit, print_rows),
    )


@app.command("fragments", cls=Command)
def fragments(
    ctx: typer.Context,
    job: _Job = None,
    limit: _Limit = 100,
    csv: _Csv = None,
    html: _Html = None,
    as_json: output.Json = False,
) -> None:
    """List links to places (#id) that are not on their target. Pages that were not read whole, or are no HTML, are not judged.

    Examples:
        holdfast links fragments
        holdfast links fragments --csv fragments.csv
    """
    service = _links(ctx)

    def print_rows(rows: list[MissingPlace]) -> None:
        table = [(_target(one.url, one.fragment), one.page_url, one.position, one.text or "-") for one in rows]
        output.print_table(["TARGET", "PAGE", "LINK", "TEXT"], table, right="LINK")

    _report(
        *(service, job, report.PLACES, _Output(csv, html, as_json)),
        *(lambda after, size: service.missing_places(job, after=after, limit=size), limit, print_rows),
    )


@app.command("unchecked", cls=Command)
def unchecked(
    ctx: typer.Context,
    job: _Job = None,
    limit: _Limit = 100,
    csv: _Csv = None,
    html: _Html = None,
    as_json: output.Json = False,
) -> None:
    """List targets that were not requested, each with the reason.

    Examples:
        holdfast links unchecked
        holdfast links unchecked --csv unchecked.csv
    """
    service = _links(ctx)

    def print_rows(rows: list[UncheckedTarget]) -> None:
        output.print_table(["STATE", "REASON", "URL"], [(one.state, one.reason, one.url) for one in rows])

    _report(
        *(service, job, report.UNCHECKED, _Output(csv, html, as_json)),
        *(lambda after, size: service.unchecked(job, after=after, limit=size), limit, print_rows),
    )


@app.command("top", cls=Command)
def top(
    ctx: typer.Context,
    job: _Job = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE, metavar="N", help="Show at most N rows.")] = 50,
    as_json: output.Json = False,
) -> None:
    """List the URLs to which most pages link. Reads all pages of the job.

    Examples:
        holdfast links top --limit 20
        holdfast links top --job site --json
    """
    rows = _links(ctx).top(job, limit=limit)
    if as_json:
        output.print_json({"urls": rows})
        return
    output.print_table(["PAGES", "URL"], [(one.pages, one.url) for one in rows], right="PAGES")


@app.command("summary", cls=Command)
def summary(ctx: typer.Context, job: _Job = None, as_json: output.Json = False) -> None:
    """Show how many links are recorded, and the state of their targets. Reads all pages and URLs of the job.

    Examples:
        holdfast links summary
        holdfast links summary --job site --json
    """
    found = _links(ctx).summary(job)
    if as_json:
        output.print_json(found)
        return
    output.print_fields(
        [
            ("Job", found.job),
            ("Pages", f"{found.pages:,}"),
            ("Links", f"{found.links:,}"),
            *(
                [
                    (
                        "Not recorded",
                        f"{found.cut:,} links of {pluralize(found.cut_pages, 'page')} (crawl.links_per_page)",
                    )
                ]
                if found.cut
                else []
            ),
            ("Errors", f"{found.broken:,}"),
            ("Redirects", f"{found.redirects:,}"),
            ("Refused to us", f"{found.refused:,}"),
            ("Checked", f"{found.checked:,}"),
            ("Not requested", not_requested(found) or "none"),
        ]
    )


def not_requested(found: LinkSummary) -> str:
    """Say which targets were not requested: `12 out of scope, 3 robots denied`."""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in found.not_checked.items())


def _report(
    service: Links,
    job: str | None,
    kind: report.ReportKind,
    target: _Output,
    read: Callable[[Key | None, int], Page[Row]],
    limit: int,
    print_rows: Callable[[list[Row]], None],
) -> int:
    """Print a report, or write it to a file; returns the number of its rows."""
    if target.csv is not None or target.html is not None:
        name = target.csv or target.html or ""
        facts = service.summary(job)
        every = _all(read)
        if target.csv is not None:
            count = report.write_csv(name, kind, every)
        else:
            notes = [f"{facts.links:,} links of {facts.pages:,} pages are recorded."]
            notes += [f"Not requested: {not_requested(facts)}."] if facts.not_checked else []
            count = report.write_html(name, kind, every, job=facts.job, notes=notes)
        output.print_line(f"{pluralize(count, 'row')} in {safe(name)}.")
        return count
    rows, more = _first(read, limit)
    if target.as_json:
        output.print_json({"rows": rows, "more": more})
    elif rows:
        print_rows(rows)
        _say_more(more)
    else:
        output.print_line(kind.nothing)
    return len(rows)


def _all(read: Callable[[Key | None, int], Page[Row]]) -> Iterator[Row]:
    after: Key | None = None
    while True:
        page = read(after, MAX_PAGE)
        yield from page.rows
        if (after := page.next) is None:
            return


def _first(read: Callable[[Key | None, int], Page[Row]], limit: int) -> tuple[list[Row], bool]:
    """The first rows, and whether there are more."""
    rows: list[Row] = []
    after: Key | None = None
    while len(rows) < limit:
        page = read(after, min(MAX_PAGE, limit - len(rows)))
        rows += page.rows
        if (after := page.next) is None:
            return rows, False
    return rows, True


def _place(one: LinkPlace) -> tuple[Any, ...]:
    return one.page_url, one.position, one.kind, one.rel or "-", one.text or "-"


def _print_places(links: list[LinkPlace], pages: int) -> None:
    for one in links:
        text = f' "{one.text}"' if one.text else ""
        output.print_line(safe(f"    link {one.position} of {one.page_url}{text}"))
    shown = len({one.page_url for one in links})
    if pages > shown:
        output.print_line(f"    and {pluralize(pages - shown, 'page')} more")


def _target(url: str, fragment: str) -> str:
    return f"{url}#{fragment}" if fragment else url


def _say_more(more: bool) -> None:
    if more:
        command_context.say("There are more rows: --limit N shows more, --csv FILE writes all.")
