"""Files of archived rows: Parquet (zstd) or CSV (gzip), written and read.

The rule: a file has every column of its table, and reads back as the rows that were written. Numbers, times and bytes have types of their
own in Parquet; all other types are as PostgreSQL writes them, in both formats.
"""

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.retention.queries.chunks import Column

SUFFIX: Final = {"parquet": ".parquet", "csv": ".csv.gz"}
_GROUP_ROWS: Final = 20_000
_BATCH_ROWS: Final = 1_000
"""Read at once: few, as their texts may be long."""
_BLOCK: Final = 1 << 16
_NULL: Final = "\\N"


def write(path: Path, columns: Sequence[Column], rows: Sequence[Sequence[Any]], format_: str) -> None:
    """Write rows to a new file. Raises OSError."""
    if format_ == "csv":
        _write_csv(path, columns, rows)
        return
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {
        "int": pa.int64(),
        "bool": pa.bool_(),
        "float": pa.float64(),
        "bytes": pa.binary(),
        "time": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "text": pa.string(),
    }
    schema = pa.schema([(column.name, kinds[column.kind]) for column in columns])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, max(len(rows), 1), _GROUP_ROWS):
            group = rows[start : start + _GROUP_ROWS]
            arrays = [pa.array([row[place] for row in group], type=field.type) for place, field in enumerate(schema)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def read_parquet(path: Path) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the names of the columns of a Parquet file, and its rows."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path)

    def rows() -> Iterator[tuple[Any, ...]]:
        for batch in file.iter_batches(_BATCH_ROWS):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return list(file.schema_arrow.names), rows()


def read_csv(path: Path) -> tuple[list[str], Iterator[tuple[str | None, ...]]]:
    """Return the names of the columns of a CSV file, and its rows as PostgreSQL reads them."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        names = next(csv.reader(file))

    def rows() -> Iterator[tuple[str | None, ...]]:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            for row in reader:
                yield tuple(None if cell == _NULL else cell.removeprefix("\\") for cell in row)

    return names, rows()


def read(path: Path) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the names of the columns of a file of either format, and its rows."""
    return read_csv(path) if path.name.endswith(SUFFIX["csv"]) else read_parquet(path)


def _write_csv(path: Path, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    with (
        path.open("xb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="", write_through=True) as text,
    ):
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow([column.name for column in columns])
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> str:
    r"""A value as a cell: null is \N, and a text that begins with a backslash has one more."""
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        return f"\\\\x{value.hex()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return f"\\{text}" if text.startswith("\\") else text
