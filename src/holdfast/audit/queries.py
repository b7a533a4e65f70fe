"""SQL of the audit log: its list."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import psycopg

from holdfast.audit.records import AuditFilter, Entry
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, SortColumn

_DOWN: Final = (SortColumn("t.id", int, descending=True),)
_UP: Final = (SortColumn("t.id", int),)
AUDIT: Final = Listing(
    "audit_log",
    "t.id, t.at, t.actor, t.action, t.object_kind, t.object_id, t.details",
    Entry,
    {
        "actor": Equals("t.actor", "%(actor)s::text"),
        "kind": Equals("t.object_kind", "%(kind)s::text"),
        "object_id": Equals("t.object_id", "%(object_id)s::text"),
        "action": "t.action = %(action)s",
        "since": "t.at >= %(since)s::timestamptz",
        "until": "t.at < %(until)s::timestamptz",
        "from_id": Range("t.id", at_least="%(from_id)s::bigint"),
        "to_id": Range("t.id", below="%(to_id)s::bigint + 1"),
    },
    {
        "newest": Order(_DOWN, (("kind", "object_id"), ("actor",), ()), frozenset({"from_id", "to_id"})),
        "oldest": Order(_UP, (("kind", "object_id"), ("actor",), ()), frozenset({"from_id", "to_id"})),
    },
    selective=frozenset({"actor", "kind", "since", "until"}),
)
_FROM: Final = "SELECT min(id) FROM (SELECT id FROM audit_log WHERE at >= %(at)s ORDER BY at LIMIT %(many)s) first"
_TO: Final = "SELECT max(id) FROM (SELECT id FROM audit_log WHERE at < %(at)s ORDER BY at DESC LIMIT %(many)s) last"
_CONCURRENT: Final = 1_000
"""Transactions that may run at the same time: the ids and the times of their entries need not be in the same order."""


def page(
    connection: psycopg.Connection,
    where: AuditFilter,
    filters: Mapping[str, object],
    *,
    order: str = "newest",
    after: Key | None = None,
    limit: int = 100,
) -> Page[Entry]:
    """Return one page of entries; `filters` are those of `where`."""
    bounds = _id_bounds(connection, where.since, where.until)
    return AUDIT.page(connection, {**filters, **bounds}, order=order, after=after, limit=limit)


def _id_bounds(connection: psycopg.Connection, since: datetime | None, until: datetime | None) -> dict[str, object]:
    """Return filters by the ids of the entries in a time span, so that no others are read."""
    bounds: dict[str, object] = {}
    for at, query, bound in ((since, _FROM, "from_id"), (until, _TO, "to_id")):
        if at is not None:
            row = connection.execute(query, {"at": at, "many": _CONCURRENT}).fetchone()
            # Without an entry in the span, a bound that excludes all.
            bounds[bound] = row[0] if row and row[0] is not None else (2**62 if bound == "from_id" else 0)
    return bounds
