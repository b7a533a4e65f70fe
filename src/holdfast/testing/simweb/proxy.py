"""A proxy to try a crawler with: it asks the simulated web for it, well or badly, as it is told.

The rule: it listens on loopback and connects to nothing but loopback, whatever it is asked for. How it behaves can change at any
moment; but for work and slowness, a change also ends every connection that stood before.
"""

import argparse
import asyncio
import hmac
import ipaddress
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from holdfast.errors import HoldfastError, UsageError
from holdfast.simweb.proxy_log import ProxyLog
from holdfast.simweb.proxy_talk import Talk

PROTOCOLS: Final = ("http", "https", "socks5", "socks5h")
"""As clients call them; the last two are the same to a proxy."""
_LOOK_EVERY: Final = 0.5


class What(StrEnum):
    """How a proxy can behave."""

    WORK = "work"
    REFUSE = "refuse"
    """Nobody listens."""
    DROP = "drop"
    """Connections are closed before a word."""
    HANG = "hang"
    """Requests are read and never answered."""
    SLOW = "slow"
    """Each answer of its own comes `seconds` later."""
    STATUS = "status"
    """Every request and CONNECT is answered with `status`; SOCKS says what is most like it, or a number below 100 as its reply."""
    GARBAGE = "garbage"
    """The answer is none, and the connection ends."""
    WRONG_PASSWORD = "wrong_password"  # noqa: S105
    """Nobody is known."""


class Behaviour(NamedTuple):
    """How a proxy behaves now."""

    what: What = What.WORK
    seconds: float = 0.0
    status: int = 0


def behaviour(what: str, *, seconds: float = 0.0, status: int = 503) -> Behaviour:
    """Raises UsageError for what no proxy does."""
    try:
        wanted = What(what)
    except ValueError:
        raise UsageError(f"A proxy can {', '.join(What)}; not {what!a}.") from None
    return Behaviour(wanted, seconds, status if wanted is What.STATUS else 0)


class Proxy:
    """An async context manager; while it is open, it listens."""

    def __init__(
        self,
        *,
        protocol: str = "http",
        port: int = 0,
        log: Path | None = None,
        user: str | None = None,
        password: str | None = None,
        hosts: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*hosts*: names or addresses, perhaps with :port, and which loopback address, perhaps with :port, they lead to."""
        if protocol not in PROTOCOLS:
            raise UsageError(f"A proxy speaks {', '.join(PROTOCOLS)}; not {protocol!a}.")
        if (protocol == "https") is not (tls is not None):
            raise UsageError("A certificate is for a proxy that speaks https, and only for that.")
        self.protocol, self.socks, self.behaviour = protocol, protocol.startswith("socks"), Behaviour()
        self.log = ProxyLog(log)
        self.stopped = asyncio.Event()
        self._user, self._password, self._tls = user, password or "", tls
        self._hosts = {name.lower(): _loopback(to) for name, to in (hosts or {}).items()}
        self._port = port
        self._place: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.Task[None], Talk] = {}

    async def __aenter__(self) -> Self:
        self._place = reserve(self._port)
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        await self._abandon()
        self.log.close()
        if self._place is not None:
            self._place.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, also while it refuses."""
        assert self._place is not None  # noqa: S101
        host, port = self._place.getsockname()
        return host, port

    async def behave(self, what: str, *, seconds: float = 0.0, status: int = 503) -> None:
        """After: whoever comes from now on is treated so."""
        wanted = behaviour(what, seconds=seconds, status=status)
        self.behaviour = wanted
        if wanted.what is What.REFUSE:
            self._close()
        elif self._server is None:
            await self._listen()
        if wanted.what not in (What.WORK, What.SLOW):
            await self._abandon()

    async def _listen(self) -> None:
        host, port = self.address
        self._server = await asyncio.start_server(
            self._accept, host, port, ssl=self._tls, reuse_port=True, backlog=1024
        )

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _abandon(self) -> None:
        """After: no connection is open."""
        talks = dict(self._talks)
        for task, talk in talks.items():
            talk.abandon()
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Talk(self, reader, writer)
        task = asyncio.get_running_loop().create_task(talk.run())
        self._talks[task] = talk
        task.add_done_callback(self._talks.pop)

    # what a talk asks

    @property
    def asks_for_login(self) -> bool:
        return self._user is not None or self.behaviour.what is What.WRONG_PASSWORD

    def knows(self, user: str | None, password: str | None) -> bool:
        """May they use the proxy?"""
        if self.behaviour.what is What.WRONG_PASSWORD:
            return False
        if self._user is None:
            return True
        return user == self._user and hmac.compare_digest((password or "").encode(), self._password.encode())

    def place(self, host: str, port: int) -> tuple[str, int]:
        """Where a site is. Raises PermissionError for what is not on loopback."""
        name = host.lower().removesuffix(".")
        if found := self._hosts.get(f"{name}:{port}") or self._hosts.get(name):
            return found[0], found[1] or port
        if name == "localhost" or name.endswith(".localhost"):
            return "127.0.0.1", port
        try:
            return _loopback(name)[0], port
        except UsageError:
            raise PermissionError(host) from None


def reserve(port: int = 0) -> socket.socket:
    """A port of loopback that nobody else is given while the socket is open; whoever may share it can listen, else it refuses."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        place.bind(("127.0.0.1", port))
    except OSError:
        place.close()
        raise
    return place


def _loopback(text: str) -> tuple[str, int]:
    """An address of loopback and a port, 0 if none is said. Raises UsageError."""
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "0")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if address.is_loopback and (not colon or 0 < int(port) < 65536):
            return str(address), int(port)
    except ValueError:
        pass
    raise UsageError(f"A proxy of the simulated web connects to loopback only, not to {text!a}.")


# the command


def main(arguments: list[str] | None = None) -> int:
    """Be a proxy until told to stop: one line of JSON says where. The exit code."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_serve(options))
    except (HoldfastError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    tls = None
    if options.certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate, options.key)
    proxy = Proxy(
        protocol=options.protocol,
        port=options.port,
        log=options.log,
        user=options.user,
        password=options.password_file.read_text("utf-8").rstrip("\n") if options.password_file else None,
        hosts=dict(each.partition("=")[::2] for each in options.host),
        tls=tls,
    )
    loop = asyncio.get_running_loop()
    async with proxy:
        await proxy.behave(options.behave, seconds=options.seconds, status=options.status)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, proxy.stopped.set)
        holder = asyncio.create_task(_obey(proxy, os.getppid())) if options.held else None
        host, port = proxy.address
        print(json.dumps({"host": host, "port": port}), flush=True)  # noqa: T201
        await proxy.stopped.wait()
        if holder is not None:
            holder.cancel()


async def _obey(proxy: Proxy, holder: int) -> None:
    """Do what standard input says, a line of JSON each, and say so; its end, or that of the holder, is ours."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = asyncio.ensure_future(reader.readline())
    while os.getppid() == holder:  # a child that it forked may keep our standard input open
        done, _ = await asyncio.wait((line,), timeout=_LOOK_EVERY)
        if not done:
            continue
        if not (said := line.result()):
            break
        try:
            await proxy.behave(**json.loads(said))
            answer: dict[str, str] = {}
        except (UsageError, OSError, TypeError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201
        line = asyncio.ensure_future(reader.readline())
    line.cancel()
    proxy.stopped.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.simweb.proxy", description="A proxy on loopback.")
    parser.add_argument("--protocol", default="http", choices=PROTOCOLS, help="what it speaks (http)")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0 = wherever is free")
    parser.add_argument("--log", type=Path, help="append what it is asked for to this file, as JSON")
    parser.add_argument("--user", help="who may use it; without, everybody")
    parser.add_argument("--password-file", type=Path, help="a file with the user's password")
    parser.add_argument("--certificate", type=Path, help="of a proxy that speaks https")
    parser.add_argument("--key", type=Path, help="the certificate's")
    parser.add_argument("--host", action="append", default=[], help="NAME=ADDRESS: what else leads to loopback")
    parser.add_argument("--behave", default="work", choices=list(What), help="how it treats those who come (work)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how slow")
    parser.add_argument("--status", type=int, default=503, help="which status")
    parser.add_argument("--held", action="store_true", help="take orders from standard input and stop when it ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
