"""SQL of a job's log: what happened to it, the newest first, from the audit log, its crawls, and the events of the last day.

The rule: each source is read from its own position by an index, and the sources are merged by time, so that a page costs the same
wherever it is. A position is the number of the last entry that was shown.
"""

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import UsageError

_FIRST: Final = 2**62
KEY_TYPES: Final = (int, int, int, int, int)
"""Of a key: the last entry of the audit log, of crawls (twice its id, one more for its end), of events (transaction and id), and whether
the creation is still to come."""

# Creating the job is shown by its own row.
_AUDIT: Final = """
SELECT id, at, actor, action, details FROM (
    (SELECT id, at, actor, action, details FROM audit_log
     WHERE object_kind = 'job' AND object_id = %(job)s::text AND id < %(audit)s AND action <> 'create' ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id, at, actor, action, details FROM audit_log
     WHERE object_kind = 'frontier' AND object_id = %(job)s::text AND id < %(audit)s ORDER BY id DESC LIMIT %(limit)s)) found
ORDER BY id DESC LIMIT %(limit)s
"""
_CRAWLS: Final = """
SELECT id, started_at, ended_at, max_pages FROM crawls WHERE job_id = %(job)s AND id * 2 < %(crawl)s ORDER BY id DESC LIMIT %(limit)s
"""
# Changes by people are in the audit log.
_EVENTS: Final = """
SELECT xid::text::bigint, id, at, kind, data FROM events
WHERE job_id = %(job)s AND kind IN ('job', 'worker') AND (xid, id) < (%(xid)s::text::xid8, %(event)s::bigint)
  AND NOT (kind = 'job' AND (data->>'what' IN ('created', 'deleted') OR data->>'to' IN ('paused', 'cancelled') OR data->>'from' = 'paused'))
ORDER BY events.xid DESC, events.id DESC LIMIT %(limit)s
"""
_MADE: Final = """
SELECT j.created_at, a.actor, COALESCE(a.details, '{}') FROM crawl_jobs j LEFT JOIN LATERAL (
    SELECT actor, details FROM audit_log WHERE object_kind = 'job' AND object_id = j.id::text AND action = 'create' ORDER BY id LIMIT 1) a
    ON true
WHERE j.id = %(job)s
"""


class LogRow(NamedTuple):
    """An entry, as its source has it."""

    at: datetime
    source: str
    """`audit`, `crawl`, `job`, `worker` or `made`."""
    what: str
    """The action, `began` or `ended`, or what the event says."""
    actor: str | None
    details: dict[str, Any]
    position: tuple[int, ...]
    """In its source."""


def page(connection: psycopg.Connection, job_id: int, *, after: Key | None, limit: int) -> Page[LogRow]:
    """Return one page of a job's log; `after` is the `next` of the page before. Raises UsageError."""
    audit, crawl, xid, event, made = _position(after)
    key = {"job": job_id, "audit": audit, "crawl": crawl, "xid": str(xid), "event": event, "limit": limit + 1}
    sources = [
        deque(_audit_rows(connection, key)),
        deque(_crawl_rows(connection, key, crawl)),
        deque(_event_rows(connection, key)),
    ]
    rows: list[LogRow] = []
    while len(rows) < limit and any(sources):
        number = max((one for one in range(len(sources)) if sources[one]), key=lambda one: sources[one][0].at)
        row = sources[number].popleft()
        rows.append(row)
        if number == 0:
            (audit,) = row.position
        elif number == 1:
            (crawl,) = row.position
        else:
            xid, event = row.position
    if made and len(rows) < limit and not any(sources):
        rows += _made_rows(connection, key)
        made = 0
    more = any(sources) or made
    return Page(rows, (audit, crawl, xid, event, made) if more else None)


def _position(after: Key | None) -> tuple[int, int, int, int, int]:
    if after is None:
        return _FIRST, _FIRST, _FIRST, _FIRST, 1
    numbers = [one for one in after if isinstance(one, int) and 0 <= one <= _FIRST]
    if len(numbers) != len(KEY_TYPES) or len(after) != len(KEY_TYPES):
        raise UsageError(
            "This cursor belongs to another list; start without it, or continue with the `next` of the last page."
        )
    audit, crawl, xid, event, made = numbers
    return audit, crawl, xid, event, made


def _audit_rows(connection: psycopg.Connection, key: dict[str, object]) -> Iterable[LogRow]:
    for number, at, actor, action, details in connection.execute(_AUDIT, key):
        yield LogRow(at, "audit", action, actor, details, (number,))


def _crawl_rows(connection: psycopg.Connection, key: dict[str, object], before: int) -> Iterable[LogRow]:
    for number, started_at, ended_at, max_pages in connection.execute(_CRAWLS, key):
        details = {"crawl": number, "max_pages": max_pages}
        if ended_at is not None and 2 * number + 1 < before:
            yield LogRow(ended_at, "crawl", "ended", None, details, (2 * number + 1,))
        yield LogRow(started_at, "crawl", "began", None, details, (2 * number,))


def _event_rows(connection: psycopg.Connection, key: dict[str, object]) -> Iterable[LogRow]:
    for xid, number, at, kind, data in connection.execute(_EVENTS, key):
        yield LogRow(at, kind, str(data.get("what", "")), None, data, (xid, number))


def _made_rows(connection: psycopg.Connection, key: dict[str, object]) -> Iterable[LogRow]:
    for at, actor, details in connection.execute(_MADE, key):
        yield LogRow(at, "made", "created", actor, details, ())
