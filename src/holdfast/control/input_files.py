"""Input files with one entry per line: open, decompress, and read them line by line.

The rule: memory does not grow with the file. An invalid line is counted and reported with its number; a file that ends too early is
reported, too, and the lines before it are kept.
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
    """The progress of reading a file."""

    lines: int = 0
    bad: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    """The first ones; `bad` counts them all."""
    stopped: str | None = None
    """Why the rest of the file could not be read; what was read before is in the database."""

    def refuse(self, problem: str) -> None:
        """Count the current line as invalid."""
        self.bad += 1
        if len(self.bad_lines) < BAD_LINES_KEPT:
            self.bad_lines.append(BadLine(self.lines, problem))

    def stop(self, problem: Damaged) -> None:
        """Record that the file cannot be read any further."""
        self.stopped = f"Reading stopped after line {self.lines}: {problem}."


def opened(name: str, what: str, *, is_a: str = "") -> tuple[BinaryIO, int | None]:
    """Open the file `name` (`-` is standard input); return it, and its size if that is known. Raises UsageError. `is_a`: text before its
    name in the message."""
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
    """Yield the lines of a file, decompressed if it is gzip; a line longer than `longest` is truncated. Raises Damaged.

    `check` is called with the first `looked_at` bytes.
    """
    try:
        compressed = file.peek(2).startswith(b"\x1f\x8b")
        source: BinaryIO = gzip.GzipFile(fileobj=file) if compressed else file  # type: ignore[assignment]
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
