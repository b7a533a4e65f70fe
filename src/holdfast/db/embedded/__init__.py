"""The bundled PostgreSQL: started when it is needed, shared by all processes, private to its user.

One server per data folder. The rule: any number of processes may call these functions at any moment and be killed at
any moment; the next call finds a running server, starts one, or raises one sentence that says why it cannot.

Reading order: `layout` (where the files are and who owns them), `os_user` (the user it runs as), `binaries`, `cluster`
(creation), `config`, `sockets`, `process` (start, wait, stop), `watchdog` (restarts it after a crash); `safe_files` and
`errors` serve them all.
"""

import os
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from psycopg import pq

from holdfast.db.embedded import binaries as programs
from holdfast.db.embedded import cluster as clusters
from holdfast.db.embedded import errors, layout, process, safe_files
from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded.layout import ServerLayout
from holdfast.db.embedded.process import Server
from holdfast.db.embedded.safe_files import Say, SlowWaitNotice
from holdfast.errors import EmbeddedServerError

__all__ = [
    "Server",
    "State",
    "ensure_running",
    "find",
    "is_created",
    "restart_if_died",
    "state",
    "stop",
    "wait_until_running",
]


class State(Enum):
    """The state of a data folder's server."""

    RUNS = "runs"
    """Its process is alive: it accepts connections, or is starting, recovering or stopping."""
    STOPPED = "stopped"
    """It was shut down cleanly, or never started."""
    DIED = "died"
    """It was killed or crashed; no operator stopped it."""


def _silent(_: str) -> None:
    """Report nothing."""


def ensure_running(data: Path, say: Say = _silent, extra_settings: Mapping[str, str] | None = None) -> Server:
    """Return the server of `data`; create its cluster and start it if needed.

    Before: any state, including what a killed process left. After: the server accepts connections and outlives the
    caller. `extra_settings` apply only when this call starts the server; they are for tests.
    """
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        layout.make_data(data, say)
        if server := find(data):
            return server
        with safe_files.locked(layout.lock_file(data), _lock_wait_notice(data, say)) as lock:
            layout.stopped_file(data).unlink(missing_ok=True)
            return find(data) or _start(data, lock, extra_settings or {}, say)


def wait_until_running(data: Path, timeout: float) -> Server:
    """Wait up to `timeout` seconds for the server of `data`, without starting it: the parent process runs its watchdog."""
    deadline = time.monotonic() + timeout
    while (server := find(data)) is None:
        if time.monotonic() > deadline:
            raise EmbeddedServerError(
                f"PostgreSQL in {data} does not run, and another process is responsible for starting it."
            )
        time.sleep(safe_files.PAUSE)
    return server


def state(data: Path) -> State:
    """The state of the server of `data`. Read-only: starts nothing and does not wait."""
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        cluster = layout.cluster_in(layout.home_of(data))
        found = process.read_pid_file(cluster)
        # The server is pinged too: the process id of a server in another container means nothing here.
        if found and (process.is_alive(cluster, found.pid) or find(data)):
            return State.RUNS
        if os.path.lexists(layout.stopped_file(data)) or not cluster.is_dir():
            return State.STOPPED
        # A server that failed to recover removes its pid file, as a stopped one does; the control file tells them apart.
        return State.STOPPED if found is None and clusters.is_shut_down(cluster) else State.DIED


def is_created(data: Path) -> bool:
    """Whether `data` has a cluster. Read-only."""
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        return layout.cluster_in(layout.home_of(data)).is_dir()


def restart_if_died(data: Path, say: Say = _silent) -> Server | None:
    """Restart the server of `data` after a crash, unless another process did. None: it was stopped, and stays down."""
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        if state(data) is State.STOPPED:
            return None
        with safe_files.locked(layout.lock_file(data), _lock_wait_notice(data, say)) as lock:
            if state(data) is State.STOPPED:
                return None
            return find(data) or _start(data, lock, {}, say)


def find(data: Path) -> Server | None:
    """The server of `data` if it accepts connections, else None. Read-only: starts nothing and does not wait."""
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        cluster = layout.cluster_in(layout.home_of(data))
        found = process.read_pid_file(cluster)
        if found is None or not found.ready:
            return None
        server = process.describe(data, cluster, found, programs.wheel().bin)
        return server if process.ping(server, cluster.stat().st_uid) == pq.Ping.OK else None


def stop(data: Path, say: Say = _silent, timeout: float = 60.0) -> bool:
    """Stop the server of `data` and close its connections. False if it did not run.

    After: no server of `data` runs, everything committed is on disk, and no watchdog restarts it. On a disk without one free byte, that the
    last is so may be impossible to note; then `say` gets it.
    """
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        cluster = layout.cluster_in(layout.home_of(data))
        if not cluster.is_dir():
            return False
        with safe_files.locked(layout.lock_file(data), _lock_wait_notice(data, say)):
            noted = _note_stop(data)
            found = process.read_pid_file(cluster)
            runs = found is not None and process.is_alive(cluster, found.pid)
            if found is not None and runs:
                process.terminate(cluster, found.pid, timeout, say)
            if not noted and not _note_stop(data):  # it has given up some bytes
                say(
                    f"The disk that holds {data} has no room to note that the server was stopped: `serve`, workers and crawls that run "
                    "there start it again. Make room, and stop it again."
                )
            return runs


def _note_stop(data: Path) -> bool:
    """Note that an operator has stopped the server; returns False on a disk without a byte for it."""
    marker, owner = layout.stopped_file(data), data.stat()
    try:
        safe_files.write(marker, "`holdfast db stop`\n", uid=owner.st_uid, gid=owner.st_gid)
    except OSError as problem:
        if not errors.is_full(problem):
            raise
        try:  # that it is there is enough, and an empty file may need no block
            fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as still:
            if not errors.is_full(still):
                raise
            return False
        try:
            if os.geteuid() != owner.st_uid:
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)
    return True


def _lock_wait_notice(data: Path, say: Say) -> SlowWaitNotice:
    return SlowWaitNotice(say, f"Waiting for another process that starts or stops PostgreSQL in {data} …")


def _start(data: Path, lock: int, extra: Mapping[str, str], say: Say) -> Server:
    """Create the cluster if needed, start the server and connect to it once. Before: the caller holds the start lock."""
    began = time.monotonic()
    cluster = layout.cluster_in(layout.home_of(data))
    if cluster.is_dir():
        clusters.check(cluster)
    here = layout.choose_layout(data, say)
    # No process still writes these: a program that outlived its parent would hold the lock.
    for folder, prefix in (
        (data, "postgres"),
        (here.home, "postgres"),
        (here.cluster, "holdfast."),
        (here.cluster, "pg_"),
    ):
        safe_files.remove_unfinished(folder, prefix)
    bin_folder = programs.wheel().bin
    found = None
    while found is None:
        if server := process.wait_for_existing(here, bin_folder, say):
            return server
        binaries, version = programs.usable(here.account, _copy_folders(here), say)
        clusters.ensure(here, binaries, lock, say)
        found = process.start(here, binaries, extra, say)
    server = process.check_connection(process.describe(data, here.cluster, found, bin_folder))
    took = time.monotonic() - began
    say(f"Started PostgreSQL {version} in {here.cluster} in {took:.1f} s (stop it with `holdfast db stop`).")
    return server


def _copy_folders(here: ServerLayout) -> Iterator[Path]:
    """Folders for a copy of the binaries; the one shared by all data folders comes first."""
    if shared := layout.shared_folder():
        yield shared
    if accounts.can_enter(here.account, here.data):
        yield here.data
