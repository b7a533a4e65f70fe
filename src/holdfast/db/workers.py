"""Names that workers bear. A name is stable, so that a restart takes back its own claims at once.

The rule: a name is held by a session advisory lock, on a connection that lives as long as the worker. A frozen process keeps its
session, so a twin that starts under the same name gets another name and takes nothing. So does one that starts while the other may still
run somewhere, cut off from the database: on another machine, or on this one under its process id. (Needs real sessions: no pooler in
transaction mode between worker and server.)

Take-over: a worker that no heartbeat was heard of for `DEAD_AFTER`, and whose session the server has ended, loses its domains
(`store/sweep`). It begins no request that could last longer than 100 s (`REQUESTS_END`) after the sending of the last heartbeat that
was acknowledged, so that its last request is over by then.
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
INSERT INTO workers (name, host, pid) VALUES (%(name)s, %(host)s, %(pid)s)
ON CONFLICT (name) DO UPDATE SET boot_epoch = workers.boot_epoch + 1, host = excluded.host, pid = excluded.pid,
    started_at = clock_timestamp(), heartbeat_at = clock_timestamp(), activity = NULL, activity_at = NULL, ended_at = NULL
RETURNING boot_epoch
"""
# Its commit waits for no disk: what is lost with the server is written again a second later. Nor does it wait for a lock of the row.
_TELL: Final = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
mine AS (SELECT name FROM workers WHERE name = %(name)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workers w SET activity = %(activity)s, activity_at = clock_timestamp() FROM quick, mine WHERE w.name = mine.name
"""
_ACTIVE: Final = """
SELECT w.name, w.activity, extract(epoch FROM clock_timestamp() - w.activity_at)::float8
FROM workers w WHERE w.heartbeat_at > clock_timestamp() - %(silence)s
  AND EXISTS (SELECT FROM crawl_runs r WHERE r.worker = w.name AND r.status = 'running') ORDER BY w.name
"""
# Of workers that run, were heard of lately and have not ended: those that serve all jobs, or this one.
_SERVING: Final = """
FROM crawl_runs r JOIN workers w ON w.name = r.worker
WHERE r.status = 'running' AND (r.job_id IS NULL OR r.job_id = %(job)s)
  AND w.ended_at IS NULL AND w.heartbeat_at > clock_timestamp() - %(dead_after)s
"""
# Not within a minute of the server's start: all sessions are new then, and workers that live have had no time to come back.
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
SETTLING: Final = timedelta(seconds=60)
"""After the start of the database server no worker counts as dead."""
_NAME_LOOK: Final = 0.05
_AGE_SLACK: Final = 5.0
"""Seconds by which the clocks of this machine and of the database may differ when the ages of two processes are compared."""
_MOST_NAMES: Final = 1000
_LONGEST: Final = 200


def shown(alive: str, held: str, row: str) -> str:
    """Columns of a list of workers, for the SQL of whether one is alive, how many domains it holds, and the name of its row: its status
    (active, idle, ended, silent), the URL that it has been fetching for longest, and all that it names."""
    return f"""
        CASE WHEN {alive} THEN CASE WHEN {held} > 0 THEN 'active' ELSE 'idle' END WHEN {row}.ended_at IS NULL THEN 'silent' ELSE 'ended' END
            AS status,
        CASE WHEN {alive} THEN {row}.activity #>> '{{fetching,0,url}}' END AS current_url,
        CASE WHEN {alive} THEN ARRAY(SELECT f ->> 'url' FROM jsonb_array_elements({row}.activity -> 'fetching') f) ELSE '{{}}' END
            AS current_urls
    """  # noqa: S608 — of constants


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker process is: its name, and which of its lives this is."""

    name: str
    boot_epoch: int


def hold_name(connection: psycopg.Connection, wanted: str, *, patience: float = 0.0, only: bool = False) -> Identity:
    """Take `wanted`, or the first of wanted-2, wanted-3 … that no living session holds, and no process that may still ask sites.
    `patience`: seconds for which `wanted` is tried; `only`: no other name will do, and NameInUse says that it is taken.

    Before: `connection` stays open as long as the worker lives. After: no other session can hold the name until it closes.
    """
    if not 0 < len(wanted) <= _LONGEST:
        raise UsageError(f"A worker's name has 1 to {_LONGEST} characters; {wanted[:40]!r}… has {len(wanted)}.")
    deadline = time.monotonic() + patience
    for name in _candidates(wanted):
        held = _is_true(connection, _HOLD, name)
        while not held and name == wanted and time.monotonic() < deadline:
            time.sleep(_NAME_LOOK)
            held = _is_true(connection, _HOLD, name)
        if held and _may_still_ask(connection, name):
            held = not _is_true(connection, _LET_GO, name)
        if not held and only:
            raise NameInUse(f"Another worker bears the name {wanted!r}.")
        if held:
            boot = connection.execute(
                _REGISTER, {"name": name, "host": socket.gethostname(), "pid": os.getpid()}
            ).fetchone()
            return Identity(name, int(boot[0]) if boot else 1)
    raise NameInUse(f"{_MOST_NAMES} workers called {wanted!r} are alive; choose another name.")


def _may_still_ask(connection: psycopg.Connection, name: str) -> bool:
    """Whether the last process of this name holds domains and may run where the database cannot hear it. After a silence of `DEAD_AFTER`
    it asks sites for nothing any more; on this machine it can be looked for."""
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
        # One that is younger than that worker has got its process id since.
        return process.status() != psutil.STATUS_ZOMBIE and time.time() - process.create_time() >= age - _AGE_SLACK
    except psutil.NoSuchProcess:
        return False


def deregister(connection: psycopg.Connection, name: str) -> None:
    """The worker has ended in order: it takes no share of the work any more. Before: `connection` holds the name."""
    connection.execute(
        "UPDATE workers SET ended_at = clock_timestamp(), activity = NULL, activity_at = NULL WHERE name = %s", (name,)
    )


def silent(connection: psycopg.Connection) -> list[str]:
    """Names of workers that hold domains and were not heard of for too long; `hold_dead` says of each whether it is dead."""
    given = {"dead_after": DEAD_AFTER, "settling": SETTLING, "name": None}
    return [name for (name,) in connection.execute(_SILENT, given)]


def hold_dead(connection: psycopg.Connection, name: str) -> bool:
    """Whether this worker is dead; if so, no session can take its name until the end of the transaction.

    Before: a transaction is open and has locked no domain. Waits for nothing: a row that is locked is a sign of life. A frozen process
    still has its session, and is not dead.
    """
    given = {"dead_after": DEAD_AFTER, "settling": SETTLING, "name": name}
    found = connection.execute(f"{_SILENT} FOR NO KEY UPDATE OF w SKIP LOCKED", given).fetchone()
    return found is not None and _is_true(connection, _HOLD_DEAD, name)


def dead(connection: psycopg.Connection) -> list[str]:
    """Workers that are dead at this moment and hold domains, which the next sweep frees. Before: no transaction is open."""
    found = []
    for name in silent(connection):
        with connection.transaction(force_rollback=True):
            if hold_dead(connection, name):
                found.append(name)
    return found


def serving(connection: psycopg.Connection, job_id: int) -> int:
    """How many workers can serve a job at this moment."""
    query = f"SELECT count(DISTINCT w.name) {_SERVING}"
    row = connection.execute(query, {"job": job_id, "dead_after": DEAD_AFTER}).fetchone()
    return int(row[0]) if row else 0


def is_one_idle(connection: psycopg.Connection, job_id: int, *, exclude: str) -> bool:
    """Whether another worker than `exclude` can serve a job and holds no domain."""
    query = f"""
        SELECT EXISTS (SELECT {_SERVING} AND w.name <> %(exclude)s
                       AND NOT EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name))
    """  # noqa: S608 — a constant
    row = connection.execute(query, {"job": job_id, "dead_after": DEAD_AFTER, "exclude": exclude}).fetchone()
    return bool(row and row[0])


def tell(connection: psycopg.Connection, name: str, activity: Activity) -> bool:
    """Write down what a worker does at this moment; False: its row was locked, and it is worth another try.

    Before: no transaction is open.
    """
    stored = activity.to_json()
    return connection.execute(_TELL, {"name": name, "activity": Jsonb(stored) if stored else None}).rowcount > 0


def active(connection: psycopg.Connection, *, silence: timedelta) -> dict[str, Activity]:
    """What each worker does that runs and was heard of within `silence`, by name."""
    return {
        name: Activity.from_json(stored, age or 0.0)
        for name, stored, age in connection.execute(_ACTIVE, {"silence": silence})
    }


def share(connection: psycopg.Connection, *, alone: bool) -> None:
    """Be one of several workers, or (without claims) the only one. Refused where another worker forbids it.

    Before: `connection` stays open as long as the worker lives. After: until it closes, nobody is alone beside us; nobody at all,
    if we are.
    """
    row = connection.execute(_ALONE if alone else _SHARE).fetchone()
    if row and row[0]:
        return
    if alone:
        raise Refused("Without claims only one worker may run, and another one does; stop it, or switch claims on.")
    raise Refused("A worker runs without claims, which forbids any other; stop it first.")


def _is_true(connection: psycopg.Connection, query: str, name: str) -> bool:
    row = connection.execute(query, {"name": name}).fetchone()
    return bool(row and row[0])


def _candidates(wanted: str) -> Iterator[str]:
    yield wanted
    for number in range(2, _MOST_NAMES + 1):
        yield f"{wanted}-{number}"
