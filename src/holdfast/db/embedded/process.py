"""The server process: detect, start, wait for and stop it.

Reads postmaster.pid and holds the lock of the running server. The rule: files of a dead server are removed only under
that lock, which the kernel grants to no other process while any process of the old server is alive.
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
from urllib.parse import quote, urlencode

import psutil
import psycopg
from psycopg import pq

from holdfast.db.embedded import config, errors, layout, safe_files, sockets
from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded.binaries import Binaries
from holdfast.db.embedded.layout import ServerLayout
from holdfast.db.embedded.safe_files import Say, SlowWaitNotice
from holdfast.db.embedded.sockets import PORT
from holdfast.errors import EmbeddedServerError

OWNER = "holdfast"  # the role that owns the database of the same name; it may do nothing else
SUPERUSER = "postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded server."""

    cluster: Path
    bin: Path
    socket_dir: Path
    pid: int
    passfile: Path | None = None

    def url(self, database: str = OWNER) -> str:
        """The libpq URL of `database` for the unprivileged role that owns Holdfast's tables."""
        return self._url(OWNER, database)

    def admin_url(self, database: str = "postgres") -> str:
        """The libpq URL of `database` for the superuser, for set-up and tests."""
        return self._url(SUPERUSER, database)

    def _url(self, role: str, database: str) -> str:
        # The port too: a PGPORT in the caller's environment would lead elsewhere.
        query = {"host": os.fsencode(self.socket_dir), "port": str(PORT)}
        if self.passfile:
            query["passfile"] = os.fsencode(self.passfile)
        return f"postgresql://{role}@/{quote(database, safe='')}?{urlencode(query, quote_via=quote, safe='/')}"


_ORPHAN_TIMEOUT = 30.0  # seconds that the processes of a killed postmaster get to notice it
_ANSWER_TIMEOUT = 60.0  # seconds that a server which calls itself ready may leave us without an answer
_STILL_IN_USE = "pre-existing shared memory block"


@dataclass(frozen=True, slots=True)
class PidFile:
    """The content of postmaster.pid. It may be stale."""

    pid: int
    socket_dir: Path
    ready: bool


def read_pid_file(cluster: Path) -> PidFile | None:
    """Parse postmaster.pid; None if it is missing or incomplete."""
    try:
        lines = safe_files.read(cluster / "postmaster.pid").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(lines) < 8 or not lines[0].isdecimal():
        return None
    return PidFile(int(lines[0]), Path(lines[4]), lines[7].strip() == "ready")


def is_alive(cluster: Path, pid: int) -> bool:
    """Whether `pid` is a running PostgreSQL of this cluster, not a zombie or another process that reused the id."""
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
    passfile = layout.password_file(data)
    return Server(cluster, bin_folder, found.socket_dir, found.pid, passfile if passfile.exists() else None)


def ping(server: Server, owner: int) -> pq.Ping:
    """Ping the server, provided that only its user can have created its socket folder."""
    if not safe_files.is_private(server.socket_dir, owner):
        return pq.Ping.NO_RESPONSE
    return pq.Ping(pq.PGconn.ping(f"{server.admin_url()}&connect_timeout=5".encode()))


def check_connection(server: Server) -> Server:
    """Return `server` after a test connection. Raises EmbeddedServerError if it is refused."""
    try:
        psycopg.connect(server.admin_url(), connect_timeout=10).close()
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise EmbeddedServerError(
            f"PostgreSQL runs in {server.cluster} but does not let user {errors.current_user_name()} in ({reason}): "
            "restart it with `holdfast db stop`, and look at PG* variables in the environment."
        ) from error
    return server


def wait_for_existing(here: ServerLayout, bin_folder: Path, say: Say) -> Server | None:
    """Wait for an existing server that is starting, recovering or stopping. Before: the caller holds the start lock.

    After: the server answers, or (None) no server of this cluster is alive. A server whose socket has vanished, or whose
    socket folder is not private any more, is stopped.
    """
    cluster = here.cluster
    patience = SlowWaitNotice(say, f"Waiting for PostgreSQL in {cluster}, which starts, recovers or stops …")
    silent_since: float | None = None
    while (found := read_pid_file(cluster)) and is_alive(cluster, found.pid):
        patience.pause()
        if not found.ready:
            continue
        server = describe(here.data, cluster, found, bin_folder)
        answer = ping(server, here.account.uid)
        if answer == pq.Ping.OK:
            return check_connection(server)
        if answer == pq.Ping.REJECT:
            continue
        if not sockets.usable(found.socket_dir, here.account.uid):
            say(f"The socket folder {found.socket_dir} has vanished or is open to others: restarting PostgreSQL.")
            terminate(cluster, found.pid, _ANSWER_TIMEOUT, say)
            return None
        silent_since = silent_since or time.monotonic()
        if time.monotonic() - silent_since > _ANSWER_TIMEOUT:
            raise EmbeddedServerError(
                f"PostgreSQL in {cluster} (process {found.pid}) lives but has not answered for {_ANSWER_TIMEOUT:.0f} s: "
                "see whether it is suspended or the machine overloaded, or end it."
            )
    return None


def start(here: ServerLayout, binaries: Binaries, extra: Mapping[str, str], say: Say) -> PidFile | None:
    """Start the server of a cluster and clean up after a killed one.

    Before: the caller holds the start lock; the cluster is complete and has no running postmaster. After: the server
    accepts connections, in a session of its own, and outlives this process; or it does not run and the reason is raised.
    None if a server appears meanwhile, started by a process that was killed: `wait_for_existing` applies.
    """
    socket_dir = sockets.choose_folder(here)
    config.write(here.cluster, here.account, password=layout.password_file(here.data).exists())
    deadline = time.monotonic() + _ORPHAN_TIMEOUT
    while True:
        sizes = _log_sizes(here.cluster)
        process = _launch(here, binaries, socket_dir, extra, deadline, say)
        if process is None:
            return None
        found = _await_ready(here.cluster, process, say)
        if found:
            return found
        text = _startup_output(here, sizes)
        if _STILL_IN_USE not in text or time.monotonic() > deadline:
            raise errors.from_output(text, "The start of PostgreSQL", here.cluster, here.start_log)
        time.sleep(0.2)


def _launch(
    here: ServerLayout, binaries: Binaries, socket_dir: Path, extra: Mapping[str, str], deadline: float, say: Say
) -> subprocess.Popen[bytes] | None:
    """Start the postmaster with the liveness lock, which its children inherit. None: another server holds it."""
    # Access settings go on the command line, where no configuration file can change them.
    settings = {
        "listen_addresses": "",
        "port": str(sockets.PORT),
        "unix_socket_directories": config.quoted_folders(socket_dir),
        "unix_socket_permissions": "0700",
        **extra,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    alive = safe_files.open_lock(here.cluster / "holdfast.alive")
    try:
        if not _await_orphans(here, alive, deadline, say):
            return None
        # With a reused process id PostgreSQL would take these files for those of a running server.
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
    # It stays a child of this process, which must collect its exit code: a dead server would remain a zombie.
    threading.Thread(target=process.wait, name="holdfast-postgres", daemon=True).start()
    return process


def _await_orphans(here: ServerLayout, alive: int, deadline: float, say: Say) -> bool:
    """Acquire the liveness lock, which the processes of a killed postmaster hold until they notice and exit.

    False if a running postmaster holds it.
    """
    patience = SlowWaitNotice(say, f"Waiting for the last processes of a killed PostgreSQL in {here.cluster} to end …")
    while not safe_files.try_lock(alive):
        found = read_pid_file(here.cluster)
        if found and is_alive(here.cluster, found.pid):
            return False
        if time.monotonic() > deadline:
            pids = [str(pid) for pid in psutil.pids() if is_alive(here.cluster, pid)]
            who = f"processes {', '.join(pids)}" if pids else "perhaps in another container"
            raise EmbeddedServerError(
                f"An earlier PostgreSQL still uses {here.cluster} ({who}): end it there, then try again."
            )
        patience.pause()
    return True


def _await_ready(cluster: Path, process: subprocess.Popen[bytes], say: Say) -> PidFile | None:
    """Wait until the server just started accepts connections; None if it exited instead.

    There is no timeout: recovery after a crash takes as long as it takes.
    """
    patience = SlowWaitNotice(
        say,
        f"Starting PostgreSQL in {cluster} …; if it was not shut down cleanly, it replays its log first, which may take minutes.",
    )
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


def _startup_output(here: ServerLayout, sizes: Mapping[Path, int]) -> str:
    """The server's output of this start, before and after its own log began."""
    texts = [safe_files.read(here.start_log)]
    texts += [safe_files.read(log, sizes.get(log, 0)) for log in _log_sizes(here.cluster)]
    return "\n".join(texts)


def terminate(cluster: Path, pid: int, timeout: float, say: Say) -> None:
    """Stop a server: open transactions roll back, everything committed is on disk.

    Before: `pid` is this cluster's running postmaster. After: it has exited; EmbeddedServerError if it has not after `timeout` seconds.
    """
    patience = SlowWaitNotice(say, f"Waiting for PostgreSQL in {cluster} to write its last checkpoint and stop …")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    while is_alive(cluster, pid):
        if patience.seconds > timeout:
            raise EmbeddedServerError(
                f"PostgreSQL in {cluster} (process {pid}) has not stopped within {timeout:.0f} s: "
                "wait for its checkpoint, or see whether it is suspended."
            )
        patience.pause()
