"""Tables of other stores: read in pieces of blocks, in the order of the heap.

The rule: read only, and no snapshot stays open: a piece is one short statement. The position is the number of a block, so a table needs
no key, and a piece costs the same wherever it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from holdfast.backfill.records import COLUMNS, RawRow
from holdfast.db.connection import Connection
from holdfast.errors import NotFound, UsageError

BLOCKS: Final = 500
"""Blocks of a piece: 4 MB, some ten thousand rows."""

_FIND: Final = """
SELECT c.oid::bigint, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""
_LEAVES: Final = """
SELECT c.oid::bigint, n.nspname, c.relname, pg_relation_filenode(c.oid)::bigint AS filenode,
       pg_relation_size(c.oid) / current_setting('block_size')::bigint AS blocks
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid::regclass) WHERE isleaf))
ORDER BY c.oid
"""
_COLUMNS: Final = """
SELECT attname FROM pg_attribute WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_SERVER: Final = "SELECT system_identifier::text, current_database() FROM pg_control_system()"


@dataclass(frozen=True, slots=True)
class _Leaf:
    oid: int
    schema: str
    table: str
    filenode: int
    blocks: int


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of another store, perhaps in partitions."""

    connection: Connection
    schema: str
    table: str
    oid: int
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """Schema and table."""
        return f"{self.schema}.{self.table}"

    def identity(self) -> str:
        """The server, the database and the table, whatever address leads there."""
        server, database = self.connection.execute(_SERVER).fetchone() or ("", "")
        return f"table\n{server}\n{database}\n{self.schema}\n{self.table}"

    def blocks(self) -> int:
        """The size of the table, in blocks."""
        return sum(leaf.blocks for leaf in self._leaves())

    def is_rewritten(self, position: Mapping[str, Any]) -> bool:
        """Whether the table was rewritten (VACUUM FULL, CLUSTER) since this position, so that its blocks have other rows."""
        return all((leaf.oid, leaf.filenode) != (position["leaf"], position["filenode"]) for leaf in self._leaves())

    def pieces(
        self, names: Mapping[str, str], position: Mapping[str, Any] | None, rows_before: int
    ) -> Iterator[tuple[list[RawRow], dict[str, Any], int]]:
        """Yield pieces of rows with the position after each, and the blocks read. `names`: of its columns, by ours."""
        number, done = rows_before, 0
        for leaf in self._leaves():
            block = 0
            if position is not None:
                if leaf.oid < position["leaf"]:
                    done += leaf.blocks
                    continue
                if leaf.oid == position["leaf"]:
                    block = position["block"]
            query = _piece(leaf, names)
            while block < leaf.blocks:
                end = block + BLOCKS
                values = {"first": f"({block},0)", "end": f"({end},0)"}
                found = self.connection.execute(query, values, prepare=False).fetchall()
                rows = [RawRow(number + place, *row) for place, row in enumerate(found, 1)]
                number += len(rows)
                block = end
                place_after = {"leaf": leaf.oid, "block": block, "filenode": leaf.filenode}
                yield rows, place_after, done + min(block, leaf.blocks)
            done += leaf.blocks

    def _leaves(self) -> list[_Leaf]:
        return [_Leaf(*row) for row in self.connection.execute(_LEAVES, {"oid": self.oid})]


def find(connection: Connection, schema: str, table: str) -> SourceTable:
    """Find a table. Raises NotFound; UsageError if it is not a table."""
    row = connection.execute(_FIND, {"schema": schema, "table": table}).fetchone()
    if row is None:
        raise NotFound(f"There is no table {schema}.{table} in that database.")
    oid, kind = row
    if kind not in {"r", "p"}:
        raise UsageError(
            f"{schema}.{table} is not a table; export it as CSV: psql -c '\\copy (…) to log.csv csv header'."
        )
    columns: Sequence[Any] = connection.execute(_COLUMNS, {"oid": oid}).fetchall()
    return SourceTable(connection, schema, table, oid, tuple(name for (name,) in columns))


def read_only(connection: Connection) -> None:
    """Let this session write nothing."""
    connection.execute("SET default_transaction_read_only = on")


def _piece(leaf: _Leaf, names: Mapping[str, str]) -> sql.Composed:
    columns = [
        sql.SQL("{}::text").format(sql.Identifier(names[column])) if column in names else sql.SQL("NULL")
        for column in COLUMNS
    ]
    return sql.SQL("SELECT {columns} FROM ONLY {table} WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid").format(
        columns=sql.SQL(", ").join(columns), table=sql.Identifier(leaf.schema, leaf.table)
    )
