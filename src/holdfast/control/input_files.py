"""Lists in files, one entry a line: opened, unpacked, and read line by line, however long they are.

The rule: memory does not grow with the file. An invalid line is counted, and reported with its number; so is a damaged end of a file, and
what was read before it stays.
"""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.errors import UsageError
from holdfast.jobs.records import BadLine

BAD_LINES_KEPT: Final = 1_000


class Damaged(Exception):
    """The file cannot be read any further."""


@dataclass(slots=True)
class Progress:
    """The progress of reading a list."""

    lines: int = 0
    bad: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    """The first ones; `bad` counts them all."""
    stopped: str | None = None
    """Why the rest of the file could not be read; what was read before is in the database."""

    def refuse(self, problem: str) -> None:
        """Count the present line as invalid."""
        self.bad += 1
        if len(self.bad_lines) < BAD_LINES_KEPT:
            self.bad_lines.append(BadLine(self.lines, problem))

    def stop(self, problem: Damaged) -> None:
        """Note that the file is damaged from here on."""
        self.stopped = f"Reading stopped after line {self.lines}: {problem}."


def opened(name: str, what: str, *, is_a: str = "") -> tuple[BinaryIO, int | None]:
    """Open the file called `name` (`-` is standard input); returns also its size if known. Raises UsageError. `is_a`: before its name."""
    if name == "-":
        if sys.stdin is None:
            raise UsageError(f"There is no standard input to read {what} from.")
        return sys.stdin.buffer, None
    path = Path(name)
    try:
        file = path.open("rb")
        found = os.fstat(file.fileno())
    except OSError as problem:
        raise UsageError(f"{is_a}{name} cannot be read: {problem.strerror}. Check the path.") from problem
    return file, found.st_size if stat.S_ISREG(found.st_mode) else None


def lines(
    file: "io.BufferedReader[Any]", longest: int, check: Callable[[bytes], None] = lambda _: None, looked_at: int = 0
) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is gzip; one that is too long is cut, so it is invalid but harmless. Raises Damaged.

    `check` is called with the first `looked_at` bytes.
    """
    try:
        packed = file.peek(2).startswith(b"\x1f\x8b")
        source: BinaryIO = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
        check(source.peek(looked_at))  # type: ignore[attr-defined]
        while line := source.readline(longest):
            cut = line
            while len(cut) == longest and not cut.endswith(b"\n"):
                cut = source.readline(longest)
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise Damaged("the gzip file is damaged or incomplete") from problem
    except OSError as problem:
        raise Damaged(problem.strerror or problem) from problem
