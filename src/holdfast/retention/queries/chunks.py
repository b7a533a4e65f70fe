"""SQL of chunks: rows of several tables that are read for an archive, compared again, and deleted.

The rule: a chunk is read by one snapshot, together with a print of each row (its place and the transaction that wrote it). The transaction
that deletes it locks what could change it, compares the prints, and writes the archive's row. If anything differs nothing happens, and the
chunk is read again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

import psycopg

from holdfast.retention.records import ArchiveFile

BYTES: Final = 32 * 1024 * 1024
"""What the values of a chunk's wide columns take in the store, at most, unless one key has more: so that pages with long texts fit into the
memory."""
_KINDS: Final = {
    "smallint": "int",
    "integer": "int",
    "bigint": "int",
    "boolean": "bool",
    "real": "float",
    "double precision": "float",
    "bytea": "bytes",
    "timestamp with time zone": "time",
    "date": "date",
}
_COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
# Keys of a chunk are few, tables are large, and their statistics may be of a time when they were small.
_PLANNER: Final = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off"
_PRINT: Final = "hashtextextended(t.ctid::text || ' ' || t.xmin::text, 0)"
_BEGIN: Final = """
INSERT INTO archives (kind, job_id, source, revision, place)
VALUES (%(kind)s, %(job)s, %(source)s, (SELECT version_num FROM schema_version), %(place)s)
ON CONFLICT (kind, source) WHERE source IS NOT NULL AND state IN ('writing', 'complete') DO UPDATE SET started_at = clock_timestamp()
WHERE archives.state = 'writing' AND archives.place = excluded.place RETURNING id
"""
_ADD_FILE: Final = """
INSERT INTO archive_files (archive_id, number, table_name, key, rows, bytes, sha256, mark)
VALUES (%(archive)s, %(number)s, %(table)s, %(key)s, %(rows)s, %(bytes)s, %(sha256)s, %(mark)s)
"""
_COMPLETE: Final = """
UPDATE archives SET state = 'complete', completed_at = clock_timestamp(), rows = %(rows)s, first_at = %(first)s, last_at = %(last)s
WHERE id = %(archive)s AND state = 'writing'
"""
_INTERRUPTED: Final = "SELECT id, kind, place, source FROM archives WHERE state = 'writing' ORDER BY id"
_FORGET: Final = "DELETE FROM archives WHERE id = %(archive)s AND state = 'writing'"


class Column(NamedTuple):
    """A column of an archived table."""

    name: str
    kind: str
    """`int`, `bool`, `float`, `bytes`, `time`, `date`; `text` for all other types, as PostgreSQL writes them."""


class InterruptedArchive(NamedTuple):
    """An archive that a run began and did not complete; its rows are in the store."""

    id: int
    kind: str
    place: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one table that belong to the keys of a chunk."""

    table: LiteralString
    on: LiteralString
    """Joins the table (`t`) with the keys (`k`)."""
    time: LiteralString | None = None
    """The column with the time of a row, of the table that the time of the archive is taken from."""
    wide: LiteralString | None = None
    """The column whose values may be long."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a chunk: columns with their types, and a value of each for every key."""

    types: Mapping[LiteralString, LiteralString]
    values: Mapping[str, Sequence[Any]]
    job_id: int | None = None

    def source(self) -> LiteralString:
        """The keys as a table `k` of a FROM clause, with their `place`, counted from 1."""
        arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in self.types.items())
        return f"unnest({arrays}) WITH ORDINALITY AS k({', '.join(self.types)}, place)"

    def first(self, count: int) -> "Keys":
        """The first `count` keys."""
        return replace(self, values={name: values[:count] for name, values in self.values.items()})

    def parameters(self) -> dict[str, Any]:
        """The parameters of `source`, and `job`."""
        return {**self.values, "job": self.job_id}

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Rows of a table, as read for an archive."""

    part: Part
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    prints: int
    """The sum of the prints of the rows."""
    first_at: datetime | None
    last_at: datetime | None


def columns_of(connection: psycopg.Connection, table: str) -> tuple[Column, ...]:
    """Return the columns of a table, without those that are computed."""
    found = connection.execute(_COLUMNS, {"table": table}).fetchall()
    return tuple(Column(name, _KINDS.get(kind, "text")) for name, kind in found)


@contextmanager
def snapshot(connection: psycopg.Connection) -> Iterator[None]:
    """A transaction that reads one snapshot. Before: none is open."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(_PLANNER)
        yield


def fitting(connection: psycopg.Connection, parts: Sequence[Part], keys: Keys) -> Keys:
    """Return the first of these keys whose rows take `BYTES` together at most, and one at least. Before: no transaction is open.

    What is compressed or stored apart is not read for it.
    """
    sizes: LiteralString = " UNION ALL ".join(
        f"SELECT k.place, pg_column_size(t.{part.wide}) AS bytes FROM {keys.source()} JOIN {part.table} t ON {part.on}"  # noqa: S608 — constants
        for part in parts
        if part.wide
    )
    if not sizes:
        return keys
    query = f"""
        SELECT min(place) FROM (SELECT place, sum(sum(bytes)) OVER (ORDER BY place) AS bytes FROM ({sizes}) s GROUP BY place) r
        WHERE bytes > %(bytes)s
    """  # noqa: S608 — constants
    with snapshot(connection):
        row = connection.execute(query, keys.parameters() | {"bytes": BYTES}, prepare=False).fetchone()
    return keys if row is None or row[0] is None else keys.first(max(1, row[0] - 1))


def read(connection: psycopg.Connection, parts: Sequence[Part], keys: Keys) -> Iterator[ReadPart]:
    """Yield the rows of each table that belong to the keys. Before: a `snapshot` is open."""
    for part in parts:
        columns = columns_of(connection, part.table)
        time = f"t.{part.time}" if part.time else "NULL::timestamptz"
        wanted = ", ".join([*map(expression, columns), time, _PRINT])
        query = f"SELECT {wanted} FROM {keys.source()} JOIN {part.table} t ON {part.on}"  # noqa: S608 — of constants and our own columns
        rows = connection.execute(query, keys.parameters()).fetchall()
        times = [row[-2] for row in rows if row[-2] is not None]
        yield ReadPart(
            part,
            columns,
            [row[:-2] for row in rows],
            sum(row[-1] for row in rows),
            min(times, default=None),
            max(times, default=None),
        )


def expression(column: Column) -> str:
    """The column of a table `t` as it is archived."""
    name = f't."{column.name}"'
    if column.kind == "time":
        return f"CASE WHEN isfinite({name}) THEN {name} END"
    return name if column.kind != "text" else f"{name}::text"


def is_unchanged(connection: psycopg.Connection, found: Sequence[ReadPart], keys: Keys) -> bool:
    """Whether the rows of the keys are those that were read. Before: a transaction is open, and holds the locks of all who change them."""
    connection.execute(_PLANNER)
    for one in found:
        query = f"""
            SELECT count(*), COALESCE(sum({_PRINT}::numeric), 0) FROM {keys.source()} JOIN {one.part.table} t ON {one.part.on}
        """  # noqa: S608 — of constants
        row = connection.execute(query, keys.parameters()).fetchone()
        if row is None or (row[0], int(row[1])) != (len(one.rows), one.prints):
            return False
    return True


def delete(connection: psycopg.Connection, part: Part, keys: Keys) -> int:
    """Delete the rows of a table that belong to the keys; return how many. Before: as `is_unchanged`."""
    query = f"DELETE FROM {part.table} t USING {keys.source()} WHERE {part.on}"  # noqa: S608 — of constants
    return connection.execute(query, keys.parameters()).rowcount


# The manifest ---------------------------------------------------------------------------------------------------------


def begin(
    connection: psycopg.Connection, kind: str, *, place: str, job_id: int | None = None, source: str | None = None
) -> int:
    """Note that an archive is being written, and return its id. Before: no other archive of this source is complete. One that an
    interrupted run began of it is taken."""
    row = connection.execute(_BEGIN, {"kind": kind, "job": job_id, "source": source, "place": place}).fetchone()
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return int(row[0])


def add_file(
    connection: psycopg.Connection, archive_id: int, number: int, file: ArchiveFile, mark: str | None = None
) -> None:
    """Note a file of an archive. Before: it is in its place."""
    values = {"archive": archive_id, "number": number, "table": file.table_name, "key": file.key, "rows": file.rows}
    connection.execute(_ADD_FILE, values | {"bytes": file.bytes, "sha256": bytes.fromhex(file.sha256), "mark": mark})


def complete(
    connection: psycopg.Connection, archive_id: int, *, rows: int, first: datetime | None, last: datetime | None
) -> bool:
    """Complete an archive; False if it is not being written any more. Before: the open transaction deletes what it holds."""
    values = {"archive": archive_id, "rows": rows, "first": first, "last": last}
    return connection.execute(_COMPLETE, values).rowcount == 1


def interrupted(connection: psycopg.Connection) -> list[InterruptedArchive]:
    """Return the archives that a run began and did not complete. Before: this process holds the lock of runs."""
    return [InterruptedArchive(*row) for row in connection.execute(_INTERRUPTED)]


def forget(connection: psycopg.Connection, archive_id: int) -> None:
    """Delete the row of an archive that was not completed. Before: it has no files any more; its rows are in the store."""
    connection.execute(_FORGET, {"archive": archive_id})
