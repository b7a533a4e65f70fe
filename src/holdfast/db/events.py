"""Recent events of jobs, domains, tasks, workers and alerts, for subscribers.

The rule: triggers write, this module reads. Events get their ids before their transactions commit, so a reader orders by transaction:
it reads up to the oldest transaction that is still open, in the order of transactions. So no subscriber misses an event, and none gets
one twice. (A transaction that writes for seconds delays the events after it for as long.)
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import psycopg

from holdfast.db import periodic_locks
from holdfast.errors import UsageError

KEPT: Final = timedelta(days=1)
CHUNK: Final = 5_000

_WRITTEN: Final = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,18})", re.ASCII)
_LAST_XID: Final = 2**64 - 1
_LAST_ID: Final = 2**63 - 1

_READ: Final = """
SELECT xid::text::numeric, id, at, kind, job_id, domain_id, domain, data FROM events
WHERE (xid, id) > (%(xid)s::text::xid8, %(id)s::bigint) AND xid < pg_snapshot_xmin(pg_current_snapshot())
"""
_ORDER: Final = " ORDER BY events.xid, events.id LIMIT %(limit)s"
"""Orders by the columns, not by the expressions selected above."""
_FILTERS: Final = {
    "kinds": " AND kind = ANY(%(kinds)s)",
    "job_id": " AND job_id = %(job_id)s",
    "domain_id": " AND domain_id = %(domain_id)s",
}
_HEAD: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_snapshot_xmax(pg_current_snapshot())::text"
# A database that was restored has events of transactions that its server has not come to yet.
_FOREIGN: Final = "DELETE FROM events WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"
_TRIM: Final = """
WITH first AS MATERIALIZED (
    SELECT xid, id, at FROM events ORDER BY xid, id LIMIT %(chunk)s
), gone AS (
    DELETE FROM events e USING first f WHERE e.xid = f.xid AND e.id = f.id AND f.at < clock_timestamp() - %(kept)s::interval
    RETURNING e.xid, e.id
)
SELECT xid::text, id, count(*) OVER () FROM gone ORDER BY xid DESC, id DESC LIMIT 1
"""


class Kind(StrEnum):
    """What an event is about."""

    JOB = "job"
    DOMAIN = "domain"
    TASK = "task"
    ALERT = "alert"
    WORKER = "worker"


class Cursor(NamedTuple):
    """A position in the event stream: after the event with these numbers."""

    xid: int = 0
    id: int = 0

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor. Raises UsageError for a text that is none."""
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > _LAST_XID or int(found[2]) > _LAST_ID:
            raise UsageError("A place among events is two numbers such as 1042-17, as an event has said them.")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Event:
    """An event."""

    cursor: Cursor
    """Its position: a reader that continues from there has seen it."""
    at: datetime
    kind: Kind
    job_id: int | None
    domain_id: int | None
    domain: str | None
    data: dict[str, Any]
    """The change: what, from, to, why. Texts from the web or from users are plain text, never markup."""


def latest_cursor(connection: psycopg.Connection) -> Cursor:
    """The cursor at which a new subscriber begins: after every finished transaction."""
    return _visible_range(connection)[0]


def oldest_cursor(connection: psycopg.Connection) -> Cursor:
    """The cursor after which all events are still stored. A subscriber with an earlier cursor may have missed some."""
    mark = periodic_locks.load_position(connection, periodic_locks.TRIM)
    return Cursor.parse(mark) if mark else Cursor()


def has_gap(connection: psycopg.Connection, after: Cursor) -> bool:
    """Whether a subscriber at `after` may have missed events, and has to reload everything.

    Either it was disconnected for too long, or its cursor is from before the database was restored.
    """
    return after < oldest_cursor(connection) or after > _visible_range(connection)[1]


def read(
    connection: psycopg.Connection,
    after: Cursor,
    *,
    limit: int = 500,
    kinds: Collection[Kind] | None = None,
    job_id: int | None = None,
    domain_id: int | None = None,
) -> list[Event]:
    """Up to `limit` events after the cursor, in order; optionally of these kinds, this job or this domain."""
    filters = {"kinds": None if kinds is None else sorted(kinds), "job_id": job_id, "domain_id": domain_id}
    where = "".join(clause for name, clause in _FILTERS.items() if filters[name] is not None)
    values = {**filters, "xid": str(after.xid), "id": after.id, "limit": limit}
    rows = connection.execute(f"{_READ}{where}{_ORDER}", values)
    return [
        Event(Cursor(int(xid), number), at, Kind(kind), job, home, domain, data)
        for xid, number, at, kind, job, home, domain, data in rows
    ]


def trim(connection: psycopg.Connection, *, chunk: int = CHUNK) -> int:
    """Delete a chunk of events older than `KEPT`; returns how many. Before: the caller holds the periodic lock `TRIM`."""
    beginning, end = _visible_range(connection)
    before = oldest_cursor(connection)
    if before > end:
        before = beginning
        periodic_locks.save_position(connection, periodic_locks.TRIM, str(before))
    connection.execute(_FOREIGN)
    row = connection.execute(_TRIM, {"chunk": chunk, "kept": KEPT}).fetchone()
    if row is None:
        return 0
    xid, number, count = row
    periodic_locks.save_position(connection, periodic_locks.TRIM, str(max(before, Cursor(int(xid), number))))
    return int(count)


def _visible_range(connection: psycopg.Connection) -> tuple[Cursor, Cursor]:
    """The cursor after all finished transactions, and the one before all that have not begun."""
    row = connection.execute(_HEAD).fetchone()
    assert row is not None  # noqa: S101 — a function has a value
    return Cursor(int(row[0])), Cursor(int(row[1]))
