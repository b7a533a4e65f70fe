"""Names that workers bear. A name is stable, so that a restart takes back its own claims at once.

The rule: a name is held by a session advisory lock, on a connection that lives as long as the worker. A frozen process keeps its
session, so a twin that starts under the same name gets another one and robs nobody. (Needs real sessions: no pooler in
transaction mode between worker and server.)
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast.errors import NameInUse, Refused, UsageError
from holdfast.model.activity import Activity

_HOLD: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast worker ' || %(name)s, 0))"
_REGISTER: Final = """
INSERT INTO workers (name, host, pid) VALUES (%(name)s, %(host)s, %(pid)s)
ON CONFLICT (name) DO UPDATE SET boot_epoch = workers.boot_epoch + 1, host = excluded.host, pid = excluded.pid,
    started_at = clock_timestamp(), heartbeat_at = clock_timestamp(), activity = NULL, activity_at = NULL
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
_SHARE: Final = "SELECT pg_try_advisory_lock_shared(hashtextextended('holdfast workers', 0))"
_ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast workers', 0))"
_MOST_NAMES: Final = 1000
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker process is: its name, and which of its lives this is."""

    name: str
    boot_epoch: int


def hold_name(connection: psycopg.Connection, wanted: str) -> Identity:
    """Take `wanted`, or the first of wanted-2, wanted-3 … that no living session holds.

    Before: `connection` stays open as long as the worker lives. After: no other session can hold the name until it closes.
    """
    if not 0 < len(wanted) <= _LONGEST:
        raise UsageError(f"A worker's name has 1 to {_LONGEST} characters; {wanted[:40]!r}… has {len(wanted)}.")
    for name in _candidates(wanted):
        row = connection.execute(_HOLD, {"name": name}).fetchone()
        if row and row[0]:
            boot = connection.execute(
                _REGISTER, {"name": name, "host": socket.gethostname(), "pid": os.getpid()}
            ).fetchone()
            return Identity(name, int(boot[0]) if boot else 1)
    raise NameInUse(f"{_MOST_NAMES} workers called {wanted!r} are alive; choose another name.")


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


def _candidates(wanted: str) -> Iterator[str]:
    yield wanted
    for number in range(2, _MOST_NAMES + 1):
        yield f"{wanted}-{number}"
