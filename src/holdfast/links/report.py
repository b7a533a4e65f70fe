"""Reports on links as files: CSV with a row for each link, and a page of HTML that needs nothing else.

The rule: everything in a report is text of the web. In HTML it is escaped, and only http(s) URLs are links; in CSV no cell is a formula.
There is no script, and a policy in the page forbids any.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from holdfast.atomic_file import AtomicFile
from holdfast.control.export import cell
from holdfast.errors import UsageError
from holdfast.links.records import BrokenLink, LinkPlace, MissingPlace, Orphan, RedirectedLink, UncheckedTarget
from holdfast.model.json_values import utc_text

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1b1b; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; overflow-wrap: anywhere }
p { margin: .3rem 0 } .dim { color: #595959 } .why { color: #a30000 }
table { border-collapse: collapse; width: 100%; margin: .4rem 0 } th { text-align: left; font-weight: 600 }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; overflow-wrap: anywhere }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; width: 4rem }
a { color: #0b57a4 }
@media print { body { margin: 0; max-width: none; font-size: 11px } section { break-inside: avoid } a { color: inherit } }
"""
_HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex, nofollow">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="dim">Job {job}, {time}</p>
"""


@dataclass(frozen=True, slots=True)
class ReportKind:
    """A report: how its rows become rows of CSV and pieces of HTML."""

    title: str
    nothing: str
    """What is said if it has no rows."""
    columns: tuple[str, ...]
    cells: Callable[[Any], Iterable[Sequence[object]]]
    """The rows of CSV of one row of the report."""
    section: Callable[[Any], str]
    """A row of the report as HTML."""


def check_file(option: str, name: str) -> None:
    """Raise UsageError for a file that a report cannot be written to. Needs no database."""
    path = Path(name)
    if path.exists() and not path.is_file():
        raise UsageError(f"{option}: {name!r} is not a file that could be replaced.")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {str(path.parent)!r} to write to.")


def write_csv(name: str, kind: ReportKind, rows: Iterable[object]) -> int:
    """Write rows of a report as CSV; returns the number of rows of the report. After: the file is complete, or as it was before."""

    def pieces() -> Iterator[str]:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(kind.columns)
        for row in rows:
            writer.writerows([cell(value) for value in cells] for cells in kind.cells(row))
            counter.append(row)
            yield _drain(buffer)
        yield _drain(buffer)

    counter = _Counter()
    _write(name, pieces())
    return counter.count


def write_html(name: str, kind: ReportKind, rows: Iterable[object], *, job: str, notes: Sequence[str] = ()) -> int:
    """Write rows of a report as a page of HTML; otherwise like `write_csv`. `notes`: sentences below the heading."""

    def pieces() -> Iterator[str]:
        time = utc_text(datetime.now(UTC))
        yield _HEAD.format(title=escape(kind.title), style=_STYLE, job=escape(job), time=escape(time))
        yield "".join(f"<p>{escape(note)}</p>\n" for note in notes)
        for row in rows:
            counter.append(row)
            yield f"<section>\n{kind.section(row)}</section>\n"
        if not counter.count:
            yield f"<p>{escape(kind.nothing)}</p>\n"
        yield "</body>\n</html>\n"

    counter = _Counter()
    _write(name, pieces())
    return counter.count


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def append(self, _: object) -> None:
        self.count += 1


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _write(name: str, pieces: Iterable[str]) -> None:
    target = AtomicFile(name)
    try:
        for piece in pieces:
            target.write(piece.encode("utf-8", "replace"))
        target.complete()
    finally:
        target.discard()


# The reports ------------------------------------------------------------------------------------------------------------


def _url(url: str, shown: str | None = None) -> str:
    text = escape(shown or url)
    if not url.startswith(("https://", "http://")):
        return text
    return f'<a href="{escape(url)}" rel="noopener noreferrer nofollow">{text}</a>'


def _places(links: Sequence[LinkPlace], pages: int) -> str:
    head = '<tr><th scope="col">On the page</th><th scope="col">Text</th><th scope="col">In</th><th scope="col" class="n">Link</th></tr>'
    rows = "".join(
        f'<tr><td>{_url(one.page_url)}</td><td>{escape(one.text)}</td><td>{escape(one.kind)}</td><td class="n">{one.position:,}</td></tr>\n'
        for one in links
    )
    shown = len({one.page_url for one in links})
    more = f'<p class="dim">{pages - shown:,} more pages have it.</p>\n' if pages > shown else ""
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n{more}"


def _hops(hops: Sequence[str]) -> str:
    return "".join(f"<p>redirects to {_url(one)}</p>\n" for one in hops)


def why(link: BrokenLink) -> str:
    """Say why links to a target are broken: `not found (404)`."""
    words = link.outcome.replace("_", " ")
    if link.status is not None and link.status >= 400:
        return f"{words} ({link.status})"
    return f"{words}: {link.detail}" if link.detail else words


def _broken_section(link: BrokenLink) -> str:
    what = f'<p class="why">{escape(why(link))}</p>\n'
    return f"<h2>{_url(link.url)}</h2>\n{_hops(link.hops)}{what}{_places(link.links, link.pages)}"


def _redirect_section(link: RedirectedLink) -> str:
    end = f'<p class="why">{escape(link.reason or str(link.state))}</p>\n' if link.state != "ok" else ""
    return f"<h2>{_url(link.url)}</h2>\n{_hops(link.hops)}{end}{_places(link.links, link.pages)}"


def _fact_section(record: Any) -> str:
    facts = [
        f"{name.replace('_', ' ')}: {value}"
        for name, value in asdict(record).items()
        if name != "url" and value not in ("", None)
    ]
    return f'<h2>{_url(record.url)}</h2>\n<p class="dim">{escape(", ".join(facts))}</p>\n'


def _place_section(place: MissingPlace) -> str:
    where = f"<p>link {place.position:,} of {_url(place.page_url)}: {escape(place.text)}</p>\n"
    return f"<h2>{_url(f'{place.url}#{place.fragment}')}</h2>\n{where}"


_LINK_COLUMNS: Final = ("page_url", "position", "text", "rel", "kind", "nofollow", "fragment")


def _link_cells(link: LinkPlace) -> list[object]:
    return [getattr(link, name) for name in _LINK_COLUMNS]


def _broken_cells(link: BrokenLink) -> Iterator[list[object]]:
    head = [
        link.url,
        link.domain,
        link.external,
        link.outcome,
        link.status,
        link.detail,
        " ".join(link.hops),
        link.pages,
    ]
    return ([*head, *_link_cells(one)] for one in link.links)


def _redirect_cells(link: RedirectedLink) -> Iterator[list[object]]:
    head = [
        link.url,
        link.domain,
        link.external,
        link.status,
        " ".join(link.hops),
        str(link.state),
        link.reason,
        link.pages,
    ]
    return ([*head, *_link_cells(one)] for one in link.links)


def _facts_of(record: type) -> tuple[tuple[str, ...], Callable[[Any], Iterable[Sequence[object]]]]:
    names = tuple(record.__dataclass_fields__)  # type: ignore[attr-defined]
    return names, lambda one: [[getattr(one, name) for name in names]]


BROKEN: Final = ReportKind(
    "Broken links",
    "No broken link was found.",
    ("url", "domain", "external", "outcome", "status", "detail", "hops", "pages", *_LINK_COLUMNS),
    _broken_cells,
    _broken_section,
)
REDIRECTS: Final = ReportKind(
    "Links to redirects",
    "No link leads to a redirect.",
    ("url", "domain", "external", "status", "hops", "state", "reason", "pages", *_LINK_COLUMNS),
    _redirect_cells,
    _redirect_section,
)
ORPHANS: Final = ReportKind(
    "Orphans: listed or seeds, and not linked",
    "Every listed URL and every seed is linked.",
    *_facts_of(Orphan),
    _fact_section,
)
PLACES: Final = ReportKind(
    "Links to places that are missing",
    "Every place that a link names is there.",
    *_facts_of(MissingPlace),
    _place_section,
)
UNCHECKED: Final = ReportKind(
    "Targets that were not requested", "Every target was requested.", *_facts_of(UncheckedTarget), _fact_section
)
REPORTS: Final[Mapping[str, ReportKind]] = {
    "broken": BROKEN,
    "redirects": REDIRECTS,
    "orphans": ORPHANS,
    "fragments": PLACES,
    "unchecked": UNCHECKED,
}
"""By the name of the command."""
