"""Several queries as one statement, for pages that are read twice a second: one round trip, and all figures are of the same moment.

The rule: the queries stay as they are, and the columns of each have different names. Each is a subselect whose rows are JSON objects, read
back as records.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import psycopg
from pydantic import TypeAdapter

T = TypeVar("T")
JsonRows = list[dict[str, Any]]
"""The rows of one of the queries, by column: what JSON has no type for is text."""


def fetch_combined(
    connection: psycopg.Connection, queries: Mapping[str, str], values: Mapping[str, object]
) -> dict[str, JsonRows]:
    """Execute these queries (by name) with the same values as one statement; the rows of each, in its order."""
    rows = "(SELECT COALESCE(json_agg(q), '[]') FROM ({}) q) AS {}"
    columns = ", ".join(rows.format(query, name) for name, query in queries.items())
    row = connection.execute(f"SELECT {columns}", values).fetchone()
    assert row is not None  # noqa: S101 — a SELECT without a table answers with a row
    return dict(zip(queries, row, strict=True))


def as_record(kind: type[T], row: Mapping[str, object]) -> T:
    """Return a row as a record; columns that are no fields are left alone."""
    known: Any = kind
    made: T = _adapter(known).validate_python(row)
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
