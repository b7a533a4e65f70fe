"""Who created or changed what, when.

The rule: a row is written in the transaction that does the deed, and is never changed. What changed nothing leaves none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

_WRITE: Final = """
INSERT INTO audit_log (actor, action, object_kind, object_id, details)
VALUES (left(%(actor)s, 100), %(action)s, %(kind)s, %(object)s, %(details)s)
"""
_READ: Final = "SELECT id, at, actor, action, object_kind, object_id, details FROM audit_log WHERE id < %(before)s"
_FILTERS: Final = {
    "actor": " AND actor = %(actor)s",
    "kind": " AND object_kind = %(kind)s",
    "object_id": " AND object_id = %(object_id)s",
}
_NEWEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One deed."""

    id: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


def write(
    connection: psycopg.Connection,
    *,
    actor: str,
    action: str,
    kind: str,
    object_id: object,
    details: Mapping[str, object] | None = None,
) -> None:
    """Record a deed. Before: the transaction that does it is open. `details` are of what JSON knows."""
    values = {"actor": actor, "action": action, "kind": kind, "object": str(object_id), "details": Jsonb(details or {})}
    connection.execute(_WRITE, values)


def listing(
    connection: psycopg.Connection,
    *,
    actor: str | None = None,
    kind: str | None = None,
    object_id: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[Entry]:
    """Deeds, the newest first; `before` is the id of the last one seen. An object's id means something with its kind only."""
    given = {"actor": actor, "kind": kind, "object_id": object_id}
    where = "".join(clause for name, clause in _FILTERS.items() if given[name] is not None)
    query = f"{_READ}{where} ORDER BY id DESC LIMIT %(limit)s"
    with connection.cursor(row_factory=class_row(Entry)) as cursor:
        keys = {**given, "before": _NEWEST if before is None else before, "limit": limit}
        return cursor.execute(query, keys).fetchall()
