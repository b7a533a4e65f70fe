"""Bundled servers as tests start, ask, kill and remove them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from holdfast.db import embedded
from holdfast.db.embedded import layout, process, safe_files
from holdfast.db.embedded.process import Server

CHILD = """
import sys, time
from pathlib import Path
from holdfast.errors import EmbeddedServerError
from holdfast.db import embedded
print("begin", flush=True)
try:
    print(getattr(embedded, sys.argv[3])(Path(sys.argv[1])).pid, flush=True)
except EmbeddedServerError as error:
    print(error, flush=True)
time.sleep(float(sys.argv[2]))
"""


SOURCES = os.pathsep.join([str(Path(embedded.__file__).parents[3]), os.environ.get("PYTHONPATH", "")])


def child(
    data: Path, *, stay: float = 0.0, env: dict[str, str] | None = None, call: str = "ensure_running"
) -> subprocess.Popen[str]:
    """A process of its own session that makes the server run, says so, and stays for a while."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(data), str(stay), call],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES, **(env or {})},
        start_new_session=True,
    )


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through (pytest's own are closed), gone afterwards with servers in it."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast test ", dir="/tmp")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for lock in folder.rglob("postgres.lock"):
            remove(lock.parent)
        shutil.rmtree(folder)


def remove(data: Path) -> None:
    """Stop the server of `data` and remove all that it left outside of `data`."""
    embedded.stop(data)
    home = layout.home_of(data)
    with suppress(FileNotFoundError):
        shutil.rmtree(safe_files.read(home / "postgres" / "holdfast.socket").strip())
    if home != data:
        shutil.rmtree(home)


def query(server: Server, sql: str, *, admin: bool = False) -> object:
    with psycopg.connect(server.admin_url() if admin else server.url(), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def kill(server: Server) -> None:
    """kill -9 of the postmaster."""
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not process.is_alive(server.cluster, server.pid))


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


@contextmanager
def data_in_memory() -> Iterator[Path]:
    """A data folder that the server's user can reach, as a checkout outside a home folder would be; stopped and gone
    afterwards. In memory where there is such a thing: a copy of the template is 300 files, 50 ms there and ten times that on
    a disk."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-tests-", dir=memory if os.access(memory, os.W_OK) else None))
    folder.chmod(0o755)
    try:
        yield folder / "data"
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder)
