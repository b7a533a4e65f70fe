"""The server process: recognising, starting, waiting for and stopping it.

Owns postmaster.pid and the lock that a living server holds. One rule: files of a dead server are removed only by
whoever holds that lock, which the kernel gives to nobody while any process of the old server lives.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import psycopg
from psycopg import pq

from holdfast.errors import EmbeddedServerError
from holdfast.store.embedded import account as accounts
from holdfast.store.embedded import config, files, place, problems, sockets
from holdfast.store.embedded.binaries import Binaries
from holdfast.store.embedded.files import Patience, Say
from holdfast.store.embedded.place import Place
from holdfast.store.embedded.server import Server

_ORPHANS = 30.0  # seconds that the processes of a killed postmaster get to notice it
_SILENCE = 60.0  # seconds that a server which calls itself ready may leave us without an answer
_STILL_IN_USE = "pre-existing shared memory block"


@dataclass(frozen=True, slots=True)
class PidFile:
    """What postmaster.pid says. It may be stale."""

    pid: int
    socket_dir: Path
    ready: bool


def read_pid_file(cluster: Path) -> PidFile | None:
    """None if there is none, or one that the server has not finished writing."""
    try:
        lines = files.read(cluster / "postmaster.pid").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(lines) < 8 or not lines[0].isdecimal():
        return None
    return PidFile(int(lines[0]), Path(lines[4]), lines[7].strip() == "ready")


def lives(cluster: Path, pid: int) -> bool:
    """Whether `pid` is a living PostgreSQL of this cluster, not a zombie and not somebody who got its number."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or process.name() != "postgres":
            return False
        try:
            return bool(process.cwd() == os.path.realpath(cluster))
        except psutil.AccessDenied:  # root in a container without CAP_SYS_PTRACE; the command line is open to all
            return str(cluster) in process.cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def describe(data: Path, cluster: Path, found: PidFile, bin_folder: Path) -> Server:
    passfile = place.password_file(data)
    return Server(cluster, bin_folder, found.socket_dir, found.pid, passfile if passfile.exists() else None)


def ping(server: Server, owner: int) -> pq.Ping:
    """Ask the server whether it takes connections, if its socket folder is one that only its user can have made."""
    if not files.is_private(server.socket_dir, owner):
        return pq.Ping.NO_RESPONSE
    return pq.Ping(pq.PGconn.ping(f"{server.admin_url()}&connect_timeout=5".encode()))


def connected(server: Server) -> Server:
    """The same server, proven to let us in."""
    try:
        psycopg.connect(server.admin_url(), connect_timeout=10).close()
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise EmbeddedServerError(
            f"PostgreSQL runs in {server.cluster} but does not let user {problems.me()} in ({reason}): "
            "restart it with `holdfast db stop`, and look at PG* variables in the environment."
        ) from error
    return server


def join(here: Place, bin_folder: Path, say: Say) -> Server | None:
    """Wait for a living server that is not ready for us: it starts, recovers or stops. Call it under the lock.

    After: the server answers, or (None) no server of this cluster lives. One whose socket has vanished is stopped,
    since nobody can reach it any more, and so is one whose socket folder is not private any more.
    """
    cluster = here.cluster
    patience = Patience(say, f"Waiting for PostgreSQL in {cluster}, which starts, recovers or stops …")
    silent_since: float | None = None
    while (found := read_pid_file(cluster)) and lives(cluster, found.pid):
        patience.pause()
        if not found.ready:
            continue
        server = describe(here.data, cluster, found, bin_folder)
        answer = ping(server, here.account.uid)
        if answer == pq.Ping.OK:
            return connected(server)
        if answer == pq.Ping.REJECT:
            continue
        if not sockets.usable(found.socket_dir, here.account.uid):
            say(f"The socket folder {found.socket_dir} has vanished or is open to others: restarting PostgreSQL.")
            end(cluster, found.pid, _SILENCE, say)
            return None
        silent_since = silent_since or time.monotonic()
        if time.monotonic() - silent_since > _SILENCE:
            raise EmbeddedServerError(
                f"PostgreSQL in {cluster} (process {found.pid}) lives but has not answered for {_SILENCE:.0f} s: "
                "see whether it is suspended or the machine overloaded, or end it."
            )
    return None


def start(here: Place, binaries: Binaries, extra: Mapping[str, str], say: Say) -> PidFile | None:
    """Start the server of a cluster, mending what a killed one left behind. Call it under the lock.

    Before: the cluster is complete and no postmaster of it lives. After: the server takes connections, in a session of
    its own, whatever becomes of us; or it does not run and the reason is raised. None if a server turns up meanwhile,
    left in its first milliseconds by a starter that was killed: join it.
    """
    socket_dir = sockets.choose(here)
    config.write(here.cluster, here.account, password=place.password_file(here.data).exists())
    deadline = time.monotonic() + _ORPHANS
    while True:
        sizes = _log_sizes(here.cluster)
        process = _launch(here, binaries, socket_dir, extra, deadline, say)
        if process is None:
            return None
        found = _await_ready(here.cluster, process, say)
        if found:
            return found
        text = _said(here, sizes)
        if _STILL_IN_USE not in text or time.monotonic() > deadline:
            raise problems.from_output(text, "The start of PostgreSQL", here.cluster, here.start_log)
        time.sleep(0.2)


def _launch(
    here: Place, binaries: Binaries, socket_dir: Path, extra: Mapping[str, str], deadline: float, say: Say
) -> subprocess.Popen[bytes] | None:
    """Start the postmaster with the lock of the living in its hands; its children inherit it. None: another has it."""
    # What makes it private is on the command line, where no configuration file can change it.
    settings = {
        "listen_addresses": "",
        "port": str(sockets.PORT),
        "unix_socket_directories": config.quoted_folders(socket_dir),
        "unix_socket_permissions": "0700",
        **extra,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    alive = files.open_lock(here.cluster / "holdfast.alive")
    try:
        if not _await_orphans(here, alive, deadline, say):
            return None
        # A reused process number would make PostgreSQL take these for those of a living server.
        for stale in (here.cluster / "postmaster.pid", socket_dir / f"{sockets.SOCKET}.lock"):
            stale.unlink(missing_ok=True)
        with _fresh(here.start_log) as output:
            process = accounts.popen(
                here.account,
                [binaries.postgres, "-D", here.cluster, *options],
                cwd=here.cluster,
                keep=[alive],
                output=output,
            )
    finally:
        os.close(alive)
    # It stays our child as long as we live: somebody must take its exit code, or a dead server would remain a zombie.
    threading.Thread(target=process.wait, name="holdfast-postgres", daemon=True).start()
    return process


def _await_orphans(here: Place, alive: int, deadline: float, say: Say) -> bool:
    """Take the lock of the living, which the processes of a killed postmaster hold until they notice and end.

    False if it is held because a postmaster lives, which can be joined.
    """
    patience = Patience(say, f"Waiting for the last processes of a killed PostgreSQL in {here.cluster} to end …")
    while not files.try_lock(alive):
        found = read_pid_file(here.cluster)
        if found and lives(here.cluster, found.pid):
            return False
        if time.monotonic() > deadline:
            pids = [str(pid) for pid in psutil.pids() if lives(here.cluster, pid)]
            who = f"processes {', '.join(pids)}" if pids else "perhaps in another container"
            raise EmbeddedServerError(
                f"An earlier PostgreSQL still uses {here.cluster} ({who}): end it there, then try again."
            )
        patience.pause()
    return True


def _await_ready(cluster: Path, process: subprocess.Popen[bytes], say: Say) -> PidFile | None:
    """Wait until the server that we started takes connections; None if it ended instead.

    There is no time limit: recovery after a crash takes as long as it takes, and giving up would help nobody.
    """
    patience = Patience(say, f"PostgreSQL starts in {cluster}; after a crash it recovers first …")
    while process.poll() is None:
        found = read_pid_file(cluster)
        if found and found.pid == process.pid and found.ready:
            return found
        patience.pause()
    return None


def _fresh(log: Path) -> IO[bytes]:
    """An empty private file in place of an earlier one, which may be another user's."""
    log.unlink(missing_ok=True)
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _log_sizes(cluster: Path) -> dict[Path, int]:
    return {log: log.lstat().st_size for log in (cluster / "log").glob("*.log")}


def _said(here: Place, sizes: Mapping[Path, int]) -> str:
    """All that the server said in this attempt, before and after its own log began."""
    texts = [files.read(here.start_log)]
    texts += [files.read(log, sizes.get(log, 0)) for log in _log_sizes(here.cluster)]
    return "\n".join(texts)


def end(cluster: Path, pid: int, timeout: float, say: Say) -> None:
    """Stop a server: open transactions roll back, everything committed is on disk.

    Before: `pid` lives as this cluster's postmaster. After: it is gone, or an error says that it is not.
    """
    patience = Patience(say, f"Waiting for PostgreSQL in {cluster} to write its last checkpoint and stop …")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    while lives(cluster, pid):
        if patience.waited > timeout:
            raise EmbeddedServerError(
                f"PostgreSQL in {cluster} (process {pid}) has not stopped within {timeout:.0f} s: "
                "wait for its checkpoint, or see whether it is suspended."
            )
        patience.pause()
