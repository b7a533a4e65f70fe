"""Names of workers. A name is stable, so that a restart reclaims its own domains at once.

The rule: a name is held by a session advisory lock, on a connection that lives as long as the worker. A frozen process keeps its
session, so a second process with the same name gets another name and reclaims nothing. So does one that starts while the first may
still run without access to the database: on another machine, or on this one under its process id. (Needs real sessions: no pooler in
transaction mode between worker and server.)

Take-over: a worker without a heartbeat for `DEAD_AFTER`, whose session the server has closed, loses its domains (`db/sweeper`). It
begins no request that could last longer than 100 s (`REQUESTS_END`) after the sending of the last acknowledged heartbeat, so that its
last request is over by then.
"""

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psutil
import psycopg
from psycopg.types.json import Jsonb

from holdfast.errors import NameInUse, Refused, UsageError
from holdfast.model.activity import Activity

_HOLD: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast worker ' || %(name)s, 0))"
_LET_GO: Final = "SELECT pg_advisory_unlock(hashtextextended('holdfast worker ' || %(name)s, 0))"
_LAST_LIFE: Final = """
SELECT host, pid, extract(epoch FROM clock_timestamp() - started_at)::float8 FROM workers w
WHERE name = %(name)s AND ended_at IS NULL AND heartbeat_at > clock_timestamp() - %(dead_after)s
  AND EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name)
"""
_REGISTER: Final = """
INSERT INTO workers (name, host, pid, started_at)
VALUES (%(name)s, %(host)s, %(pid)s, clock_timestamp() - make_interval(secs => %(running_for)s))
ON CONFLICT (name) DO UPDATE SET boot_epoch = workers.boot_epoch + 1, host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, heartbeat_at = clock_timestamp(), activity = NULL, activity_at = NULL, ended_at = NULL
RETURNING boot_epoch
"""
# Committed asynchronously: what a crash of the server loses is written again a second later. Skips the row if it is locked.
_TELL: Final = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
mine AS (SELECT name FROM workers WHERE name = %(name)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workers w SET activity = %(activity)s, activity_at = clock_timestamp() FROM quick, mine WHERE w.name = mine.name
"""
ACTIVITIES: Final = """
SELECT w.name, w.activity, extract(epoch FROM clock_timestamp() - w.activity_at)::float8 AS age
FROM workers w WHERE w.heartbeat_at > clock_timestamp() - %(silence)s
  AND EXISTS (SELECT FROM crawl_runs r WHERE r.worker = w.name AND r.status = 'running') ORDER BY w.name
"""
"""The activity of each worker, by `silence`."""
# Running workers with a recent heartbeat that serve all jobs, or this one.
_SERVING: Final = """
FROM crawl_runs r JOIN workers w ON w.name = r.worker
WHERE r.status = 'running' AND (r.job_id IS NULL OR r.job_id = %(job)s)
  AND w.ended_at IS NULL AND w.heartbeat_at > clock_timestamp() - %(dead_after)s
"""
# Not within a minute of the server's start: all sessions are new then, and running workers had no time to reconnect.
_SILENT: Final = """
SELECT name FROM workers w
WHERE heartbeat_at < clock_timestamp() - %(dead_after)s AND (%(name)s::text IS NULL OR name = %(name)s)
  AND pg_postmaster_start_time() < clock_timestamp() - %(settling)s
  AND EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name)
ORDER BY name
"""
_HOLD_DEAD: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast worker ' || %(name)s, 0))"
_SHARE: Final = "SELECT pg_try_advisory_lock_shared(hashtextextended('holdfast workers', 0))"
_ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast workers', 0))"
DEAD_AFTER: Final = timedelta(seconds=120)
"""A worker without a heartbeat for that long, by the database's clock, may lose its domains: its last request has ended 20 s before."""
STARTUP_GRACE: Final = timedelta(seconds=60)
"""After the start of the database server no worker counts as dead."""
_NAME_RETRY: Final = 0.05
_CLOCK_TOLERANCE: Final = 5.0
"""Seconds by which the clocks of this machine and of the database may differ when the ages of two processes are compared."""
_MAX_NAMES: Final = 1000
_MAX_NAME_LENGTH: Final = 200


def status_columns(alive: str, held: str, row: str) -> str:
    """SQL columns of a worker list: status (active, idle, ended, silent), the URL in flight for longest, and all URLs in flight.

    `alive`, `held`: SQL for whether the worker is alive and how many domains it holds; `row`: the alias of the workers table.
    """
    return f"""
        CASE WHEN {alive} THEN CASE WHEN {held} > 0 THEN 'active' ELSE 'idle' END WHEN {row}.ended_at IS NULL THEN 'silent' ELSE 'ended' END
            AS status,
        CASE WHEN {alive} THEN {row}.activity #>> '{{fetching,0,url}}' END AS current_url,
        CASE WHEN {alive} THEN ARRAY(SELECT f ->> 'url' FROM jsonb_array_elements({row}.activity -> 'fetching') f) ELSE '{{}}' END
            AS current_urls
    """  # noqa: S608 — of constants


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a worker process: its name, and the number of its start."""

    name: str
    boot_epoch: int


def acquire_name(
    connection: psycopg.Connection, wanted: str, *, timeout: float = 0.0, exact: bool = False, running_for: float = 0.0
) -> Identity:
    """Acquire `wanted`, or the first of wanted-2, wanted-3 … that no open session holds and no process that may still send requests.

    `timeout`: seconds for which `wanted` is retried; `exact`: raise NameInUse instead of choosing another name. `running_for`: seconds
    since this process acquired the name first: a new session of the same process is no new start.
    Before: `connection` stays open as long as the worker runs. After: no other session can hold the name until it closes.
    """
    if not 0 < len(wanted) <= _MAX_NAME_LENGTH:
        raise UsageError(f"A worker's name has 1 to {_MAX_NAME_LENGTH} characters; {wanted[:40]!r}… has {len(wanted)}.")
    deadline = time.monotonic() + timeout
    for name in _candidates(wanted):
        held = _is_true(connection, _HOLD, name)
        while not held and name == wanted and time.monotonic() < deadline:
            time.sleep(_NAME_RETRY)
            held = _is_true(connection, _HOLD, name)
        if held and _may_still_fetch(connection, name):
            held = not _is_true(connection, _LET_GO, name)
        if not held and exact:
            raise NameInUse(f"Another worker bears the name {wanted!r}.")
        if held:
            boot = connection.execute(
                _REGISTER,
                {"name": name, "host": socket.gethostname(), "pid": os.getpid(), "running_for": running_for},
            ).fetchone()
            return Identity(name, int(boot[0]) if boot else 1)
    raise NameInUse(f"{_MAX_NAMES} workers called {wanted!r} are alive; choose another name.")


def _may_still_fetch(connection: psycopg.Connection, name: str) -> bool:
    """Whether the last process of this name holds domains and may still run, disconnected from the database. After `DEAD_AFTER` without a
    heartbeat it sends no request any more; on this machine its process id is checked."""
    row = connection.execute(_LAST_LIFE, {"name": name, "dead_after": DEAD_AFTER}).fetchone()
    if row is None:
        return False
    host, pid, age = row
    if host != socket.gethostname():
        return True
    if pid == os.getpid():
        return False
    try:
        process = psutil.Process(pid)
        # A younger process has reused the process id.
        return (
            process.status() != psutil.STATUS_ZOMBIE and time.time() - process.create_time() >= age - _CLOCK_TOLERANCE
        )
    except psutil.NoSuchProcess:
        return False


def deregister(connection: psycopg.Connection, name: str) -> None:
    """Record a clean exit: the worker has no share of the work any more. Before: `connection` holds the name."""
    connection.execute(
        "UPDATE workers SET ended_at = clock_timestamp(), activity = NULL, activity_at = NULL WHERE name = %s", (name,)
    )


def silent(connection: psycopg.Connection) -> list[str]:
    """Names of workers that hold domains and were not heard of for too long; `lock_if_dead` says of each whether it is dead."""
    parameters = {"dead_after": DEAD_AFTER, "settling": STARTUP_GRACE, "name": None}
    return [name for (name,) in connection.execute(_SILENT, parameters)]


def lock_if_dead(connection: psycopg.Connection, name: str) -> bool:
    """Whether this worker is dead; if so, its name stays locked until the end of the transaction.

    Before: a transaction is open and has locked no domain. Does not wait: a locked row shows that the worker is alive. A frozen process
    still has its session, and is not dead.
    """
    parameters = {"dead_after": DEAD_AFTER, "settling": STARTUP_GRACE, "name": name}
    found = connection.execute(f"{_SILENT} FOR NO KEY UPDATE OF w SKIP LOCKED", parameters).fetchone()
    return found is not None and _is_true(connection, _HOLD_DEAD, name)


def dead(connection: psycopg.Connection) -> list[str]:
    """Names of dead workers that hold domains, which the next sweep frees. Before: no transaction is open."""
    found = []
    for name in silent(connection):
        with connection.transaction(force_rollback=True):
            if lock_if_dead(connection, name):
                found.append(name)
    return found


def count_serving(connection: psycopg.Connection, job_id: int) -> int:
    """The number of workers that can serve a job at this moment."""
    query = f"SELECT count(DISTINCT w.name) {_SERVING}"
    row = connection.execute(query, {"job": job_id, "dead_after": DEAD_AFTER}).fetchone()
    return int(row[0]) if row else 0


def has_idle_worker(connection: psycopg.Connection, job_id: int, *, exclude: str) -> bool:
    """Whether another worker than `exclude` can serve a job and holds no domain."""
    query = f"""
        SELECT EXISTS (SELECT {_SERVING} AND w.name <> %(exclude)s
                       AND NOT EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name))
    """  # noqa: S608 — a constant
    row = connection.execute(query, {"job": job_id, "dead_after": DEAD_AFTER, "exclude": exclude}).fetchone()
    return bool(row and row[0])


def save_activity(connection: psycopg.Connection, name: str, activity: Activity) -> bool:
    """Store the present activity of a worker; False: its row was locked, and a retry may succeed.

    Before: no transaction is open.
    """
    stored = activity.to_json()
    return connection.execute(_TELL, {"name": name, "activity": Jsonb(stored) if stored else None}).rowcount > 0


def activities(connection: psycopg.Connection, *, silence: timedelta) -> dict[str, Activity]:
    """The activity of each running worker with a heartbeat within `silence`, by name."""
    return {
        name: Activity.from_json(stored, age or 0.0)
        for name, stored, age in connection.execute(ACTIVITIES, {"silence": silence})
    }


def acquire_worker_lock(connection: psycopg.Connection, *, exclusive: bool) -> None:
    """Acquire the store-wide worker lock, shared, or (without claims) exclusive. Raises Refused if another worker holds it otherwise.

    Before: `connection` stays open as long as the worker runs. After: until it closes, no worker can get the exclusive lock; if it is
    exclusive, no other worker can run at all.
    """
    row = connection.execute(_ALONE if exclusive else _SHARE).fetchone()
    if row and row[0]:
        return
    if exclusive:
        raise Refused("Without claims only one worker may run, and another one does; stop it, or switch claims on.")
    raise Refused("A worker runs without claims, which forbids any other; stop it first.")


def _is_true(connection: psycopg.Connection, query: str, name: str) -> bool:
    row = connection.execute(query, {"name": name}).fetchone()
    return bool(row and row[0])


def _candidates(wanted: str) -> Iterator[str]:
    yield wanted
    for number in range(2, _MAX_NAMES + 1):
        yield f"{wanted}-{number}"
