"""A PostgreSQL that is not ours, as a shared server: Debian's packages where they are installed, with a role that may do little."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "canary-5f1c9a"
"""Of the role that owns the database; it must be nowhere in a store, a log or an output."""


@dataclass(frozen=True)
class SharedServer:
    """A running server with a database for an ordinary role."""

    port: int
    major: int

    @property
    def url(self) -> str:
        return f"postgresql://crawler:{PASSWORD}@127.0.0.1:{self.port}/crawls"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}/crawls"


def debian(major: int) -> Path | None:
    """The programs of Debian's package; None: it is not installed."""
    folder = Path(f"/usr/lib/postgresql/{major}/bin")
    return folder if (folder / "postgres").exists() else None


@contextmanager
def started(programs: Path) -> Iterator[SharedServer]:
    """Run it in a new folder on a free port of loopback, as an ordinary user, until the end of the block."""
    folder = Path(
        tempfile.mkdtemp(prefix="holdfast-shared-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"

    def run(*arguments: object) -> None:
        subprocess.run([*map(str, arguments)], check=True, capture_output=True, cwd=folder, timeout=120, **who)

    try:
        run(programs / "initdb", "-D", data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        (data / "pg_hba.conf").write_text(
            "local all admin trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="ascii"
        )
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off -c shared_buffers=64MB"
        run(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start")
        _set_up(folder, port)
        with psycopg.connect(f"postgresql://admin@/postgres?host={folder}&port={port}") as connection:
            yield SharedServer(port, connection.info.server_version // 10000)
    finally:
        if (data / "postmaster.pid").exists():
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def _set_up(folder: Path, port: int) -> None:
    statements: Sequence[str] = (
        f"CREATE ROLE crawler LOGIN PASSWORD '{PASSWORD}' NOSUPERUSER",
        "CREATE DATABASE crawls OWNER crawler",
    )
    with psycopg.connect(f"postgresql://admin@/postgres?host={folder}&port={port}", autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
