"""One line per URL with its outcome (`crawl -v`), sent from worker processes to the process with the terminal.

The rule: a worker reports a URL after its outcome is committed, and never waits for the reader: a thread writes to the pipe. Worker
processes share one pipe; a line is not longer than PIPE_BUF, so lines of several workers do not mix.
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
from holdfast.cli.output import format_bytes
from holdfast.model.commit_batch import UrlOutcome
from holdfast.model.outcome import TREATMENT

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that a worker waits at its end for its last lines to be read."""
_MAX_CHARACTERS: Final = 2000
"""Characters of a URL or a detail on the pipe; a line that is still too long in bytes is cut again."""
_PIPE_BUF: Final = 4096
"""Bytes that a pipe writes atomically (on Linux)."""


@dataclass(frozen=True, slots=True)
class UrlLine:
    """The outcome of one URL."""

    url: str
    outcome: str
    status: int | None = None
    milliseconds: int | None = None
    """None: no request was sent."""
    bytes: int | None = None
    detail: str = ""
    error: bool = False

    @classmethod
    def from_outcome(cls, outcome: UrlOutcome) -> "UrlLine":
        """The line of an outcome."""
        fetched = outcome.fetched
        return cls(
            outcome.url,
            str(outcome.outcome),
            outcome.status,
            outcome.duration_ms if fetched else None,
            outcome.bytes if fetched else None,
            (outcome.reason or "").partition(": ")[2],
            TREATMENT[outcome.outcome].error,
        )


def render(line: UrlLine) -> Text:
    """The line as text: status, outcome, seconds, bytes, URL."""
    style = "red" if line.error else "green" if line.outcome in {"ok", "not_modified"} else "yellow"
    took = "-" if line.milliseconds is None else f"{line.milliseconds / 1000:.2f} s"
    length = "-" if line.bytes is None else format_bytes(line.bytes)
    text = Text.assemble(
        (f"{line.status or '-':>3} ", style),
        (f"{line.outcome:<17} ", style),
        f"{took:>8} {length:>9}  ",
        output.safe(line.url),
    )
    return text.append(f"  {output.safe(line.detail)}", "dim") if line.detail else text


class PipeWriter:
    """Writes lines to a pipe, in a thread of its own."""

    def __init__(self, file: int) -> None:
        """`file`: the file descriptor of the pipe."""
        self._file = file
        self._lines: queue.SimpleQueue[UrlLine | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="url lines", daemon=True)
        self._thread.start()

    def report(self, outcomes: Sequence[UrlOutcome]) -> None:
        """Queue a line for each outcome. Returns at once."""
        for outcome in outcomes:
            self._lines.put(UrlLine.from_outcome(outcome))

    def close(self) -> None:
        """After: all lines are written, or the reader has closed the pipe or takes longer than CLOSE_TIMEOUT."""
        self._lines.put(None)
        self._thread.join(CLOSE_TIMEOUT)

    def _write(self) -> None:
        with suppress(OSError):  # the reader has gone
            while (line := self._lines.get()) is not None:
                data = encode(line)
                while data:
                    data = data[os.write(self._file, data) :]


def encode(line: UrlLine) -> bytes:
    """The line as JSON, never longer than PIPE_BUF."""
    for longest in (_MAX_CHARACTERS, _MAX_CHARACTERS // 4, _MAX_CHARACTERS // 20):
        cut = asdict(line) | {"url": line.url[:longest], "detail": line.detail[:longest]}
        data = json.dumps(cut, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if len(data) <= _PIPE_BUF:
            return data
    return b""


class PipeReader:
    """Reads lines of worker processes, in a thread of its own. The workers write to `write_end`."""

    def __init__(self, listed: Callable[[Iterable[UrlLine]], None]) -> None:
        self._listed = listed
        self._read_end, self.write_end = os.pipe()
        self._thread = threading.Thread(target=self._read, name="url lines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Before: the workers have ended. After: every line of theirs was passed on."""
        os.close(self.write_end)
        self._thread.join(CLOSE_TIMEOUT)

    def _read(self) -> None:
        with os.fdopen(self._read_end, "rb") as lines:
            for line in lines:
                with suppress(ValueError, TypeError):  # a worker was killed in the middle of a line
                    self._listed([UrlLine(**json.loads(line))])
