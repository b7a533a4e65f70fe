"""SQL of the audit log: its list."""

from datetime import datetime
from typing import Final

import psycopg

from holdfast.db.audit import Entry
from holdfast.db.keyset_pagination import Equals, Listing, Order, Range, SortColumn

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
_AT_ONCE: Final = 1_000
"""Deeds that may be under way in the same moment: their ids and times need not be in the same order."""


def audit_between(connection: psycopg.Connection, since: datetime | None, until: datetime | None) -> dict[str, object]:
    """Filters for the deeds of a time: by it, and by the ids that lie in it, so that no others are looked at."""
    given: dict[str, object] = {}
    for name, at, query, bound in (("since", since, _FROM, "from_id"), ("until", until, _TO, "to_id")):
        if at is not None:
            row = connection.execute(query, {"at": at, "many": _AT_ONCE}).fetchone()
            # None: there is no such deed.
            beyond = row[0] if row and row[0] is not None else (2**62 if bound == "from_id" else 0)
            given |= {name: at, bound: beyond}
    return given
