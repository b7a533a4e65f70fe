"""The bundled PostgreSQL: started when it is needed, shared by all processes, private to its user.

Owns the life of one server per data folder. One rule: any number of processes may call these functions at any moment
and be killed at any moment; the next call finds a server that runs, or makes one run, or says in one sentence why not.

Read in this order: `place` (where the files are and whose), `account` (the user it runs as), `binaries`, `cluster`
(making one), `config`, `sockets`, `process` (start, wait, stop), `keeper` (starts it again when it died); `files` and
`problems` serve them all.
"""

import os
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from psycopg import pq

from holdfast.errors import EmbeddedServerError
from holdfast.store.embedded import account as accounts
from holdfast.store.embedded import binaries as programs
from holdfast.store.embedded import cluster as clusters
from holdfast.store.embedded import files, place, problems, process
from holdfast.store.embedded.files import Patience, Say
from holdfast.store.embedded.place import Place
from holdfast.store.embedded.server import Server

__all__ = ["Server", "State", "ensure_running", "find", "revive", "running", "state", "stop"]


class State(Enum):
    """How the server of a data folder is."""

    RUNS = "runs"
    """Its process lives: it takes connections, or starts, recovers or stops."""
    STOPPED = "stopped"
    """It was stopped in order, or never started."""
    DIED = "died"
    """It was killed or crashed, and nothing was stopped by a person."""


def _silent(_: str) -> None:
    """Report nothing."""


def ensure_running(data: Path, say: Say = _silent, extra_settings: Mapping[str, str] | None = None) -> Server:
    """The server of `data`, started if need be, its cluster made if need be.

    Before: anything, including the remains of any kill. After: the server takes connections and outlives the caller.
    `extra_settings` count only when this call starts it; they are for tests.
    """
    data = place.own(data)
    with problems.explained(data):
        place.make_data(data, say)
        if server := find(data):
            return server
        with files.locked(place.lock_file(data), _waiting(data, say)) as lock:
            place.stopped_file(data).unlink(missing_ok=True)
            return find(data) or _start(data, lock, extra_settings or {}, say)


def running(data: Path, timeout: float) -> Server:
    """The server of `data`, for a process whose parent keeps it up: waits up to `timeout` seconds for it, and starts none."""
    deadline = time.monotonic() + timeout
    while (server := find(data)) is None:
        if time.monotonic() > deadline:
            raise EmbeddedServerError(
                f"PostgreSQL in {data} does not run, and the process that keeps it up is not this one."
            )
        time.sleep(files.PAUSE)
    return server


def state(data: Path) -> State:
    """How the server of `data` is. Starts, waits for and changes nothing."""
    data = place.own(data)
    with problems.explained(data):
        cluster = place.cluster_in(place.home_of(data))
        found = process.read_pid_file(cluster)
        # Asked as well: a server of another container has a number that means nothing here.
        if found and (process.lives(cluster, found.pid) or find(data)):
            return State.RUNS
        if os.path.lexists(place.stopped_file(data)) or not cluster.is_dir():
            return State.STOPPED
        # A server that did not get up again removes its number, as one that was stopped does; the control file tells them apart.
        return State.STOPPED if found is None and clusters.is_shut_down(cluster) else State.DIED


def revive(data: Path, say: Say = _silent) -> Server | None:
    """Start the server of `data` again if it died, unless another process has done so. None: it was stopped, and stays down."""
    data = place.own(data)
    with problems.explained(data):
        if state(data) is State.STOPPED:
            return None
        with files.locked(place.lock_file(data), _waiting(data, say)) as lock:
            if state(data) is State.STOPPED:
                return None
            return find(data) or _start(data, lock, {}, say)


def find(data: Path) -> Server | None:
    """The server of `data` if it runs and takes connections. Starts, waits for and changes nothing."""
    data = place.own(data)
    with problems.explained(data):
        cluster = place.cluster_in(place.home_of(data))
        found = process.read_pid_file(cluster)
        if found is None or not found.ready:
            return None
        server = process.describe(data, cluster, found, programs.wheel().bin)
        return server if process.ping(server, cluster.stat().st_uid) == pq.Ping.OK else None


def stop(data: Path, say: Say = _silent, timeout: float = 60.0) -> bool:
    """Stop the server of `data`, cutting its connections. False if it did not run.

    After: no server of `data` runs, everything that was committed is on disk, and no process that watches the server starts it again.
    """
    data = place.own(data)
    with problems.explained(data):
        cluster = place.cluster_in(place.home_of(data))
        if not cluster.is_dir():
            return False
        with files.locked(place.lock_file(data), _waiting(data, say)):
            owner = data.stat()
            files.write(place.stopped_file(data), "`holdfast db stop`\n", uid=owner.st_uid, gid=owner.st_gid)
            found = process.read_pid_file(cluster)
            if found is None or not process.lives(cluster, found.pid):
                return False
            process.end(cluster, found.pid, timeout, say)
            return True


def _waiting(data: Path, say: Say) -> Patience:
    return Patience(say, f"Waiting for another process that starts or stops PostgreSQL in {data} …")


def _start(data: Path, lock: int, extra: Mapping[str, str], say: Say) -> Server:
    """Everything from an empty folder to a server that lets us in. Call it under the lock."""
    began = time.monotonic()
    cluster = place.cluster_in(place.home_of(data))
    if cluster.is_dir():
        clusters.check(cluster)
    here = place.settle(data, say)
    # Nobody writes these any more: a program that outlived its parent would still hold the lock.
    for folder, prefix in (
        (data, "postgres"),
        (here.home, "postgres"),
        (here.cluster, "holdfast."),
        (here.cluster, "pg_"),
    ):
        files.remove_unfinished(folder, prefix)
    bin_folder = programs.wheel().bin
    found = None
    while found is None:
        if server := process.join(here, bin_folder, say):
            return server
        binaries, version = programs.usable(here.account, _shelves(here), say)
        clusters.ensure(here, binaries, lock, say)
        found = process.start(here, binaries, extra, say)
    server = process.connected(process.describe(data, here.cluster, found, bin_folder))
    took = time.monotonic() - began
    say(f"Started PostgreSQL {version} in {here.cluster} in {took:.1f} s (stop it with `holdfast db stop`).")
    return server


def _shelves(here: Place) -> Iterator[Path]:
    """Folders for a copy of the binaries, the one that all data folders share first."""
    if shared := place.shared_folder():
        yield shared
    if accounts.can_enter(here.account, here.data):
        yield here.data
