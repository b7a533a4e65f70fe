"""Tasks, batches and the audit log in pages.

The rule: a list finds ids, and the rows are read by whoever reads them one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.db.audit import Entry
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, Row, SortColumn, only_id
from holdfast.tasks.queries import tasks as task_reports

COUNTED: Final = 100_000
"""Tasks that are counted for one page of batches."""

_DOWN: Final = (SortColumn("t.id", int, descending=True),)
_UP: Final = (SortColumn("t.id", int),)
Read = Callable[[psycopg.Connection, Sequence[int]], Mapping[int, Row]]
"""The rows with these ids; what is gone is left out."""


_TASKS: Final = Listing(
    "crawl_tasks",
    "t.id",
    only_id,
    {
        "status": Equals("t.status", "%(status)s::task_status"),
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "batch": Equals("t.batch_id", "%(batch)s::bigint"),
        "parent": "t.parent_task_id = %(parent)s",
        "priority": "t.priority = %(priority)s",
        "url": Equals("t.url_hash", "%(url)s::bytea"),
    },
    {
        "newest": Order(_DOWN, (("url",), ("batch",), ("domain",), ("status",), ())),
        "oldest": Order(_UP, (("url",), ("batch",), ("domain",), ("status",), ())),
    },
    selective=frozenset({"domain", "batch", "parent", "status", "url"}),
)
IDS: Final[Mapping[str, tuple[Listing[int], Read[Any]]]] = {
    "tasks": (_TASKS, task_reports.of_ids),
}
"""Lists of ids, and how the rows are read."""


def records(
    connection: psycopg.Connection,
    which: str,
    given: Mapping[str, object],
    *,
    order: str,
    after: Key | None = None,
    limit: int = 100,
) -> Page[Any]:
    """A page of tasks."""
    listing, read = IDS[which]
    return listing.records(connection, read, given, order=order, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch, and how many of its tasks are in each status; statuses without any are left out."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[str, int]
    counted_all: bool
    """False: it has more tasks than are counted for a list; `task_reports.batch` counts all of one."""


BATCHES: Final = Listing(
    "crawl_batches",
    "t.id, t.name, t.created_at, t.created_by, c.tasks, c.counted < %(most)s AS counted_all",
    BatchRow,
    {"prefix": "starts_with(t.name, %(prefix)s)"},
    {"newest": Order(_DOWN), "oldest": Order(_UP)},
    joins="""
    CROSS JOIN LATERAL (
        SELECT COALESCE(jsonb_object_agg(s.status, s.tasks), '{}') AS tasks, COALESCE(sum(s.tasks), 0) AS counted FROM (
            SELECT k.status, count(*) AS tasks FROM (
                SELECT k.status FROM crawl_tasks k WHERE k.batch_id = t.id LIMIT %(most)s) k GROUP BY k.status) s) c
    """,
)

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
