"""The log of a proxy: who asked it for what, and what became of that.

The rule: a line is in the file before the next thing is done, so a kill loses nothing; a name of a user is in it, a password never. A
request has several lines (it came, it was decided, it ended), which `read` puts together.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from holdfast.simweb.log import boot_ns


class Entry:
    """A request under way."""

    def __init__(self, log: "ProxyLog", number: str) -> None:
        self._log, self._number = log, number

    def note(self, **facts: object) -> None:
        """After: the log says this of the request, too."""
        self._log.write({"id": self._number, **facts})


class ProxyLog:
    """Appends to a file, or to nothing."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o644)
        self._count = 0

    def open(self, method: str, target: str, did: str, user: str | None = None) -> Entry:
        """After: the log says that a request came."""
        self._count += 1
        entry = Entry(self, f"{os.getpid()}.{boot_ns()}.{self._count}")
        entry.note(at=boot_ns() / 1e9, wall=time.time(), method=method, target=target, user=user, did=did)
        return entry

    def write(self, facts: dict[str, object]) -> None:
        """After: one more line is in the file."""
        if self._file is not None:
            os.write(self._file, json.dumps(facts).encode() + b"\n")

    def close(self) -> None:
        """After: the file is closed, and nothing is written any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read(path: Path) -> list[dict[str, Any]]:
    """Every request in the order in which they came; a line that is not whole (the proxy was killed in it) is left out.

    `at` is when it came in seconds of the access log's clock, `wall` since 1970, `ended_at` when it ended (None: it has not), `method`
    that of HTTP, SOCKS, or empty if nothing was read, `target` what was asked for, `user` who asked, `did` what the proxy did, `status`
    what it answered (for SOCKS the reply), `received` and `sent` the bytes from and to the client.
    """
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            facts = json.loads(line)
            blank = {"ended_at": None, "status": None, "received": 0, "sent": 0}
            found.setdefault(facts.pop("id"), blank).update(facts)
    return list(found.values())
