"""The program's own log: lines for people on standard error, or in a worker's file.

The rule: a line is a line. Whatever crawled text is in it, control characters are shown, not sent.
"""

import logging
import re
import sys
from pathlib import Path
from typing import Final, TextIO

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head, *rest = super().format(record).split("\n")
        # Only a traceback has lines of its own; in a message a line end is as suspect as any other control character.
        lines = [head, *(f"    {line}" for line in rest)]
        return "\n".join(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line) for line in lines)


class _StandardError(logging.StreamHandler[TextIO]):
    """Whatever standard error is when a line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up(file: Path | None = None) -> None:
    """Send the log to standard error, or to a file."""
    handler: logging.Handler = _StandardError()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("holdfast")
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
