"""Files of rows: CSV (plain or gzip) and Parquet, with the columns that rows of history may have.

The rule: memory does not grow with the file. A line that cannot be read is a `BadRow` with its number.
"""

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.backfill.records import COLUMNS, BadRow, RawRow
from holdfast.control.input_files import Damaged, lines
from holdfast.errors import UsageError

MAX_LINE: Final = 64 * 1024
_BATCH: Final = 20_000
_DELIMITERS: Final = (",", "\t", ";", "|")

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "domain": ("domain", "source_domain", "host", "hostname", "site"),
    "page_url": ("page_url", "source_page_url", "url", "page"),
    "status": ("status", "status_code", "http_status", "http_status_code"),
    "images_found": ("images_found", "images", "images_count"),
    "crawled_at": ("crawled_at", "fetched_at", "timestamp", "time", "date", "created_at"),
    "image_id": ("image_id",),
}
"""Names under which a column is found without being named."""

NOT_UTF8: Final = "not UTF-8"
MISSING_COLUMNS: Final = "too few columns"
LONG_LINE: Final = "line too long"
BAD_CSV: Final = "not a line of CSV"


class Layout:
    """Which column of a source is which of `COLUMNS`."""

    def __init__(self, names: Sequence[str], mapping: Mapping[str, str], source: str) -> None:
        """`mapping`: names that were given, by column. Raises UsageError if a column that is needed is missing."""
        lowered = [name.strip().strip('"').lower() for name in names]
        self.places: dict[str, int] = {}
        for column, aliases in ALIASES.items():
            given = mapping.get(column)
            wanted = (given.lower(),) if given is not None else aliases
            place = next((lowered.index(name) for name in wanted if name in lowered), None)
            if place is not None:
                self.places[column] = place
            elif given is not None:
                raise UsageError(f"{source} has no column {given!r} for {column}; it has: {', '.join(names)[:500]}.")
        if "domain" not in self.places and "page_url" not in self.places:
            raise UsageError(
                f"{source} has no column with a domain or a URL; it has: {', '.join(names)[:500]}. "
                "Name one: --map domain=COLUMN or --map page_url=COLUMN."
            )
        self.is_provenance = "image_id" in self.places and "status" not in self.places
        """Rows say on which domain an image was seen, not what was crawled."""
        if not self.is_provenance:
            self.places.pop("image_id", None)
        self.names = {column: names[place] for column, place in self.places.items()}
        """The names of its columns, as the source writes them."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Optional columns that the source does not have."""
        optional = ("domain", "page_url") if self.is_provenance else COLUMNS[:-1]
        return tuple(column for column in optional if column not in self.places)

    @property
    def notes(self) -> list[str]:
        """A sentence about columns that are missing."""
        effects = {
            "domain": "the domain is that of the URL",
            "page_url": "new domains are assumed to speak https",
            "status": "no row counts as a page or as an error",
            "images_found": "no images are counted",
            "crawled_at": "new domains have no time of a crawl",
        }
        return [f"There is no column {column}: {effects[column]}." for column in self.missing]


def check_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `--map column=name`. Raises UsageError."""
    mapping = {}
    for pair in pairs:
        column, equals, name = pair.partition("=")
        if not equals or column not in COLUMNS or not name:
            raise UsageError(f"--map is COLUMN=NAME with a COLUMN of {', '.join(COLUMNS)}, not {pair!r}.")
        mapping[column] = name
    return mapping


class CsvRows:
    """The rows of a CSV file, whose first line names the columns. A row is a line: fields with line ends in them are not supported."""

    def __init__(self, file: "io.BufferedReader[Any]", mapping: Mapping[str, str], source: str) -> None:
        self._lines = lines(file, MAX_LINE)
        try:
            first = next(self._lines, b"")
            head = first.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UsageError(f"{source} is not UTF-8 text; it takes CSV with a line of names.") from None
        except Damaged as problem:
            raise UsageError(f"{source} cannot be read: {problem}.") from problem
        if not head.strip():
            what = "begins with an empty line" if first else "is empty"
            raise UsageError(
                f"{source} {what}; the first line must name the columns, such as domain,status,crawled_at."
            )
        if "\0" in head:
            raise UsageError(f"{source} is not text; it takes CSV with a line of names.")
        if head.startswith(("{", "[")):
            raise UsageError(
                f"{source} is JSON, which is not read; convert it to CSV with a line of names, or to Parquet."
            )
        self._delimiter = max(_DELIMITERS, key=head.count)
        names = next(csv.reader([head], delimiter=self._delimiter), [])
        self.layout = Layout(names, mapping, source)
        self._width = len(names)

    def rows(self, after: int) -> Iterator[RawRow | BadRow]:
        """Yield the rows after the first `after` ones. Raises Damaged."""
        places = [self.layout.places.get(column, -1) for column in COLUMNS]
        last = max(places)
        delimiter = self._delimiter
        for _ in itertools.islice(self._lines, after):
            pass
        for number, line in enumerate(self._lines, after + 2):  # the first line has the names
            try:
                text = line.decode()
            except UnicodeDecodeError:
                yield BadRow(number, NOT_UTF8, "The line is not UTF-8 text.")
                continue
            if len(line) >= MAX_LINE:
                yield BadRow(number, LONG_LINE, f"The line has more than {MAX_LINE:,} bytes.")
                continue
            text = text.rstrip("\r\n")
            if '"' in text:
                try:
                    fields = next(csv.reader([text], delimiter=delimiter, strict=True), [])
                except csv.Error as problem:
                    yield BadRow(number, BAD_CSV, f"The line is not CSV: {problem}.")
                    continue
            else:
                fields = text.split(delimiter)
            if len(fields) <= last:
                yield BadRow(number, MISSING_COLUMNS, f"The line ends before column {last + 1}.")
                continue
            yield RawRow(number, *[fields[place].strip() if place >= 0 else None for place in places])


class ParquetRows:
    """The rows of a Parquet file."""

    def __init__(self, path: Path, mapping: Mapping[str, str], source: str) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._errors = (pa.ArrowException, OSError)
        try:
            self._file = parquet.ParquetFile(path)
        except self._errors as problem:
            raise UsageError(f"{source} is not a Parquet file: {_first_line(problem)}.") from problem
        self.layout = Layout(self._file.schema_arrow.names, mapping, source)
        self.size: int = self._file.metadata.num_rows

    def rows(self, after: int) -> Iterator[RawRow | BadRow]:
        """Yield the rows after the first `after` ones. Raises Damaged."""
        groups, before = self._groups(after)
        names = self.layout.names
        number = before
        try:
            for batch in self._file.iter_batches(_BATCH, row_groups=groups, columns=sorted(set(names.values()))):
                if number + batch.num_rows <= after:
                    number += batch.num_rows
                    continue
                columns = [
                    batch.column(names[column]).to_pylist() if column in names else itertools.repeat(None)
                    for column in COLUMNS
                ]
                numbers = range(number + 1, number + batch.num_rows + 1)
                for values in zip(numbers, *columns, strict=False):
                    if values[0] > after:
                        yield RawRow(*values)
                number += batch.num_rows
        except self._errors as problem:
            raise Damaged(_first_line(problem)) from problem

    def _groups(self, after: int) -> tuple[list[int], int]:
        """The groups of rows that have any after the first `after` ones, and the rows before them."""
        before = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if before + rows > after:
                return list(range(group, self._file.num_row_groups)), before
            before += rows
        return [], before


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0].rstrip(". ")[:200]
