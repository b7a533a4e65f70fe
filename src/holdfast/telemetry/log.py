"""The program's own log: lines for people on standard error, or in a worker's file, with a time on each, also those of libraries.

The rule: a line is a line. Whatever crawled text is in it, control characters are shown, not sent, and it has an end. What comes from
one place in the code is one cause: after `LINES` in `WINDOW` seconds the rest is counted, and the count is one line.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from holdfast import private
from holdfast.telemetry import files

LINES: Final = 20
"""Lines of a cause in a window."""
WINDOW: Final = 60.0
LONGEST_MESSAGE: Final = 2_000
"""Characters of a message; a traceback has some more."""
LONGEST_TRACEBACK: Final = 8_000

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HEAD: Final = 200
"""Characters of the last line that was left out, in the line that counts them."""
_installed: list[logging.Handler] = []


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head, *rest = super().format(record).split("\n")
        # Only a traceback has lines of its own; in a message a line end is as suspect as any other control character.
        lines = [head, *(f"    {line}" for line in rest)]
        return "\n".join(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line) for line in lines)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — as its parent is called
        record.message = _short(record.message, LONGEST_MESSAGE)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 — as its parent is called
        told = super().formatException(ei)  # type: ignore[arg-type]  # whatever it is, its parent knows it
        return told if len(told) <= LONGEST_TRACEBACK else f"…\n{told[-LONGEST_TRACEBACK:]}"  # its end says what it is


class _StandardError(logging.StreamHandler[TextIO]):
    """Whatever standard error is when a line is written."""

    file: Path | None = None
    """The log that it is, if it is one."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
        if self.file is not None and files.is_full(2):
            both = files.is_same(self.file, 1)
            successor = files.successor(self.file, 2)
            if successor is not None:
                for descriptor in (1, 2) if both else (2,):
                    os.dup2(successor, descriptor)
                os.close(successor)


class _ToFile(logging.StreamHandler[TextIO]):
    """A log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(self._opened(files.open_log(path)))

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if files.is_full(self.stream.fileno()):
            successor = files.successor(self._path, self.stream.fileno())
            if successor is not None:
                self.stream.close()
                self.stream = self._opened(successor)

    def close(self) -> None:
        self.stream.close()
        super().close()

    @staticmethod
    def _opened(descriptor: int) -> TextIO:
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


@dataclass(slots=True)
class _Cause:
    """What was said of one cause in its window."""

    since: float
    lines: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None
    """Of those that were left out."""


class RateLimited(logging.Handler):
    """Passes on a limited number of lines per cause and window, then counts the rest."""

    def __init__(
        self, target: logging.Handler, *, window: float = WINDOW, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.target = target
        self._window = window
        self._clock = clock
        self._causes: dict[tuple[str, int, str], _Cause] = {}
        """By file, line and kind of exception, of which there are as many as the code has."""
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it."""
        now = self._clock()
        self._end_windows(now)
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        cause = self._causes.setdefault((record.pathname, record.lineno, kind), _Cause(now))
        if cause.lines < LINES:
            cause.lines += 1
            self.target.handle(record)
            return
        cause.left_out += 1
        cause.last = record
        if self._timer is None:  # lest the number wait for another line
            self._timer = threading.Timer(self._window, self._look)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Say what was left out so far, and end."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._end_windows(float("inf"))
        finally:
            self.release()
        self.target.close()
        super().close()

    def _look(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._end_windows(self._clock())
        finally:
            self.release()

    def _end_windows(self, now: float) -> None:
        over = [key for key, cause in self._causes.items() if now - cause.since >= self._window]
        for key in over:
            cause = self._causes.pop(key)
            if cause.last is not None:
                self.target.handle(_counted(cause.last, cause.left_out, self._window))


def set_up(file: Path | None = None) -> None:
    """Send the log, and that of libraries, to standard error or to a file."""
    target: logging.Handler = _StandardError()
    if file is not None:
        private.make_folder(file.parent)
        target = _ToFile(file)
    target.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    while _installed:
        old = _installed.pop()
        root.removeHandler(old)
        old.close()
    handler = RateLimited(target)
    root.addHandler(handler)
    _installed.append(handler)
    logging.getLogger("holdfast").setLevel(logging.INFO)
    logging.raiseExceptions = False  # a line that cannot be written, since the disk is full, must not write ten others


def keep_small(folder: Path) -> None:
    """Bound the file that standard error is, if it is one of the logs in a folder: the supervisor of this process opened it."""
    for handler in _installed:
        if isinstance(handler, RateLimited) and isinstance(handler.target, _StandardError):
            handler.target.file = next((file for file in folder.glob("*.log") if files.is_same(file, 2)), None)


def _counted(last: logging.LogRecord, count: int, window: float) -> logging.LogRecord:
    span = "minute" if window == WINDOW else f"{window:g} s"
    number = f"{count:,}".replace(",", " ")
    message = f"… {number} more in the last {span}, such as: {_short(last.getMessage(), _HEAD)}"
    return logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, message, None, None)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"
