"""The log of a proxy: its requests and their results.

The rule: each line is written before the next step, so a kill loses nothing; it has user names, never passwords. A request has several
lines (received, decided, ended), which `read_log` merges.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from holdfast.testing.simweb.access_log import boot_ns


class ProxyLogEntry:
    """The entry of a request in progress."""

    def __init__(self, log: "ProxyLog", number: str) -> None:
        self._log, self._number = log, number

    def add_facts(self, **facts: object) -> None:
        """After: the log has these facts about the request."""
        self._log.write({"id": self._number, **facts})


class ProxyLog:
    """Appends to a file, or discards if the path is None."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o644)
        self._count = 0

    def open(self, method: str, target: str, did: str, user: str | None = None) -> ProxyLogEntry:
        """After: the log has a new request."""
        self._count += 1
        entry = ProxyLogEntry(self, f"{os.getpid()}.{boot_ns()}.{self._count}")
        entry.add_facts(at=boot_ns() / 1e9, wall=time.time(), method=method, target=target, user=user, did=did)
        return entry

    def write(self, facts: dict[str, object]) -> None:
        """After: the line is in the file."""
        if self._file is not None:
            os.write(self._file, json.dumps(facts).encode() + b"\n")

    def close(self) -> None:
        """After: the file is closed, and further lines are discarded."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read all requests in the order of their arrival; an incomplete line (the proxy was killed while writing) is skipped.

    `at` is the time of arrival in seconds of the access log's clock, `wall` the same since 1970, `ended_at` the end (None: in progress),
    `method` that of HTTP, SOCKS, or empty if nothing was read, `target` the requested target, `user` the user name, `did` the action of
    the proxy, `status` its response (for SOCKS the reply), `received` and `sent` the bytes from and to the client.
    """
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            facts = json.loads(line)
            blank = {"ended_at": None, "status": None, "received": 0, "sent": 0}
            found.setdefault(facts.pop("id"), blank).update(facts)
    return list(found.values())
