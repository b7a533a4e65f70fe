"""The access log of the simulated sites, written by the server: the evidence for checks of a crawl.

The rule: one line per request, written when it ended, with its start time of a clock that runs during suspend (CLOCK_BOOTTIME, the same
in all processes of a machine). Values from the client are escaped and cannot break out of their field.
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
_FIELDS: Final = 12


def boot_ns() -> int:
    """The current time of the log's clock, in nanoseconds."""
    return time.clock_gettime_ns(_BOOT)


@dataclass(frozen=True, slots=True)
class Hit:
    """One request as recorded by the server."""

    at: float
    """When the request was read, in seconds of CLOCK_BOOTTIME."""
    ended_at: float
    """When the response was sent completely, or the client disconnected."""
    wall: float
    """`at` as seconds since 1970."""
    method: str
    host: str
    """The Host header, in lower case."""
    path: str
    """With the query."""
    status: int
    """0: no response, or an incomplete one."""
    connection: int
    in_flight: int
    """Requests to this host in progress when it began, including itself."""
    retry_after: int | None
    """The Retry-After of the response, in seconds."""
    agent: str
    late: float = 0.0
    """Seconds by which `at` may be after the arrival of the request, since the server stood still."""

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"


def format_line(
    began: int, ended: int, wall: int, method: str, host: str, path: str, status: int, connection: int, in_flight: int,
    retry_after: int | None, agent: str, late: int = 0,
) -> str:  # fmt: skip
    """Format a line of the log. Times are in nanoseconds."""
    return (
        f"{began}\t{ended}\t{wall}\t{_escape(method)}\t{_escape(host)}\t{_escape(path)}\t{status}\t{connection}\t{in_flight}\t"
        f"{'-' if retry_after is None else retry_after}\t{_escape(agent)}\t{late}\n"
    )


def _escape(text: str) -> str:
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def parse_lines(lines: Iterable[str]) -> Iterator[Hit]:
    """Parse the lines of a log; an incomplete line (the server was killed while writing) is skipped."""
    for text in lines:
        fields = text.rstrip("\n").split("\t")
        if len(fields) != _FIELDS or not text.endswith("\n"):
            continue
        began, ended, wall, method, host, path, status, connection, in_flight, retry_after, agent, late = fields
        yield Hit(
            int(began) / 1e9, int(ended) / 1e9, int(wall) / 1e9, method, host, path, int(status), int(connection), int(in_flight),
            None if retry_after == "-" else int(retry_after), agent, int(late) / 1e9,
        )  # fmt: skip


def read_file(path: Path) -> list[Hit]:
    """Read all requests of a log, in the order of their start."""
    with path.open(encoding="ascii", newline="\n") as lines:
        return sorted(parse_lines(lines), key=lambda hit: hit.at)


class AccessLog:
    """Appends to a file, or discards if the path is None. Lines are buffered until `flush`, which the server calls within 50 ms."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o644)
        self._buffer: list[str] = []

    def add(self, text: str) -> bool:
        """After: the line is buffered. Returns True if it is the first in the buffer: the caller schedules a flush."""
        if self._file is None:
            return False
        self._buffer.append(text)
        return len(self._buffer) == 1

    def flush(self) -> None:
        """After: every buffered line is in the file."""
        if self._file is None or not self._buffer:
            return
        rest = memoryview("".join(self._buffer).encode("ascii"))
        self._buffer.clear()
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        """After: all lines are written and the file is closed."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None
