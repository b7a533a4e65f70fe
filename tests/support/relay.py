"""A bad line between a client and a server on this machine: it cuts connections, and loses answers, when a test wants."""

import socket
import threading
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit


@dataclass
class Relay:
    """Passes everything on to a server, until it is told not to."""

    server: str
    lose_answers: int = 0
    """So many answers do not arrive: the server has done it, the client hears nothing but the end of the connection."""
    cut_answers: int = 0
    """So many answers break off after `cut_after` bytes."""
    cut_after: int = 1000
    requests: list[bytes] = field(default_factory=list)
    """The beginnings of what was sent, one for each piece that came with a request line."""

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """Every connection breaks now."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            _close(end)

    def _accept(self) -> None:
        address = urlsplit(self.server)
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((address.hostname or "", address.port or 0))
            with self._lock:
                self._open |= {client, server}
            for source, target, passes in ((client, server, self._asks), (server, client, self._answers)):
                threading.Thread(target=passes, args=(source, target), daemon=True).start()

    def _asks(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            if b" HTTP/1.1\r\n" in data:
                self.requests.append(data)
            if not _sent(server, data):
                break
        self._end(client, server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        passed = 0
        while data := _received(server):
            with self._lock:
                lost = self.lose_answers > 0
                cut = self.cut_answers > 0 and passed + len(data) > self.cut_after
                self.lose_answers -= lost
                self.cut_answers -= cut
            if lost:
                break
            if cut:
                _sent(client, data[: self.cut_after - passed])
                break
            passed += len(data)
            if not _sent(client, data):
                break
        self._end(client, server)

    def _end(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open -= set(ends)
        for end in ends:
            _close(end)


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65_536)
    except OSError:
        return b""


def _sent(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _close(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already
    finally:
        end.close()
