"""Files that appear under their names when they are whole.

The rule: whatever dies, nothing half-written is ever found under the name that was asked for.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HoldfastError


class NewFile:
    """A file that is being written, beside the one that it will be. Call `discard` at the end, however it ended."""

    def __init__(self, name: str | os.PathLike[str]) -> None:
        self._name = os.fspath(name)
        self._path = Path(os.path.realpath(self._name))
        self._part = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.part")
        with self._said():
            self._stream = self._part.open("xb", buffering=1 << 20)
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Go on with it."""
        with self._said():
            self._stream.write(chunk)
        self.size += len(chunk)

    def begin_again(self) -> None:
        """What was written so far is forgotten."""
        with self._said():
            self._stream.seek(0)
            self._stream.truncate()
        self.size = 0

    def complete(self) -> int:
        """All of it is on the disk, and has its name; its size in bytes."""
        with self._said():
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._part.replace(self._path)
        return self.size

    def discard(self) -> None:
        """Nothing is left of it that was not completed."""
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise HoldfastError(f"{self._name!r} cannot be written: {problem.strerror or problem}.") from problem
