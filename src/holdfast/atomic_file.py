"""Files that are written atomically.

The rule: whatever fails, a partial file is never found under the final name.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HoldfastError


class AtomicFile:
    """A file that is written under a temporary name in the same folder, and renamed by `complete`. The caller calls
    `discard` at the end, however it ended."""

    def __init__(self, name: str | os.PathLike[str]) -> None:
        self._name = os.fspath(name)
        self._path = Path(os.path.realpath(self._name))
        self._temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.part")
        with self.reporting_errors():
            self.stream = self._temporary.open("xb", buffering=1 << 20)
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk."""
        with self.reporting_errors():
            self.stream.write(chunk)
        self.size += len(chunk)

    def restart(self) -> None:
        """Discard what was written so far."""
        with self.reporting_errors():
            self.stream.seek(0)
            self.stream.truncate()
        self.size = 0

    def complete(self) -> int:
        """Flush the file to the disk and give it its name. Returns its size in bytes."""
        with self.reporting_errors():
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self._temporary.replace(self._path)
        return self.size

    def discard(self) -> None:
        """Delete the temporary file, unless it was completed."""
        with suppress(OSError):
            self.stream.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Turn an error of the file system into one sentence."""
        try:
            yield
        except OSError as problem:
            raise HoldfastError(
                f"{self._name!r} cannot be written: {problem.strerror or problem}. Write to another place."
            ) from problem
