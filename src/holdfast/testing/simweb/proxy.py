"""A proxy in front of the simulated web that works or fails on command.

The rule: it listens on loopback and connects only to loopback. Its behaviour can change at any time; except for WORK and SLOW, a change
also closes every open connection.
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
from holdfast.testing.simweb.proxy_log import ProxyLog
from holdfast.testing.simweb.proxy_protocol import ProxySession

PROTOCOLS: Final = ("http", "https", "socks5", "socks5h")
"""As in the URL of a proxy; the last two are the same to the proxy."""
_PARENT_POLL_SECONDS: Final = 0.5


class ProxyMode(StrEnum):
    """The behaviours of a proxy."""

    WORK = "work"
    REFUSE = "refuse"
    """Connections are refused."""
    DROP = "drop"
    """Connections are closed without a response."""
    HANG = "hang"
    """Requests are read, and there is no response."""
    SLOW = "slow"
    """Each response of the proxy itself is delayed by `seconds`."""
    STATUS = "status"
    """Every request and CONNECT gets `status`; SOCKS maps it to a reply, or uses a number below 100 as the reply."""
    GARBAGE = "garbage"
    """The response is invalid, and the connection is closed."""
    WRONG_PASSWORD = "wrong_password"  # noqa: S105
    """All credentials are rejected."""


class Behaviour(NamedTuple):
    """The current behaviour of a proxy."""

    mode: ProxyMode = ProxyMode.WORK
    seconds: float = 0.0
    status: int = 0


def make_behaviour(mode: str, *, seconds: float = 0.0, status: int = 503) -> Behaviour:
    """Validate a behaviour. Raises UsageError for an unknown mode."""
    try:
        chosen = ProxyMode(mode)
    except ValueError:
        raise UsageError(f"A proxy can {', '.join(ProxyMode)}; not {mode!a}.") from None
    return Behaviour(chosen, seconds, status if chosen is ProxyMode.STATUS else 0)


class Proxy:
    """A proxy as an async context manager; it listens until the end."""

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
        """*hosts* maps names or addresses, optionally with :port, to loopback addresses, optionally with :port."""
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
        self._reserved: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._sessions: dict[asyncio.Task[None], ProxySession] = {}

    async def __aenter__(self) -> Self:
        self._reserved = reserve_port(self._port)
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        await self._abandon()
        self.log.close()
        if self._reserved is not None:
            self._reserved.close()

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port, also while it refuses connections."""
        assert self._reserved is not None  # noqa: S101
        host, port = self._reserved.getsockname()
        return host, port

    async def behave(self, mode: str, *, seconds: float = 0.0, status: int = 503) -> None:
        """Set the behaviour. After: it applies to every new connection."""
        chosen = make_behaviour(mode, seconds=seconds, status=status)
        self.behaviour = chosen
        if chosen.mode is ProxyMode.REFUSE:
            self._close()
        elif self._server is None:
            await self._listen()
        if chosen.mode not in (ProxyMode.WORK, ProxyMode.SLOW):
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
        sessions = dict(self._sessions)
        for task, session in sessions.items():
            session.abandon()
            task.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = ProxySession(self, reader, writer)
        task = asyncio.get_running_loop().create_task(session.run())
        self._sessions[task] = session
        task.add_done_callback(self._sessions.pop)

    # called by sessions

    @property
    def requires_auth(self) -> bool:
        return self._user is not None or self.behaviour.mode is ProxyMode.WRONG_PASSWORD

    def is_authorized(self, user: str | None, password: str | None) -> bool:
        """Whether these credentials may use the proxy."""
        if self.behaviour.mode is ProxyMode.WRONG_PASSWORD:
            return False
        if self._user is None:
            return True
        return user == self._user and hmac.compare_digest((password or "").encode(), self._password.encode())

    def resolve(self, host: str, port: int) -> tuple[str, int]:
        """Resolve a host to a loopback address. Raises PermissionError for any other address."""
        name = host.lower().removesuffix(".")
        if found := self._hosts.get(f"{name}:{port}") or self._hosts.get(name):
            return found[0], found[1] or port
        if name == "localhost" or name.endswith(".localhost"):
            return "127.0.0.1", port
        try:
            return _loopback(name)[0], port
        except UsageError:
            raise PermissionError(host) from None


def reserve_port(port: int = 0) -> socket.socket:
    """Reserve a loopback port while the returned socket is open: only a socket with SO_REUSEPORT can listen on it; without one,
    connections are refused."""
    resolve = socket.socket()
    resolve.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        resolve.bind(("127.0.0.1", port))
    except OSError:
        resolve.close()
        raise
    return resolve


def _loopback(text: str) -> tuple[str, int]:
    """Parse a loopback address and a port (0: none). Raises UsageError."""
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
    """Run a proxy until it is stopped; prints its address as one line of JSON. Returns the exit code."""
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
        hosts=dict(item.partition("=")[::2] for item in options.host),
        tls=tls,
    )
    loop = asyncio.get_running_loop()
    async with proxy:
        await proxy.behave(options.behave, seconds=options.seconds, status=options.status)
        for item in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(item, proxy.stopped.set)
        parent = asyncio.create_task(_run_commands(proxy, os.getppid())) if options.held else None
        host, port = proxy.address
        print(json.dumps({"host": host, "port": port}), flush=True)  # noqa: T201
        await proxy.stopped.wait()
        if parent is not None:
            parent.cancel()


async def _run_commands(proxy: Proxy, parent: int) -> None:
    """Run commands from standard input, a line of JSON each, and print a reply. Stops at its end, or when the parent ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = asyncio.ensure_future(reader.readline())
    while os.getppid() == parent:  # another child of the parent may keep standard input open
        done, _ = await asyncio.wait((line,), timeout=_PARENT_POLL_SECONDS)
        if not done:
            continue
        if not (text := line.result()):
            break
        try:
            await proxy.behave(**json.loads(text))
            reply: dict[str, str] = {}
        except (UsageError, OSError, TypeError, ValueError) as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), flush=True)  # noqa: T201
        line = asyncio.ensure_future(reader.readline())
    line.cancel()
    proxy.stopped.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simweb.proxy", description="A proxy on loopback.")
    parser.add_argument("--protocol", default="http", choices=PROTOCOLS, help="protocol of the proxy (http)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 = any free port")
    parser.add_argument("--log", type=Path, help="append its requests to this file, as JSON")
    parser.add_argument("--user", help="user name; default: no authentication")
    parser.add_argument("--password-file", type=Path, help="file with the user's password")
    parser.add_argument("--certificate", type=Path, help="certificate of an https proxy")
    parser.add_argument("--key", type=Path, help="key of the certificate")
    parser.add_argument("--host", action="append", default=[], help="NAME=ADDRESS: map a name to a loopback address")
    parser.add_argument("--behave", default="work", choices=list(ProxyMode), help="behaviour (work)")
    parser.add_argument("--seconds", type=float, default=0.0, help="delay of --behave slow")
    parser.add_argument("--status", type=int, default=503, help="status of --behave status")
    parser.add_argument("--held", action="store_true", help="read commands from standard input and stop when it ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
