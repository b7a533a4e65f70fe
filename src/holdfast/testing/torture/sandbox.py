"""Sandbox of an experiment: a data folder and a database server of its own.

The rule: folder and server are removed at the end unless the caller keeps them.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.archive.image_store import FOLDER, FolderImageStore
from holdfast.archive.reader import ArchiveReader
from holdfast.db import embedded
from holdfast.db.connection import Database

_MODE: Final = 0o755
"""The server may run as another user, who needs access to the folder."""


class Sandbox:
    """A data folder and its running server, as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Before: no process uses `folder`."""
        self.folder = folder
        self.data = folder / "data"
        self.keep = False
        """Do not remove the files at the end."""
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
        """The running server; restarted if it was killed."""
        self._server = embedded.ensure_running(self.data)
        return self._server

    def database(self) -> Database:
        """The database of the crawl."""
        return Database(self.server().url())

    def settings(self) -> dict[str, str]:
        """Additional settings with which a crawl finds its database."""
        return {}

    @property
    def archive(self) -> ArchiveReader | None:
        """The archive; None: it does not exist yet."""
        reader = ArchiveReader(self.data / "archive")
        return reader if reader.exists else None

    @property
    def images(self) -> FolderImageStore:
        """The files of images; the folder may not exist yet."""
        return FolderImageStore(self.data / FOLDER)

    def logs(self) -> str:
        """The text of all log files."""
        found = [*sorted(self.data.glob("logs/*.log")), *sorted(self.folder.glob("*.log"))]
        return "".join(path.read_text("utf-8", "replace") for path in found)

    def _remove(self) -> None:
        if self._server is not None:
            shutil.rmtree(self._server.socket_dir, ignore_errors=True)
            if not self._server.cluster.is_relative_to(self.folder):
                shutil.rmtree(self._server.cluster.parent, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class SandboxFolder:
    """A folder for several sandboxes, removed at the end unless `keep` is set."""

    def __init__(self, folder: Path | None = None) -> None:
        """Created in `folder`, or in the system's temporary folder."""
        self._parent = folder
        self.folder: Path
        self.keep = False

    def __enter__(self) -> Self:
        if self._parent is not None:
            self._parent.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=self._parent)).resolve()
        self.folder.chmod(_MODE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._parent is not None:
                with suppress(OSError):  # it contains other files
                    self._parent.rmdir()
