"""The ground on which a trial takes place: a data folder of its own, with a database server of its own.

The rule: nothing outlives the trial unless somebody wants to look at it.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.store import embedded
from holdfast.store.connect import Database

_MODE: Final = 0o755
"""The server may run as another user, who has to pass."""


class Ground:
    """A data folder and its server, while it is open."""

    def __init__(self, folder: Path) -> None:
        """Before: nothing lives in `folder`."""
        self.folder = folder
        self.data = folder / "data"
        self.keep = False
        """Leave the files when it is closed."""
        self._server: embedded.Server | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(_MODE)
        self.server()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        embedded.stop(self.data)
        if not self.keep:
            self._remove()

    def server(self) -> embedded.Server:
        """The server, running; started again if somebody killed it."""
        self._server = embedded.ensure_running(self.data)
        return self._server

    def database(self) -> Database:
        """The database of the crawl."""
        return Database(self.server().url())

    def settings(self) -> dict[str, str]:
        """What a crawl has to know to find its database, beside the data folder."""
        return {}

    @property
    def archive(self) -> Path | None:
        """The bytes of pages, if there are any yet."""
        folder = self.data / "archive"
        return folder if folder.is_dir() else None

    def logs(self) -> str:
        """What the workers have said."""
        found = [*sorted(self.data.glob("logs/*.log")), *sorted(self.folder.glob("*.log"))]
        return "".join(path.read_text("utf-8", "replace") for path in found)

    def _remove(self) -> None:
        if self._server is not None:
            shutil.rmtree(self._server.socket_dir, ignore_errors=True)
            if not self._server.cluster.is_relative_to(self.folder):
                shutil.rmtree(self._server.cluster.parent, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Grounds:
    """A folder for several of them; gone at the end unless it is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        """In `folder`, or in a temporary one."""
        self._asked = folder
        self.folder: Path
        self.keep = False

    def __enter__(self) -> Self:
        if self._asked is not None:
            self._asked.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=self._asked)).resolve()
        self.folder.chmod(_MODE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._asked is not None:
                with suppress(OSError):  # somebody else's things are in it
                    self._asked.rmdir()
