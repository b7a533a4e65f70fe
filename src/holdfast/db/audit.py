"""Entries of the audit log: which user or program created or changed what, when.

The rule: an entry is written in the transaction of its change, and is never changed itself. Without a change there is no entry.
"""

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast.audit.records import Entry
from holdfast.db.rows import by_name

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


def write(
    connection: psycopg.Connection,
    *,
    actor: str,
    action: str,
    kind: str,
    object_id: object,
    details: Mapping[str, object] | None = None,
) -> None:
    """Write an entry. Before: the transaction of the change is open. `details` can be encoded as JSON."""
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
    """Return entries, the newest first; `before` is the last id of the page before. `object_id` needs `kind`."""
    given = {"actor": actor, "kind": kind, "object_id": object_id}
    where = "".join(clause for name, clause in _FILTERS.items() if given[name] is not None)
    query = f"{_READ}{where} ORDER BY id DESC LIMIT %(limit)s"
    with connection.cursor(row_factory=by_name(Entry)) as cursor:
        keys = {**given, "before": _NEWEST if before is None else before, "limit": limit}
        return cursor.execute(query, keys).fetchall()
