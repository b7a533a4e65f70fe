"""A socket between a client and PostgreSQL that cuts the connection at COMMIT, on the side and at the moment that a test wants."""

import enum
import selectors
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote

import psycopg.conninfo


class Cut(enum.Enum):
    """Where the connection breaks."""

    NOWHERE = enum.auto()
    BEFORE_COMMIT = enum.auto()
    """The server never hears of the COMMIT and sees the client go."""
    BEFORE_COMMIT_UNNOTICED = enum.auto()
    """The server never hears of the COMMIT and goes on waiting, as behind a dead router."""
    AFTER_COMMIT = enum.auto()
    """The server commits; the client never hears of it."""


class SeveringProxy:
    """Listens on a socket of its own and passes everything on, until a COMMIT comes."""

    def __init__(self, url: str, cut: Cut) -> None:
        self.cut = cut
        self.cuts = 0
        parts = psycopg.conninfo.conninfo_to_dict(url)
        self._target = f"{unquote(str(parts['host']))}/.s.PGSQL.{parts['port']}"
        self._folder = Path(tempfile.mkdtemp(prefix="hf-cut-"))
        self.url = (
            f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(self._folder), safe='/')}&port=5432"
        )
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._left_open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for left in self._left_open:
            left.close()
        self._thread.join()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            committing = False
            while True:
                for key, _ in ready.select():
                    source = key.fileobj
                    data = source.recv(65536) if isinstance(source, socket.socket) else b""
                    if source is client and b"COMMIT\0" in data and self.cut is not Cut.NOWHERE:
                        if self.cut is not Cut.AFTER_COMMIT:
                            self._sever(client, server, keep_server=self.cut is Cut.BEFORE_COMMIT_UNNOTICED)
                            return
                        committing = True
                    if not data or (source is server and committing and b"COMMIT\0" in data):
                        self._sever(client, server, counted=bool(data))
                        return
                    (server if source is client else client).sendall(data)

    def _sever(
        self, client: socket.socket, server: socket.socket, *, keep_server: bool = False, counted: bool = True
    ) -> None:
        self.cuts += counted
        client.close()
        if keep_server:
            self._left_open.append(server)
        else:
            server.close()
