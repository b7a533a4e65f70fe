"""Network namespaces: a process that lives behind a cable of its own, which a test can cut without either end noticing.

The rule: a cut cable is a black hole. Packets are sent and never arrive, in both directions; nothing is refused, reset or reported.
"""

import ctypes
import os
import random
import selectors
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_NOWHERE: Final = "02:00:00:00:00:01"
"""The hardware address of nobody: what is sent there is dropped where it arrives."""
_CLONE_NEWNET: Final = 0x40000000
_PIECE: Final = 65536


def missing() -> str | None:
    """Why there can be no namespaces here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    try:
        with Cable(0):
            return None
    except (subprocess.CalledProcessError, OSError) as problem:
        said = getattr(problem, "stderr", "") or str(problem)
        return f"network namespaces do not work here: {said.strip().splitlines()[0]}"


class Cable:
    """A namespace and the cable between it and this one. `here` and `there` are the addresses of its ends."""

    def __init__(self, number: int) -> None:
        self.name = f"hf{os.getpid() % 100_000}n{number}"
        self._inner = "hf0"
        # Of the range for benchmarks (RFC 2544); by chance, since others may do the same on this machine.
        net, first = f"198.{random.randint(18, 19)}.{random.randint(0, 255)}", 4 * random.randint(0, 63)
        self.here, self.there = f"{net}.{first + 1}", f"{net}.{first + 2}"
        self._hardware: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self.name, "type", "veth", "peer", "name", self._inner, "netns", self.name)
            _ip("addr", "add", f"{self.here}/30", "dev", self.name)
            _ip("link", "set", self.name, "up")
            _ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", self._inner)
            for link in ("lo", self._inner):
                _ip("-n", self.name, "link", "set", link, "up")
            self._hardware = {
                self.here: Path(f"/sys/class/net/{self.name}/address").read_text().strip(),
                self.there: _ip("-n", self.name, "-br", "link", "show", self._inner).split()[2],
            }
            self.mend()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """After: neither the namespace nor the cable is there. Before: no process lives in it."""
        for words in (("link", "del", self.name), ("netns", "del", self.name)):
            with suppress(subprocess.CalledProcessError):
                _ip(*words)

    @property
    def program(self) -> tuple[str, ...]:
        """The front of a command that runs it in the namespace."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """After: no packet arrives at the other end any more, in both directions."""
        self._lead(_NOWHERE, _NOWHERE)

    def mend(self) -> None:
        """After: packets arrive again."""
        self._lead(self._hardware[self.here], self._hardware[self.there])

    def _lead(self, here: str, there: str) -> None:
        permanent = ("nud", "permanent")
        _ip("neigh", "replace", self.there, "lladdr", there, "dev", self.name, *permanent)
        _ip("-n", self.name, "neigh", "replace", self.here, "lladdr", here, "dev", self._inner, *permanent)

    def listen(self, port: int) -> socket.socket:
        """A socket that listens on the namespace's own loopback; connections are accepted by this process, here."""
        with self._inside():
            return socket.create_server(("127.0.0.1", port))

    def _inside(self) -> "_Inside":
        return _Inside(self.name)


class _Inside:
    """While it is open, this thread makes its sockets in the namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._name}", os.O_RDONLY)
        try:
            _enter(there)
        finally:
            os.close(there)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _enter(self._home)
        os.close(self._home)


class Door:
    """Passes connections to a port of the namespace's loopback on to the same port of ours, cable or no cable."""

    def __init__(self, cable: Cable, port: int) -> None:
        self._port = port
        self._listener = cable.listen(port)
        self._listener.setblocking(False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        partners: dict[socket.socket, socket.socket] = {}
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in ready.select(0.2):
                    if key.fileobj is self._listener:
                        self._accept(ready, partners)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in partners:
                        _pass_on(ready, partners, key.fileobj)
            for one in partners:
                one.close()

    def _accept(self, ready: selectors.BaseSelector, partners: dict[socket.socket, socket.socket]) -> None:
        with suppress(OSError):
            inner, _ = self._listener.accept()
            inner.setblocking(True)
            try:
                outer = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                inner.close()
                return
            partners |= {inner: outer, outer: inner}
            for one in (inner, outer):
                ready.register(one, selectors.EVENT_READ)


def _pass_on(
    ready: selectors.BaseSelector, partners: dict[socket.socket, socket.socket], source: socket.socket
) -> None:
    try:
        data = source.recv(_PIECE)
        partners[source].sendall(data)
    except OSError:
        data = b""
    if not data:
        for one in (source, partners.pop(source)):
            ready.unregister(one)
            partners.pop(one, None)
            one.close()


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> str:
    return subprocess.run(("ip", *words), check=True, capture_output=True, text=True).stdout
