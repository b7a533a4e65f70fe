"""The access log: what a site saw. It is the judge of a crawl, so it is written by the server and read by nobody else's words.

The rule: one line for each request, written when it ended, with when it began by the clock that goes on in sleep (CLOCK_BOOTTIME, the same
in all processes of a machine). Whatever a client sends stays within its field.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_UNSAFE: Final = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
_FIELDS: Final = 11


def boot_ns() -> int:
    """Nanoseconds of the clock that the log is written by."""
    return time.clock_gettime_ns(_BOOT)


@dataclass(frozen=True, slots=True)
class Hit:
    """One request as the server saw it."""

    at: float
    """When it had been read, in seconds of CLOCK_BOOTTIME."""
    ended_at: float
    """When the last of the answer was handed over, or the client was gone."""
    wall: float
    """`at` as seconds since 1970."""
    method: str
    host: str
    """As the Host header said it, in lower case."""
    path: str
    """With the query."""
    status: int
    """0: no answer was given, or not all of it."""
    connection: int
    in_flight: int
    """Requests to this host under way when it began, itself included."""
    retry_after: int | None
    """What the answer told the client to wait, in seconds."""
    agent: str

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"


def line(
    began: int, ended: int, wall: int, method: str, host: str, path: str, status: int, connection: int, in_flight: int,
    retry_after: int | None, agent: str,
) -> str:  # fmt: skip
    """A request as the log keeps it. Times are nanoseconds."""
    return (
        f"{began}\t{ended}\t{wall}\t{_clean(method)}\t{_clean(host)}\t{_clean(path)}\t{status}\t{connection}\t{in_flight}\t"
        f"{'-' if retry_after is None else retry_after}\t{_clean(agent)}\n"
    )


def _clean(text: str) -> str:
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def read(lines: Iterable[str]) -> Iterator[Hit]:
    """The requests that whole lines tell of; a line that is not whole (the server was killed in it) is left out."""
    for text in lines:
        fields = text.rstrip("\n").split("\t")
        if len(fields) != _FIELDS or not text.endswith("\n"):
            continue
        began, ended, wall, method, host, path, status, connection, in_flight, retry_after, agent = fields
        yield Hit(
            int(began) / 1e9, int(ended) / 1e9, int(wall) / 1e9, method, host, path, int(status), int(connection), int(in_flight),
            None if retry_after == "-" else int(retry_after), agent,
        )  # fmt: skip


def read_file(path: Path) -> list[Hit]:
    """All requests in the order in which they began."""
    with path.open(encoding="ascii", newline="\n") as lines:
        return sorted(read(lines), key=lambda hit: hit.at)


class AccessLog:
    """Appends to a file, or to nothing. Lines wait in memory until `flush`, which the server calls within 50 ms."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o644)
        self._waiting: list[str] = []

    def add(self, text: str) -> bool:
        """After: the line waits. True if it is the first that does, so that somebody must see to its flush."""
        if self._file is None:
            return False
        self._waiting.append(text)
        return len(self._waiting) == 1

    def flush(self) -> None:
        """After: every line that waited is in the file."""
        if self._file is None or not self._waiting:
            return
        rest = memoryview("".join(self._waiting).encode("ascii"))
        self._waiting.clear()
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        """After: all is written, and the file is closed."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None
