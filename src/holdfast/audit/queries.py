"""SQL of the audit log: its list. Lists of tasks, batches and proxies are here, too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.audit.records import AuditFilter, Entry
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, Row, SortColumn, only_id
from holdfast.proxies.queries import proxies
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
_PROXIES: Final = Listing(
    "proxies",
    "t.id",
    only_id,
    {
        "active": "t.is_active",
        "inactive": "NOT t.is_active",
        "provider": "t.provider = %(provider)s",
        "country": "t.country_code = %(country)s",
    },
    {"oldest": Order(_UP), "newest": Order(_DOWN)},
)
IDS: Final[Mapping[str, tuple[Listing[int], Read[Any]]]] = {
    "tasks": (_TASKS, task_reports.of_ids),
    "proxies": (_PROXIES, proxies.of_ids),
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
    """A page of tasks or proxies."""
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
