"""Exports: pages, documents, items, products, URLs or the log as lines of JSON, CSV or Parquet.

The rule: no partial file ever appears under the name of the export, and memory does not grow with the number of rows. The columns of a
kind are the fields of its record.
"""

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Final, Protocol, Union, get_args, get_origin, get_type_hints

from holdfast.archive.reader import ArchiveReader
from holdfast.atomic_file import AtomicFile
from holdfast.db import domains, exports, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key
from holdfast.db.rows import names_of
from holdfast.documents import queries as documents
from holdfast.documents.records import Document
from holdfast.documents.service import stored_document
from holdfast.errors import UsageError
from holdfast.frontier.records import ExportedUrl
from holdfast.items import queries as items
from holdfast.items.records import Item
from holdfast.links.records import ExportedLink
from holdfast.links.service import exported_links
from holdfast.model.domain_name import canonical_domain
from holdfast.model.json_values import json_default, utc_text
from holdfast.model.record import Int64
from holdfast.pages.records import ExportedPage, LoggedRequest
from holdfast.pages.texts import MissingTexts, Texts
from holdfast.products import queries as products
from holdfast.products.records import ProductFilter

Row = dict[str, Any]

_ARROW_TYPES: Final[dict[object, str]] = {
    str: "string",
    int: "int32",
    Int64: "int64",
    bool: "bool",
    date: "string",
    datetime: "timestamp",
}
"""By name: Arrow itself is imported only for Parquet, since its import takes long."""
_TEXT, _TIME = _ARROW_TYPES[str], _ARROW_TYPES[datetime]
_DATA: Final = "data"
_METADATA: Final = "metadata"
_HEADINGS: Final = "headings"


def _columns(record: type, prefix: str = "") -> dict[str, str]:
    """The columns of a record: its fields with their Arrow types, in their order."""
    hints = get_type_hints(record, include_extras=True)
    types = {
        name: get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint for name, hint in hints.items()
    }
    return {f"{prefix}{name}": _ARROW_TYPES[kind] for name, kind in types.items() if name not in (_DATA, _HEADINGS)}


COLUMNS: Final[dict[str, dict[str, str]]] = {
    "pages": _columns(ExportedPage),
    "urls": _columns(ExportedUrl),
    "documents": {
        "id": _TEXT,
        "text": _TEXT,
        "markdown": _TEXT,
        _METADATA: _METADATA,
        _HEADINGS: _HEADINGS,
    },
    "items": {**_columns(Item, "_"), _DATA: _TEXT},
    "products": {
        "id": "int64",
        "name": _TEXT,
        "brand": _TEXT,
        "price": _TEXT,
        "currency": _TEXT,
        "availability": _TEXT,
        "sku": _TEXT,
        "gtin": _TEXT,
        "rating_value": _TEXT,
        "rating_best": _TEXT,
        "rating_count": "int64",
        "images": _TEXT,
        "url": _TEXT,
        "page_url": _TEXT,
        "domain": _TEXT,
        "first_seen_at": _TIME,
        "last_seen_at": _TIME,
    },
    "log": _columns(LoggedRequest),
    "links": _columns(ExportedLink),
}
"""The columns of each kind with their types, in their order; pages may have their `text` after them. `data` is an object: in lines of JSON
the fields of an item are beside those of ours, which begin with `_`."""

KINDS: Final = tuple(COLUMNS)
SUFFIXES: Final = (".jsonl", ".csv", ".parquet")
STDOUT: Final = "-"

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Characters at the beginning of a cell that make a spreadsheet run it as a formula."""
_REPORT_ROWS: Final = 1_000
"""Rows between two reports of progress; fewer if they have long texts, because a stream is buffered in between."""
_REPORT_TEXT: Final = 1024 * 1024
"""Characters of text between two reports of progress."""
_ITEMS: Final = 200
"""Items in memory at once: each may be long."""
_PRODUCTS: Final = 1_000
_GROUP_ROWS: Final = 25_000
_GROUP_TEXT: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export."""

    kind: str
    text: bool = False
    job: str | None = None
    domain: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Names and types, in their order."""
        return COLUMNS[self.kind] | ({"text": _TEXT} if self.text else {})


def check(file: str, request: ExportRequest) -> None:
    """Raise UsageError for an invalid export. Needs no database, so that invalid usage starts none."""
    check_request(request)
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


def check_request(request: ExportRequest) -> None:
    """Raise UsageError for an invalid export, to any destination."""
    if request.kind not in COLUMNS:
        raise UsageError(f"{request.kind!r} cannot be exported; choose one of: {', '.join(KINDS)}.")
    if request.text and request.kind != "pages":
        raise UsageError("A text is for pages only; nothing else has one.")
    if request.kind == "products" and request.job is not None:
        raise UsageError("Products belong to pages of a domain, not to a job; --domain chooses.")
    if request.domain is not None:
        canonical_domain(request.domain)


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports from one database."""

    database: Database
    registrable: bool = False
    archive: ArchiveReader = field(default_factory=lambda: ArchiveReader(None))
    """Texts are read from it if the database has not stored them."""
    missing: MissingTexts = field(default_factory=MissingTexts)
    """Texts that are not available, counted while rows are read."""

    def expected(self, request: ExportRequest) -> int | None:
        """Return an estimate of the number of rows; None: unknown. Raises NotFound."""
        with self.database.session() as connection:
            ids = self._ids(connection, request)
            if request.kind == "documents":
                return documents.count(connection, **ids)
            return exports.expected(connection, **ids).get(request.kind)

    def rows(self, request: ExportRequest) -> Generator[Row, None, None]:
        """Read every row, with the columns of its kind."""
        with self.database.session() as connection, Texts(self.archive, self.missing) as texts:
            ids = self._ids(connection, request)
            match request.kind:
                case "pages":
                    for stored in exports.pages(connection, text=request.text, **ids):
                        text = {"text": texts.read(stored)} if request.text else {}
                        yield as_row(stored.page) | text
                case "urls":
                    yield from map(as_row, exports.urls(connection, **ids))
                case "log":
                    yield from map(as_row, exports.log(connection, **ids))
                case "documents":
                    yield from map(_document_row, map(stored_document, documents.export(connection, **ids)))
                case "items":
                    for chunk in items.chunks(connection, **ids, parser=None, size=_ITEMS):
                        yield from (dict(zip(request.columns, as_row(item).values(), strict=True)) for item in chunk)
                case "links":
                    yield from map(as_row, exported_links(connection, **ids))
                case _:
                    yield from _products(connection, ids["domain_id"])

    def lines(self, request: ExportRequest) -> Iterator[str]:
        """Return lines of JSON in plain ASCII, without control characters for a terminal."""
        return (json.dumps(flat(row), default=json_default) + "\n" for row in self.rows(request))

    def write(self, file: str, request: ExportRequest) -> Generator[int, None, None]:
        """Write a file. Yields the number of rows so far, now and then and at the end.

        After: the file is complete and on the disk, or what was there before is unchanged.
        """
        check(file, request)
        rows = self.rows(request)
        target = AtomicFile(file)
        try:
            with target.reporting_errors(), closing(rows):
                yield from _drain(rows, _WRITERS[Path(file).suffix](target.stream, request.columns))
            target.complete()
        finally:
            target.discard()

    def stream(self, suffix: str, request: ExportRequest, stream: BinaryIO) -> Generator[int, None, None]:
        """Write to a stream that cannot seek. Yields the number of rows so far, now and then and at the end."""
        check_request(request)
        rows = self.rows(request)
        with closing(rows):
            yield from _drain(rows, _WRITERS[suffix](stream, request.columns))

    def _ids(self, connection: Connection, request: ExportRequest) -> dict[str, int | None]:
        """Return the ids of the job and the domain of a request. Raises NotFound."""
        job_id = None if request.job is None else jobs.find(connection, request.job)
        if request.domain is None:
            return {"job_id": job_id, "domain_id": None}
        name = canonical_domain(request.domain, registrable=self.registrable)
        return {"job_id": job_id, "domain_id": domains.id_of(connection, name)}


def as_row(record: object) -> Row:
    """Return the fields of a record as a row."""
    kind: Any = type(record)
    return {name: getattr(record, name) for name in names_of(kind)}


def _document_row(document: Document) -> Row:
    """A document with the fields that programs for texts expect: id, text, and the rest as metadata."""
    row = as_row(document)
    kept = {name: row.pop(name) for name in ("id", "text", "markdown")}
    headings = [as_row(heading) for heading in row.pop("headings")]
    row.pop("stored")
    return {**kept, _METADATA: {name: _plain(value) for name, value in row.items()}, _HEADINGS: headings}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return utc_text(value)
    return value.isoformat() if isinstance(value, date) else value


def _products(connection: Connection, domain_id: int | None) -> Iterator[Row]:
    after: Key | None = None
    while True:
        found = products.page(connection, ProductFilter(), domain_id=domain_id, after=after, limit=_PRODUCTS)
        for product in found.rows:
            rating = product.rating
            row = {name: getattr(product, name, None) for name in COLUMNS["products"]}
            row["price"] = None if product.price is None else f"{product.price:f}"
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
        """Nothing to finish: every line is complete."""

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
    """With a fixed schema; groups of rows are written when they are full."""

    def __init__(self, stream: BinaryIO, columns: Mapping[str, str]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        of_document = {
            name: kind for name, kind in _columns(Document).items() if name not in columns and name != "stored"
        }
        nested = {
            _TIME: pa.timestamp("us", tz="UTC"),
            _METADATA: pa.struct([(name, "string" if kind == _TIME else kind) for name, kind in of_document.items()]),
            _HEADINGS: pa.list_(
                pa.struct(
                    [
                        ("level", "int32"),
                        ("title", "string"),
                        ("path", pa.list_(pa.string())),
                        ("markdown_offset", "int32"),
                        ("text_offset", "int32"),
                    ]
                )
            ),
        }
        self._nested = frozenset(name for name, kind in columns.items() if kind in (_METADATA, _HEADINGS))
        self._schema = pa.schema([(name, nested.get(kind, kind)) for name, kind in columns.items()])
        self._table = pa.Table
        self._file = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._characters = 0

    def write(self, row: Row) -> None:
        row = {
            name: json.dumps(value) if isinstance(value, dict | list) and name not in self._nested else value
            for name, value in row.items()
        }
        self._rows.append(row)
        self._characters += len(row.get("text") or "")
        if len(self._rows) >= _GROUP_ROWS or self._characters >= _GROUP_TEXT:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._file.close()

    def give_up(self) -> None:
        self._file.is_open = False  # or its destructor would write the footer, to a file that is gone

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
    """Return a row as a line of JSON has it: the fields of an item first, then those of ours, which begin with `_`."""
    if _DATA not in row:
        return row
    return {**row[_DATA], **{name: value for name, value in row.items() if name != _DATA}}


def unflat(row: Row, columns: Mapping[str, str]) -> Row:
    """Return the row of a line of JSON: the inverse of `flat`."""
    if _DATA not in columns:
        return row
    ours = {name: row[name] for name in columns if name != _DATA}
    return {**ours, _DATA: {name: value for name, value in row.items() if name not in ours}}


def cell(value: object) -> object:
    """Return a value as a cell of a CSV file: times as ISO 8601, booleans as true and false, and no text that a spreadsheet would run."""
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
            text_since += len(row.get("text") or "") + (_REPORT_TEXT // _ITEMS if _DATA in row else 0)
            if rows_since >= _REPORT_ROWS or text_since >= _REPORT_TEXT:
                yield written
                rows_since = text_since = 0
        writer.end()
    except BaseException:
        writer.give_up()
        raise
    yield written
