"""The outcome of each URL, a line each (`crawl -v`): sent from the process that crawls to the one that has the terminal.

The rule: a worker reports a URL after its outcome is committed, and never waits for the reader: a thread writes to the pipe. Worker
processes share one pipe; a line is shorter than what a pipe takes as a whole, so lines of several workers do not mix.
"""

import json
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from rich.text import Text

from holdfast.cli import output
from holdfast.cli.output import size
from holdfast.model.batch import UrlOutcome
from holdfast.model.outcome import TREATMENT

PATIENCE: Final = 5.0
"""Seconds that a worker which ends waits for its last lines to be read."""
_LONGEST: Final = 2000
"""Characters of a URL or a detail on the pipe; four bytes each at most would be too many, so longer lines are cut again."""
_WHOLE: Final = 4096
"""Bytes that a pipe takes as a whole (PIPE_BUF on Linux)."""


@dataclass(frozen=True, slots=True)
class UrlLine:
    """The outcome of one URL."""

    url: str
    outcome: str
    status: int | None = None
    milliseconds: int | None = None
    """None: it was not asked for."""
    bytes: int | None = None
    detail: str = ""
    error: bool = False

    @classmethod
    def of(cls, outcome: UrlOutcome) -> "UrlLine":
        """The line of an outcome."""
        asked = outcome.fetched
        return cls(
            outcome.url,
            str(outcome.outcome),
            outcome.status,
            outcome.duration_ms if asked else None,
            outcome.bytes if asked else None,
            (outcome.reason or "").partition(": ")[2],
            TREATMENT[outcome.outcome].error,
        )


def render(line: UrlLine) -> Text:
    """A URL with its outcome: status, outcome, time, bytes."""
    style = "red" if line.error else "green" if line.outcome in {"ok", "not_modified"} else "yellow"
    took = "-" if line.milliseconds is None else f"{line.milliseconds / 1000:.2f} s"
    length = "-" if line.bytes is None else size(line.bytes)
    told = Text.assemble(
        (f"{line.status or '-':>3} ", style),
        (f"{line.outcome:<17} ", style),
        f"{took:>8} {length:>9}  ",
        output.safe(line.url),
    )
    return told.append(f"  {output.safe(line.detail)}", "dim") if line.detail else told


class PipeWriter:
    """Writes lines to a pipe, in a thread of its own."""

    def __init__(self, file: int) -> None:
        """`file`: the number of the open pipe."""
        self._file = file
        self._lines: queue.SimpleQueue[UrlLine | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="url lines", daemon=True)
        self._thread.start()

    def report(self, outcomes: Sequence[UrlOutcome]) -> None:
        """Write a line for each. Returns at once."""
        for outcome in outcomes:
            self._lines.put(UrlLine.of(outcome))

    def close(self) -> None:
        """After: all lines are written, or the reader is gone or too slow."""
        self._lines.put(None)
        self._thread.join(PATIENCE)

    def _write(self) -> None:
        with suppress(OSError):  # the reader has gone
            while (line := self._lines.get()) is not None:
                data = encode(line)
                while data:
                    data = data[os.write(self._file, data) :]


def encode(line: UrlLine) -> bytes:
    """A line for the pipe: JSON, never longer than what a pipe takes as a whole."""
    for longest in (_LONGEST, _LONGEST // 4, _LONGEST // 20):
        cut = asdict(line) | {"url": line.url[:longest], "detail": line.detail[:longest]}
        data = json.dumps(cut, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if len(data) <= _WHOLE:
            return data
    return b""


class PipeReader:
    """Reads lines of worker processes, in a thread of its own. `write_end` is for the workers."""

    def __init__(self, listed: Callable[[Iterable[UrlLine]], None]) -> None:
        self._listed = listed
        self._read_end, self.write_end = os.pipe()
        self._thread = threading.Thread(target=self._read, name="url lines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Before: the workers have ended. After: every line of theirs was passed on."""
        os.close(self.write_end)
        self._thread.join(PATIENCE)

    def _read(self) -> None:
        with os.fdopen(self._read_end, "rb") as lines:
            for line in lines:
                with suppress(ValueError, TypeError):  # a worker was killed in the middle of a line
                    self._listed([UrlLine(**json.loads(line))])
