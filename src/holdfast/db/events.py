"""What happened lately to jobs, domains, tasks, workers and alerts, for whoever listens.

The rule: triggers write, this file reads. Numbers are given to events before their transactions commit, so a reader goes by transactions:
it reads what every transaction up to there has decided about, in the order of transactions, and a slow one is waited for. So no listener
misses an event, and none gets one twice. (A transaction that writes for seconds holds back what came after it, for as long.)
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import psycopg

from holdfast.errors import UsageError
from holdfast.store import duties

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
"""Of the columns, not of what is made of them above."""
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
    """A place between events: behind the one with these numbers."""

    xid: int = 0
    id: int = 0

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The place that somebody names. Raises UsageError for what no list of events has said."""
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > _LAST_XID or int(found[2]) > _LAST_ID:
            raise UsageError("A place among events is two numbers such as 1042-17, as an event has said them.")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    cursor: Cursor
    """Its own place: who goes on from there has seen it."""
    at: datetime
    kind: Kind
    job_id: int | None
    domain_id: int | None
    domain: str | None
    data: dict[str, Any]
    """What, from what to what, why. What the web or people wrote in it is text, never markup."""


def head(connection: psycopg.Connection) -> Cursor:
    """Where a new listener begins: behind everything that is over."""
    return _ends(connection)[0]


def oldest(connection: psycopg.Connection) -> Cursor:
    """What lies behind this place is still there. A listener that was last at an earlier one has missed something, or may have."""
    mark = duties.marked(connection, duties.TRIM)
    return Cursor.parse(mark) if mark else Cursor()


def missed(connection: psycopg.Connection, after: Cursor) -> bool:
    """Whether a listener that was last at `after` may have missed something, and has to look at everything anew.

    Either it was away for too long, or its place is of another life of this database, as before it was restored.
    """
    return after < oldest(connection) or after > _ends(connection)[1]


def read(
    connection: psycopg.Connection,
    after: Cursor,
    *,
    limit: int = 500,
    kinds: Collection[Kind] | None = None,
    job_id: int | None = None,
    domain_id: int | None = None,
) -> list[Event]:
    """The next events behind `after`, in their order, of these kinds, this job or domain if any are named."""
    given = {"kinds": None if kinds is None else sorted(kinds), "job_id": job_id, "domain_id": domain_id}
    where = "".join(clause for name, clause in _FILTERS.items() if given[name] is not None)
    values = {**given, "xid": str(after.xid), "id": after.id, "limit": limit}
    rows = connection.execute(f"{_READ}{where}{_ORDER}", values)
    return [
        Event(Cursor(int(xid), number), at, Kind(kind), job, home, domain, data)
        for xid, number, at, kind, job, home, domain, data in rows
    ]


def trim(connection: psycopg.Connection, *, chunk: int = CHUNK) -> int:
    """Delete events that are too old, a chunk of them; how many. Before: the duty `trim` is ours."""
    beginning, end = _ends(connection)
    before = oldest(connection)
    if before > end:
        before = beginning
        duties.mark(connection, duties.TRIM, str(before))
    connection.execute(_FOREIGN)
    row = connection.execute(_TRIM, {"chunk": chunk, "kept": KEPT}).fetchone()
    if row is None:
        return 0
    xid, number, count = row
    duties.mark(connection, duties.TRIM, str(max(before, Cursor(int(xid), number))))
    return int(count)


def _ends(connection: psycopg.Connection) -> tuple[Cursor, Cursor]:
    """The place behind all that is over, and the one before all that has not begun."""
    row = connection.execute(_HEAD).fetchone()
    assert row is not None  # noqa: S101 — a function has a value
    return Cursor(int(row[0])), Cursor(int(row[1]))
