"""Exports: pages, items, products, URLs or the log as lines of JSON, CSV or Parquet.

The rule: nothing half-written is ever found under the name that was asked for, and memory stays the same however much there is.
"""

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from holdfast.atomic_file import AtomicFile
from holdfast.db import domains, exports, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key
from holdfast.errors import UsageError
from holdfast.items import queries as items
from holdfast.model.domain_name import canonical_domain
from holdfast.model.json_values import json_default, utc_text
from holdfast.pages.texts import MissingTexts, Texts
from holdfast.products import queries as products
from holdfast.products.records import ProductFilter

Row = dict[str, Any]

# Types by their names in Arrow, which is loaded only for Parquet: every command would wait for it.
_TEXT: Final = "string"
_WHOLE: Final = "int64"
_SMALL: Final = "int32"
_YES_NO: Final = "bool"
_TIME: Final = "timestamp"

_DATA: Final = "data"
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "pages": {
        "url": _TEXT,
        "domain": _TEXT,
        "job": _TEXT,
        "status": _SMALL,
        "outcome": _TEXT,
        "title": _TEXT,
        "description": _TEXT,
        "crawled_at": _TIME,
        "depth": _SMALL,
        "content_type": _TEXT,
        "charset": _TEXT,
        "content_length": _WHOLE,
        "content_hash": _TEXT,
        "canonical": _TEXT,
        "links_count": _SMALL,
        "images_count": _SMALL,
        "noindex": _YES_NO,
        "nofollow": _YES_NO,
        "etag": _TEXT,
        "last_modified": _TEXT,
        "duration_ms": _SMALL,
        "problem": _TEXT,
        "archive_segment": _TEXT,
        "archive_offset": _WHOLE,
        "archive_length": _WHOLE,
        "url_key": _TEXT,
    },
    "urls": {
        "url": _TEXT,
        "domain": _TEXT,
        "job": _TEXT,
        "state": _TEXT,
        "reason": _TEXT,
        "kind": _TEXT,
        "depth": _SMALL,
        "priority": _SMALL,
        "attempts": _SMALL,
        "hops": _SMALL,
        "discovered_at": _TIME,
        "not_before": _TIME,
        "url_key": _TEXT,
        "parent_key": _TEXT,
    },
    "items": {
        "_url": _TEXT,
        "_domain": _TEXT,
        "_job": _TEXT,
        "_parser": _TEXT,
        "_parser_version": _TEXT,
        "_position": _SMALL,
        "_fetched_at": _TIME,
        "_extracted_at": _TIME,
        _DATA: _TEXT,
    },
    "products": {
        "id": _WHOLE,
        "name": _TEXT,
        "brand": _TEXT,
        "price": _TEXT,
        "currency": _TEXT,
        "availability": _TEXT,
        "sku": _TEXT,
        "gtin": _TEXT,
        "rating_value": _TEXT,
        "rating_best": _TEXT,
        "rating_count": _WHOLE,
        "images": _TEXT,
        "url": _TEXT,
        "page_url": _TEXT,
        "domain": _TEXT,
        "first_seen_at": _TIME,
        "last_seen_at": _TIME,
    },
    "log": {
        "url": _TEXT,
        "domain": _TEXT,
        "job": _TEXT,
        "crawled_at": _TIME,
        "outcome": _TEXT,
        "status": _SMALL,
        "duration_ms": _SMALL,
        "bytes": _WHOLE,
        "images_found": _SMALL,
        "run": _WHOLE,
        "claim_epoch": _WHOLE,
        "url_key": _TEXT,
    },
}
"""What each kind has, by name and in this order; pages may have their `text` behind it. `data` is an object: in lines of JSON an item's own
fields stand beside those that begin with `_`."""

KINDS: Final = tuple(COLUMNS)
SUFFIXES: Final = (".jsonl", ".csv", ".parquet")
STDOUT: Final = "-"

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for a formula at the beginning of a cell."""
_SAID_EVERY: Final = 1_000
"""Rows, or fewer if they have long texts: what is written in between is held in memory where the file is a stream."""
_SAID_TEXT: Final = 1024 * 1024
_ITEMS: Final = 200
"""Items in memory at once: each may be long."""
_PRODUCTS: Final = 1_000
_GROUP_ROWS: Final = 25_000
_GROUP_TEXT: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be exported."""

    kind: str
    text: bool = False
    job: str | None = None
    domain: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Names and types, in their order."""
        return COLUMNS[self.kind] | ({"text": _TEXT} if self.text else {})


def check(file: str, wanted: Wanted) -> None:
    """Raise UsageError for an export that cannot be meant. Needs no database, so a slip of the pen starts none."""
    check_wanted(wanted)
    if file == STDOUT:
        return
    path = Path(file)
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{file!r} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, the format of the file; "
            f"{STDOUT} writes JSON lines to standard output."
        )
    if path.exists() and not path.is_file():
        raise UsageError(f"{file!r} is not a file that could be replaced.")
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {str(path.parent)!r} to write to.")


def check_wanted(wanted: Wanted) -> None:
    """The same, wherever it is to be written."""
    if wanted.kind not in COLUMNS:
        raise UsageError(f"{wanted.kind!r} cannot be exported; choose one of: {', '.join(KINDS)}.")
    if wanted.text and wanted.kind != "pages":
        raise UsageError("A text is for pages only; nothing else has one.")
    if wanted.kind == "products" and wanted.job is not None:
        raise UsageError("Products belong to pages of a domain, not to a job; --domain chooses.")
    if wanted.domain is not None:
        canonical_domain(wanted.domain)


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports from one store."""

    database: Database
    registrable: bool = False
    archive: Path | None = None
    """Where texts are read from that are not kept; None: nowhere."""
    missing: MissingTexts = field(default_factory=MissingTexts)
    """Texts that could not be had, counted while rows are read."""

    def expected(self, wanted: Wanted) -> int | None:
        """About how many rows there will be; None: nobody knows before."""
        with self.database.session() as connection:
            return exports.expected(connection, self._only(connection, wanted)).get(wanted.kind)

    def rows(self, wanted: Wanted) -> Generator[Row, None, None]:
        """Every row, with the columns of its kind."""
        with self.database.session() as connection, Texts(self.archive, self.missing) as texts:
            only = self._only(connection, wanted)
            if wanted.kind in ("items", "products"):
                yield from _items(connection, only) if wanted.kind == "items" else _products(connection, only)
                return
            if wanted.kind == "pages":
                chunks = exports.pages(connection, only, text=wanted.text)
            else:
                chunks = {"urls": exports.urls, "log": exports.log}[wanted.kind](connection, only)
            for chunk in chunks:
                for row in chunk:
                    yield self._shown(row, wanted, texts)

    def lines(self, wanted: Wanted) -> Iterator[str]:
        """Lines of JSON in plain ASCII, which can steer no terminal."""
        return (json.dumps(flat(row), default=json_default) + "\n" for row in self.rows(wanted))

    def write(self, file: str, wanted: Wanted) -> Generator[int, None, None]:
        """Write a file; after some rows and at the end how many there are.

        After: the file is whole and on the disk, or there is none of that name that was not there before.
        """
        check(file, wanted)
        rows = self.rows(wanted)
        target = AtomicFile(file)
        try:
            with target.reporting_errors(), closing(rows):
                yield from _drain(rows, _WRITERS[Path(file).suffix](target.stream, wanted.columns))
            target.complete()
        finally:
            target.discard()

    def stream(self, suffix: str, wanted: Wanted, stream: BinaryIO) -> Generator[int, None, None]:
        """Write to a stream that can only be written to; after some rows and at the end how many there are."""
        check_wanted(wanted)
        rows = self.rows(wanted)
        with closing(rows):
            yield from _drain(rows, _WRITERS[suffix](stream, wanted.columns))

    def _only(self, connection: Connection, wanted: Wanted) -> exports.Only:
        job = jobs.find(connection, wanted.job) if wanted.job is not None else None
        if wanted.domain is None:
            return exports.Only(job)
        name = canonical_domain(wanted.domain, registrable=self.registrable)
        return exports.Only(job, domains.get(connection, name)["id"])

    def _shown(self, row: Row, wanted: Wanted, texts: Texts) -> Row:
        row["run"] = row.get("crawl_run_id")
        row["url"] = row["page_url"] if wanted.kind == "log" else row["url"]
        for key in ("url_key", "parent_key", "content_hash"):
            if row.get(key) is not None:
                row[key] = bytes(row[key]).hex()
        if wanted.text:
            row["text"] = texts.of(row)
        return {name: row[name] for name in wanted.columns}


def _items(connection: Connection, only: exports.Only) -> Iterator[Row]:
    for chunk in items.chunks(connection, job_id=only.job, domain_id=only.domain, parser=None, size=_ITEMS):
        for one in chunk:
            ours = (one.url, one.domain, one.job, one.parser, one.parser_version, one.position, one.fetched_at)
            yield dict(zip(COLUMNS["items"], (*ours, one.extracted_at, one.data), strict=True))


def _products(connection: Connection, only: exports.Only) -> Iterator[Row]:
    after: Key | None = None
    while True:
        found = products.page(connection, ProductFilter(), domain_id=only.domain, after=after, limit=_PRODUCTS)
        for one in found.rows:
            rating = one.rating
            row = {name: getattr(one, name, None) for name in COLUMNS["products"]}
            row["price"] = None if one.price is None else f"{one.price:f}"
            if rating is not None:
                row |= {"rating_value": f"{rating.value:f}", "rating_best": f"{rating.best:f}"}
                row["rating_count"] = rating.count
            yield row
        if found.next is None:
            return
        after = found.next


class _Writer(Protocol):
    def write(self, row: Row) -> None: ...

    def end(self) -> None: ...

    def give_up(self) -> None: ...


class _JsonLines:
    def __init__(self, stream: BinaryIO, columns: Mapping[str, str]) -> None:  # noqa: ARG002 — as the others
        self._stream = stream
        self._encode = json.JSONEncoder(default=json_default, ensure_ascii=False).encode

    def write(self, row: Row) -> None:
        self._stream.write(self._encode(flat(row)).encode() + b"\n")

    def end(self) -> None:
        """Every line stands for itself."""

    give_up = end


class _Csv:
    """RFC 4180, with a line of names."""

    def __init__(self, stream: BinaryIO, columns: Mapping[str, str]) -> None:
        self._text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        self._csv = csv.writer(self._text, lineterminator="\r\n")
        self._csv.writerow(columns)

    def write(self, row: Row) -> None:
        self._csv.writerow([cell(value) for value in row.values()])

    def end(self) -> None:
        self._text.detach()

    give_up = end


class _Parquet:
    """A fixed schema whatever the rows have; groups of rows are written as they fill up."""

    def __init__(self, stream: BinaryIO, columns: Mapping[str, str]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        times = {_TIME: pa.timestamp("us", tz="UTC")}
        self._schema = pa.schema([(name, times.get(kind, kind)) for name, kind in columns.items()])
        self._table = pa.Table
        self._file = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._characters = 0

    def write(self, row: Row) -> None:
        row = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
        self._rows.append(row)
        self._characters += len(row.get("text") or "")
        if len(self._rows) >= _GROUP_ROWS or self._characters >= _GROUP_TEXT:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._file.close()

    def give_up(self) -> None:
        self._file.is_open = False  # or it would write its last part when it is forgotten, to a file that is gone

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._characters = [], 0


_WRITERS: Final[dict[str, Callable[[BinaryIO, Mapping[str, str]], _Writer]]] = {
    ".jsonl": _JsonLines,
    ".csv": _Csv,
    ".parquet": _Parquet,
}


def flat(row: Row) -> Row:
    """A row as a line of JSON has it: an item's own fields first, then those of ours, which begin with `_`."""
    if _DATA not in row:
        return row
    return {**row[_DATA], **{name: value for name, value in row.items() if name != _DATA}}


def unflat(row: Row, columns: Mapping[str, str]) -> Row:
    """The inverse of `flat`."""
    if _DATA not in columns:
        return row
    ours = {name: row[name] for name in columns if name != _DATA}
    return {**ours, _DATA: {name: value for name, value in row.items() if name not in ours}}


def cell(value: object) -> object:
    """A cell of a CSV file: times as ISO 8601, yes and no in words, and no text that a spreadsheet would run."""
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _drain(rows: Iterator[Row], writer: _Writer) -> Iterator[int]:
    written = rows_since = text_since = 0
    try:
        for row in rows:
            writer.write(row)
            written += 1
            rows_since += 1
            text_since += len(row.get("text") or "") + (_SAID_TEXT // _ITEMS if _DATA in row else 0)
            if rows_since >= _SAID_EVERY or text_since >= _SAID_TEXT:
                yield written
                rows_since = text_since = 0
        writer.end()
    except BaseException:
        writer.give_up()
        raise
    yield written
