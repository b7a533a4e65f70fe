"""SQL of alerts: the figures that rules check, and the table of alerts.

The rule: an alert of a kind about a subject is raised once and stays the same row until it is resolved. Its message goes into the outbox
in the transaction that raises or resolves it, so it is sent once.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from holdfast.alerts.records import Alert, Kind
from holdfast.db import periodic_locks
from holdfast.db.connection import first_line
from holdfast.errors import NotFound, StoreError
from holdfast.model.activity import WorkerProblem, problems_of
from holdfast.model.task import HIGHEST_PRIORITY, LOWEST_PRIORITY

KEPT: Final = timedelta(days=90)
"""How long resolved alerts are kept."""
SETTLED: Final = timedelta(seconds=10)
"""How long after its end a minute is complete: all that was fetched in it is committed by then."""

BACKGROUND_SILENCE: Final = timedelta(minutes=2)
"""After this time without a background, work that has been due for as long is an alert. A background looks every ten seconds."""
_MAX_COUNTED: Final = 1_000
"""Overdue tasks, parses and webhooks are counted up to this number."""

MAX_FIRING: Final = 50
"""Alerts of a kind that fire at the same time; further ones are raised as others are resolved."""

_NEWEST: Final = 2**63 - 1

# Minutes that have no row count as ones without requests.
_MINUTES: Final = """
SELECT m.at, s.outcome, sum(s.n)::bigint
FROM generate_series(date_bin('1 minute', statement_timestamp() - %(settled)s::interval, 'epoch') - %(minutes)s * interval '1 minute',
                     date_bin('1 minute', statement_timestamp() - %(settled)s::interval, 'epoch') - interval '1 minute',
                     interval '1 minute') AS m(at)
LEFT JOIN (
    SELECT at, o.outcome, o.n::bigint AS n FROM stats_minute CROSS JOIN LATERAL jsonb_each_text(outcomes) AS o(outcome, n)
    WHERE at >= statement_timestamp() - (%(minutes)s + 2) * interval '1 minute'
    UNION ALL SELECT date_bin('1 minute', at, 'epoch'), label, n FROM stats_fresh WHERE kind = 'fetch'
) s ON s.at = m.at
GROUP BY m.at, s.outcome ORDER BY m.at
"""
_BACKLOG: Final = """
SELECT at, frontier_size FROM stats_minute
WHERE at >= date_bin('1 minute', statement_timestamp(), 'epoch') - (%(minutes)s + 1) * interval '1 minute' AND frontier_size IS NOT NULL
ORDER BY at
"""
_SILENT: Final = """
SELECT w.name, extract(epoch FROM statement_timestamp() - w.heartbeat_at)::float8, w.host, w.heartbeat_at,
       (SELECT count(*) FROM domains d WHERE d.claimed_by = w.name) AS held
FROM workers w
WHERE w.heartbeat_at < statement_timestamp() - %(silence)s::interval
  AND (EXISTS (SELECT FROM crawl_runs r WHERE r.status = 'running' AND r.worker = w.name)
       OR EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name))
ORDER BY w.name LIMIT %(limit)s
"""

_PROBLEMS: Final = """
SELECT w.name, w.host, w.activity FROM workers w
WHERE w.heartbeat_at > statement_timestamp() - %(silence)s::interval AND w.ended_at IS NULL AND w.activity ? 'problems'
ORDER BY w.name
"""
# Whether no background has looked for a while; not at once after a start of the server, when none had time to.
_NO_BACKGROUND: Final = """
SELECT CASE WHEN isfinite(done_at) THEN extract(epoch FROM clock_timestamp() - done_at)::float8 END
FROM duties WHERE name = %(duty)s AND done_at < clock_timestamp() - %(silence)s::interval
  AND pg_postmaster_start_time() < clock_timestamp() - %(silence)s::interval
FOR NO KEY UPDATE SKIP LOCKED
"""
# What a background would have done within seconds, and has not for that long.
_OVERDUE: Final = """
SELECT what, n FROM (
    SELECT 'tasks' AS what, count(*) AS n FROM (
        SELECT FROM crawl_tasks WHERE status = 'pending' AND waits_for IS NULL AND priority BETWEEN %(first)s AND %(last)s
        AND scheduled_at < statement_timestamp() - %(silence)s::interval LIMIT %(limit)s) t
    UNION ALL SELECT 'parses', count(*) FROM (
        SELECT FROM crawl_tasks WHERE status = 'queued_parse'
        AND COALESCE(parse_after, updated_at) < statement_timestamp() - %(silence)s::interval
        LIMIT %(limit)s) p
    UNION ALL SELECT 'jobs', count(*) FROM crawl_jobs
        WHERE next_run_at < statement_timestamp() - %(silence)s::interval AND deleted_at IS NULL AND kind = 'crawl'
    UNION ALL SELECT 'webhooks', count(*) FROM (
        SELECT FROM webhook_deliveries WHERE next_attempt_at < statement_timestamp() - %(silence)s::interval LIMIT %(limit)s) w
    UNION ALL SELECT 'operations', count(*) FROM operations
        WHERE state = 'waiting' AND asked_at < statement_timestamp() - %(silence)s::interval
) found WHERE n > 0
"""

_FIRING: Final = """
SELECT id, kind, subject, extract(epoch FROM clock_timestamp() - last_seen_at)::float8 FROM alerts
WHERE resolved_at IS NULL AND kind = ANY(%(kinds)s) ORDER BY id FOR UPDATE
"""
_RAISE: Final = """
INSERT INTO alerts (kind, subject, value, details) VALUES (%(kind)s, %(subject)s, %(value)s, %(details)s) RETURNING id
"""
_SEEN: Final = (
    "UPDATE alerts SET last_seen_at = clock_timestamp(), value = %(value)s, details = %(details)s WHERE id = %(id)s"
)
_RESOLVE: Final = "UPDATE alerts SET resolved_at = clock_timestamp() WHERE id = %(id)s"
_TELL: Final = """
INSERT INTO webhook_deliveries (alert_id, event, url, body, next_attempt_at, gave_up_at, last_error)
SELECT a.id, %(event)s, %(url)s, jsonb_build_object('alert_id', a.id, 'kind', a.kind, 'subject', a.subject, 'value', a.value,
           'since', a.since, 'resolved_at', a.resolved_at, 'details', a.details),
       CASE WHEN e.reason IS NULL THEN clock_timestamp() END, CASE WHEN e.reason IS NOT NULL THEN clock_timestamp() END, e.reason
FROM alerts a LEFT JOIN webhook_endpoints e ON e.url = %(url)s AND e.disabled_at IS NOT NULL WHERE a.id = %(id)s
"""
_READ: Final = """
SELECT id, kind, subject, CASE WHEN resolved_at IS NULL THEN 'firing' ELSE 'resolved' END AS state, value, since, last_seen_at, resolved_at,
       details, acknowledged_at, acknowledged_by FROM alerts
"""
FIRING: Final = f"{_READ} WHERE resolved_at IS NULL ORDER BY id DESC LIMIT %(limit)s"
"""The newest alerts that fire."""
_ACTIVE: Final = {None: "", True: " AND resolved_at IS NULL", False: " AND resolved_at IS NOT NULL"}
_ACKNOWLEDGE: Final = """
UPDATE alerts SET acknowledged_at = clock_timestamp(), acknowledged_by = %(actor)s
WHERE id = %(id)s AND resolved_at IS NULL AND acknowledged_at IS NULL
"""
_TRIM: Final = """
DELETE FROM alerts WHERE id IN (
    SELECT id FROM alerts WHERE resolved_at < statement_timestamp() - %(kept)s::interval LIMIT %(chunk)s)
"""


_FAILED_BACKUPS: Final = """
SELECT 'backup', extract(epoch FROM clock_timestamp() - COALESCE(b.ended_at, b.started_at))::float8,
       COALESCE(b.error, 'it is not known why')
FROM (SELECT * FROM backups WHERE state IN ('complete', 'failed') OR state = 'running' AND error IS NOT NULL
      ORDER BY started_at DESC, id DESC LIMIT 1) b WHERE b.state <> 'complete'
UNION ALL
SELECT 'log', extract(epoch FROM clock_timestamp() - COALESCE(problem_since, updated_at))::float8, COALESCE(given_up, problem)
FROM backup_following WHERE given_up IS NOT NULL OR problem_since <= clock_timestamp() - %(silence)s
"""
# Two machines may have the same name.
_FAILING_UPLOADS: Final = """
SELECT name, extract(epoch FROM clock_timestamp() - min(problem_since))::float8, min(problem), sum(waiting_bytes)::bigint
FROM archive_machines WHERE problem_since < clock_timestamp() - %(silence)s AND lost_at IS NULL
GROUP BY name ORDER BY min(problem_since) LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a rule has found."""

    kind: str
    subject: str
    value: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Minute:
    """The requests of a minute, counted by outcome."""

    at: datetime
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.outcomes.total()


@dataclass(frozen=True, slots=True)
class SilentWorker:
    """A worker that runs or holds domains, and sends no heartbeats."""

    name: str
    seconds: float
    host: str
    heartbeat_at: datetime
    held: int


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """A problem that a worker has reported with its activity."""

    worker: str
    host: str
    problem: WorkerProblem


@dataclass(frozen=True, slots=True)
class FailedBackup:
    """What is wrong with backups."""

    subject: str
    """`backup`, or `log`: what is kept between backups."""
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class FailingUploads:
    """A machine that cannot upload its part of the archive."""

    machine: str
    seconds: float
    why: str
    waiting_bytes: int
    """Bytes that only this machine has."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The alerts that were raised and resolved, by id."""

    raised: list[int] = field(default_factory=list)
    resolved: list[int] = field(default_factory=list)


# Figures of the rules ----------------------------------------------------------------------------------------------


def minutes(connection: psycopg.Connection, *, count: int) -> list[Minute]:
    """Return the last `count` complete minutes, the oldest first."""
    found: dict[datetime, Minute] = {}
    for at, outcome, requests in connection.execute(_MINUTES, {"minutes": count, "settled": SETTLED}):
        minute = found.setdefault(at, Minute(at))
        if outcome is not None:
            minute.outcomes[outcome] += requests
    return list(found.values())


def backlog(connection: psycopg.Connection, *, count: int) -> list[tuple[datetime, int]]:
    """Return the sizes of the frontier at the end of the last `count` minutes and of the one before them, as far as they were counted."""
    return connection.execute(_BACKLOG, {"minutes": count}).fetchall()


def silent_workers(connection: psycopg.Connection, *, silence: timedelta, limit: int) -> list[SilentWorker]:
    """Return workers that hold domains or have a running run, without a heartbeat for `silence`."""
    return [SilentWorker(*row) for row in connection.execute(_SILENT, {"silence": silence, "limit": limit})]


def worker_problems(connection: psycopg.Connection, *, silence: timedelta) -> list[ReportedProblem]:
    """Return the problems that running workers report."""
    return [
        ReportedProblem(name, host, problem)
        for name, host, activity in connection.execute(_PROBLEMS, {"silence": silence})
        for problem in problems_of([activity])
    ]


def check_background(
    connection: psycopg.Connection, *, webhook_url: str | None, silence: timedelta = BACKGROUND_SILENCE
) -> bool:
    """Raise an alert if work is due and no background process has done anything for `silence`; return whether that is so.

    Before: no transaction is open. After: one alert fires, however many workers look; the next background that runs resolves it. Raises
    StoreError.
    """
    try:
        with connection.transaction():
            return _check_background(connection, webhook_url, silence)
    except psycopg.Error as problem:
        if connection.broken or connection.closed:
            raise
        raise StoreError(f"{first_line(problem)}.") from problem


def _check_background(connection: psycopg.Connection, webhook_url: str | None, silence: timedelta) -> bool:
    parameters = {"duty": periodic_locks.ALERTS, "silence": silence}
    row = connection.execute(_NO_BACKGROUND, parameters).fetchone()
    if row is None:
        return False
    bounds = {"first": HIGHEST_PRIORITY, "last": LOWEST_PRIORITY, "limit": _MAX_COUNTED}
    due: dict[str, int] = dict(connection.execute(_OVERDUE, parameters | bounds).fetchall())
    if not due:
        return False
    found = Finding(Kind.BACKGROUND_SILENT, "", row[0] or 0.0, {"due": due})
    settle(connection, [found], kinds=[Kind.BACKGROUND_SILENT], webhook_url=webhook_url)
    return True


def failed_backups(connection: psycopg.Connection, *, silence: timedelta = timedelta(0)) -> list[FailedBackup]:
    """Return whether the last backup failed or makes no progress, and why the log between backups is not kept, if that lasts for
    `silence`."""
    return [FailedBackup(*row) for row in connection.execute(_FAILED_BACKUPS, {"silence": silence})]


def failing_uploads(connection: psycopg.Connection, *, silence: timedelta, limit: int) -> list[FailingUploads]:
    """Return machines that have not been able to upload segments of the archive for `silence`."""
    return [FailingUploads(*row) for row in connection.execute(_FAILING_UPLOADS, {"silence": silence, "limit": limit})]


# The table ------------------------------------------------------------------------------------------------------------


def settle(
    connection: psycopg.Connection,
    findings: Sequence[Finding],
    *,
    kinds: Collection[str],
    webhook_url: str | None,
    hold: Mapping[str, timedelta] = MappingProxyType({}),
) -> Changed:
    """Raise alerts for new findings of these kinds, and resolve those without a finding. `webhook_url`: the receiver of webhooks, if there
    is one; `hold`: by kind, how long an alert still fires after it was found last, so that a problem that comes and goes is one alert.

    Before: a transaction is open, and no other one settles. After (with its commit): each has one row, and one message for its start
    and one for its end are in the outbox. At most `MAX_FIRING` of a kind fire.
    """
    changed = Changed()
    rows = connection.execute(_FIRING, {"kinds": sorted(kinds)}).fetchall()
    firing = {(kind, subject): (number, unseen) for number, kind, subject, unseen in rows}
    room = {kind: MAX_FIRING - sum(row[1] == kind for row in rows) for kind in kinds}
    for found in findings:
        values = {
            "kind": found.kind,
            "subject": found.subject[:255],
            "value": found.value,
            "details": Jsonb(found.details),
        }
        known = firing.pop((found.kind, found.subject[:255]), None)
        if known is not None:
            connection.execute(_SEEN, values | {"id": known[0]})
            continue
        if room[found.kind] <= 0:
            continue
        room[found.kind] -= 1
        row = connection.execute(_RAISE, values).fetchone()
        assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
        changed.raised.append(row[0])
        _notify(connection, row[0], "alert.firing", webhook_url)
    for (kind, _), (number, unseen) in firing.items():
        if kind in hold and unseen < hold[kind].total_seconds():
            continue
        connection.execute(_RESOLVE, {"id": number})
        changed.resolved.append(number)
        _notify(connection, number, "alert.resolved", webhook_url)
    return changed


def _notify(connection: psycopg.Connection, number: int, event: str, url: str | None) -> None:
    if url is not None:
        connection.execute(_TELL, {"id": number, "event": event, "url": url})


def list_alerts(
    connection: psycopg.Connection, *, active: bool | None = None, before: int | None = None, limit: int = 100
) -> list[Alert]:
    """Return alerts, the newest first; `before` is the last id of the page before."""
    query = f"{_READ} WHERE id < %(before)s{_ACTIVE[active]} ORDER BY id DESC LIMIT %(limit)s"
    with connection.cursor(row_factory=class_row(Alert)) as cursor:
        return cursor.execute(query, {"before": _NEWEST if before is None else before, "limit": limit}).fetchall()


def get(connection: psycopg.Connection, alert_id: int) -> Alert:
    """Return one alert. Raises NotFound."""
    with connection.cursor(row_factory=class_row(Alert)) as cursor:
        found = cursor.execute(f"{_READ} WHERE id = %(id)s", {"id": alert_id}).fetchone()
    if found is None:
        raise NotFound(f"There is no alert {alert_id}; resolved ones are kept for {KEPT.days} days.")
    return found


def acknowledge(connection: psycopg.Connection, alert_id: int, *, actor: str) -> bool:
    """Mark an alert as acknowledged by `actor`; False: it does not fire, or it was acknowledged before. It still fires."""
    return connection.execute(_ACKNOWLEDGE, {"id": alert_id, "actor": actor}).rowcount == 1


def trim(connection: psycopg.Connection, *, chunk: int = 1_000) -> int:
    """Delete a chunk of alerts that were resolved long ago; return how many."""
    return connection.execute(_TRIM, {"kept": KEPT, "chunk": chunk}).rowcount
