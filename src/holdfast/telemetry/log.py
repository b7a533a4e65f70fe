"""The program's own log, including that of libraries: timestamped lines to standard error or to a file, rate limited and rotated.

The rules: a message is one line of limited length; control characters in it are escaped. Messages of one place in the code have one
cause: after `MAX_LINES` within `WINDOW_SECONDS` the rest is suppressed and reported as one line with their number. A log file has at
most `MAX_FILE_BYTES` and one line more; the file before it is kept under the same name with `.1`. Several processes may write to one
file: it is renamed once, and the others continue in the new file.
"""

import errno
import logging
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from holdfast import private
from holdfast.errors import UsageError

MAX_LINES: Final = 20
"""Lines of one cause in a window."""
WINDOW_SECONDS: Final = 60.0
MAX_FILE_BYTES: Final = 10 * 1024 * 1024
MAX_MESSAGE_CHARACTERS: Final = 2_000
"""Characters of a message without its traceback."""
MAX_TRACEBACK_CHARACTERS: Final = 8_000

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SAMPLE_CHARACTERS: Final = 200
"""Characters of the last suppressed message, quoted in the line with their number."""
_installed: list[logging.Handler] = []


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head, *rest = super().format(record).split("\n")
        # Only a traceback may have several lines; a line end in a message is escaped like any other control character.
        lines = [head, *(f"    {line}" for line in rest)]
        return "\n".join(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line) for line in lines)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — as its parent is called
        record.message = _truncate(record.message, MAX_MESSAGE_CHARACTERS)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 — as its parent is called
        text = super().formatException(ei)  # type: ignore[arg-type]  # passed through
        # The last lines name the exception.
        return text if len(text) <= MAX_TRACEBACK_CHARACTERS else f"…\n{text[-MAX_TRACEBACK_CHARACTERS:]}"


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`."""

    file: Path | None = None
    """The log file that standard error is redirected to; None: not rotated."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
        if self.file is not None and is_full(2):
            stdout_too = is_same_file(self.file, 1)
            successor = rotate(self.file, 2)
            if successor is not None:
                for descriptor in (1, 2) if stdout_too else (2,):
                    os.dup2(successor, descriptor)
                os.close(successor)


class _FileHandler(logging.StreamHandler[TextIO]):
    """Writes to a log file and rotates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._missing = False
        """Whether the file could not be opened, and lines go nowhere until it can."""
        super().__init__(self._open_stream(self._open()))

    def _open(self) -> int:
        descriptor = open_log_or_nothing(self._path)
        self._missing = not is_same_file(self._path, descriptor)
        return descriptor

    def emit(self, record: logging.LogRecord) -> None:
        if self._missing:
            self.stream.close()
            self.stream = self._open_stream(self._open())
        super().emit(record)
        if is_full(self.stream.fileno()):
            successor = rotate(self._path, self.stream.fileno())
            if successor is not None:
                with suppress(OSError):
                    self.stream.close()
                self.stream = self._open_stream(successor)

    def close(self) -> None:
        with suppress(OSError):  # what a full disk did not take
            self.stream.close()
        super().close()

    @staticmethod
    def _open_stream(descriptor: int) -> TextIO:
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


@dataclass(slots=True)
class _CauseCount:
    """The lines of one cause in its window."""

    since: float
    lines: int = 0
    suppressed: int = 0
    last: logging.LogRecord | None = None
    """The last suppressed record."""


class RateLimitHandler(logging.Handler):
    """Forwards at most MAX_LINES per cause and window to another handler and counts the rest."""

    def __init__(
        self, target: logging.Handler, *, window: float = WINDOW_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.target = target
        self._window = window
        self._clock = clock
        self._causes: dict[tuple[str, int, str], _CauseCount] = {}
        """By file, line and exception class; bounded by the size of the code."""
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Forward a record, or count it."""
        now = self._clock()
        self._end_windows(now)
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        cause = self._causes.setdefault((record.pathname, record.lineno, kind), _CauseCount(now))
        if cause.lines < MAX_LINES:
            cause.lines += 1
            self.target.handle(record)
            return
        cause.suppressed += 1
        cause.last = record
        if self._timer is None:  # so that the number is reported without another line
            self._timer = threading.Timer(self._window, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Report the suppressed lines and close the target."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._end_windows(float("inf"))
        finally:
            self.release()
        self.target.close()
        super().close()

    def _on_timer(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._end_windows(self._clock())
        finally:
            self.release()

    def _end_windows(self, now: float) -> None:
        expired = [key for key, cause in self._causes.items() if now - cause.since >= self._window]
        for key in expired:
            cause = self._causes.pop(key)
            if cause.last is not None:
                self.target.handle(_summary(cause.last, cause.suppressed, self._window))


def set_up(file: Path | None = None) -> None:
    """Send the log, including that of libraries, to standard error or to a file."""
    target: logging.Handler = _StderrHandler()
    if file is not None:
        private.make_folder(file.parent)
        target = _FileHandler(file)
    target.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    while _installed:
        old = _installed.pop()
        root.removeHandler(old)
        old.close()
    handler = RateLimitHandler(target)
    root.addHandler(handler)
    _installed.append(handler)
    logging.getLogger("holdfast").setLevel(logging.INFO)
    logging.raiseExceptions = False  # a line that cannot be written (disk full) must not print a traceback


def rotate_stderr(folder: Path) -> None:
    """Rotate the log file that the supervisor redirected standard error to, if it is in `folder`."""
    for handler in _installed:
        if isinstance(handler, RateLimitHandler) and isinstance(handler.target, _StderrHandler):
            handler.target.file = next((file for file in folder.glob("*.log") if is_same_file(file, 2)), None)


def open_log(path: Path) -> int:
    """Open a log file for appending, creating it if needed; returns the descriptor. After: no other user can read the file.

    Raises OSError, and UsageError if it is a symbolic link: its target may belong to another user.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        raise UsageError(f"{path} is a symbolic link, which a log is not written through: remove it.") from problem
    info = os.fstat(descriptor)
    if stat.S_ISREG(info.st_mode) and info.st_mode & 0o077 and info.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)  # earlier versions created it readable
    return descriptor


def open_log_or_nothing(path: Path) -> int:
    """Like `open_log`; where the disk has no room for a new file, a descriptor that drops what is written: nothing stops for a log."""
    try:
        return open_log(path)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def is_full(descriptor: int) -> bool:
    """Whether a regular file has reached MAX_FILE_BYTES."""
    info = os.fstat(descriptor)
    return stat.S_ISREG(info.st_mode) and info.st_size >= MAX_FILE_BYTES


def rotate(path: Path, descriptor: int) -> int | None:
    """Rename a full log to `.1` and open a new one; returns its descriptor. None: that failed, and the old file was truncated."""
    try:
        if is_same_file(path, descriptor):
            path.replace(path.with_name(f"{path.name}.1"))
        return open_log(path)
    except (OSError, UsageError):
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        return None


def is_same_file(path: Path, descriptor: int) -> bool:
    """Whether a descriptor refers to the file at `path`."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _summary(last: logging.LogRecord, count: int, window: float) -> logging.LogRecord:
    span = "minute" if window == WINDOW_SECONDS else f"{window:g} s"
    number = f"{count:,}".replace(",", " ")
    message = f"… {number} more in the last {span}, such as: {_truncate(last.getMessage(), _SAMPLE_CHARACTERS)}"
    return logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, message, None, None)


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
