"""The protocols of a proxy: HTTP with absolute URLs, CONNECT, SOCKS 5.

The rule: any input of a client or a site leads to a response or to the end of this connection, never of the proxy.
"""

import asyncio
import base64
import binascii
import ipaddress
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.testing.simweb.access_log import boot_ns
from holdfast.testing.simweb.proxy_log import ProxyLogEntry

if TYPE_CHECKING:
    from holdfast.testing.simweb.proxy import Proxy

_CONNECT_TIMEOUT: Final = 10.0
_CLOSE_TIMEOUT: Final = 5.0
_CHUNK_BYTES: Final = 65_536
_GARBAGE: Final = b"\x00\xffthis is no answer\x00\xff\r\n\r\n"
_HOP_BY_HOP: Final = (b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}

_SOCKS: Final = 5
_NO_LOGIN, _LOGIN, _NO_METHOD = 0, 2, 255
_CONNECT: Final = 1
_FAILED, _FORBIDDEN, _UNREACHABLE, _REFUSED, _NO_COMMAND = 1, 2, 4, 5, 7
_FIRST_HTTP_STATUS: Final = 100
"""A status below this is sent as the SOCKS reply itself."""
_SOCKS_REPLIES: Final = {403: _FORBIDDEN, 502: _REFUSED, 504: _UNREACHABLE}
"""SOCKS replies for HTTP statuses; a general failure for any other."""


class ResponseHead(NamedTuple):
    """The response head of a site and the length of its body."""

    status: int
    head: bytes
    length: int | None
    """Bytes of the body; None: until the end of the connection."""


class ProxySession:
    """A connection of a client to the proxy, with its current connection to a site."""

    def __init__(self, proxy: "Proxy", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._site: asyncio.StreamWriter | None = None
        self._entry: ProxyLogEntry | None = None
        self._received, self._sent = 0, 0

    async def run(self) -> None:
        """Serve the connection to its end. After: both connections are closed, and the log has their bytes."""
        try:
            if self._proxy.behaviour.mode == "drop":
                self._log_request("", "")
            elif self._proxy.socks:
                await self._socks()
            else:
                while await self._http():
                    self._log_end()
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the other side disconnected, or does not speak the protocol
        finally:
            self._log_end()
            if self._site is not None:
                await close_writer(self._site)
            await close_writer(self._writer)

    def abandon(self) -> None:
        """After: both connections are aborted."""
        for writer in (self._writer, self._site):
            if writer is not None:
                writer.transport.abort()

    # the log

    def _log_request(self, method: str, target: str, user: str | None = None) -> ProxyLogEntry:
        self._entry = self._proxy.log.open(method, target, self._proxy.behaviour.mode, user)
        return self._entry

    def _log_end(self) -> None:
        if self._entry is not None:
            self._entry.add_facts(ended_at=boot_ns() / 1e9, received=self._received, sent=self._sent)
        self._entry, self._received, self._sent = None, 0, 0

    # what all have in common

    async def _send(self, data: bytes) -> None:
        self._sent += len(data)
        self._writer.write(data)
        await self._writer.drain()

    async def _misbehave(self) -> bool:
        """Apply the modes GARBAGE, HANG and SLOW. Returns True if the session is over."""
        behaviour = self._proxy.behaviour
        if behaviour.mode == "garbage":
            await self._send(_GARBAGE)
        elif behaviour.mode == "hang":
            while await self._reader.read(_CHUNK_BYTES):
                pass
        elif behaviour.mode == "slow":
            await asyncio.sleep(behaviour.seconds)
            return False
        else:
            return False
        return True

    async def _connect(self, host: str, port: int) -> asyncio.StreamReader:
        """Connect to the site. Raises PermissionError if it is not on loopback, OSError and TimeoutError if it fails."""
        target_address = self._proxy.resolve(host, port)
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            reader, self._site = await asyncio.open_connection(*target_address)
        return reader

    async def _tunnel(self, reader: asyncio.StreamReader) -> None:
        """Forward bytes in both directions. After: one side has ended, and its bytes were forwarded."""
        up, down = asyncio.create_task(self._up()), asyncio.create_task(self._down(reader))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _up(self) -> None:
        assert self._site is not None  # noqa: S101
        while data := await self._reader.read(_CHUNK_BYTES):
            self._received += len(data)
            self._site.write(data)
            await self._site.drain()

    async def _down(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._send(data)

    # HTTP

    async def _http(self) -> bool:
        """Process a request. Returns True if another one may follow."""
        head = await self._reader.readexactly(1)
        if not head.isalpha():  # TLS, or SOCKS
            return await self._refuse(self._log_request("", ""), 400, "not understood")
        head += await self._reader.readuntil(b"\r\n\r\n")
        self._received += len(head)
        first, *lines = head[:-4].split(b"\r\n")
        method, target, _version = first.decode("latin-1").split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        user, password = _parse_credentials(headers.get(b"proxy-authorization", b""))
        entry = self._log_request(method, target, user)
        if await self._misbehave():
            return False
        behaviour, tunnel = self._proxy.behaviour, method == "CONNECT"
        if behaviour.mode == "status":
            return await self._refuse(entry, behaviour.status, "status", close=tunnel)
        if not self._proxy.is_authorized(user, password):
            return await self._refuse(entry, 407, "unknown user", close=tunnel)
        parts = urlsplit(f"//{target}" if tunnel else target)
        if not parts.hostname or (not tunnel and parts.scheme != "http"):
            return await self._refuse(entry, 400, "not understood")
        try:
            reader = await self._connect(parts.hostname, parts.port or (443 if tunnel else 80))
        except PermissionError:
            return await self._refuse(entry, 403, "forbidden")
        except (OSError, TimeoutError):
            return await self._refuse(entry, 502, "not reached", close=tunnel)
        if tunnel:
            entry.add_facts(did="tunnel", status=200)
            await self._send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._tunnel(reader)
            return False
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _HOP_BY_HOP]
        request_bytes = b"\r\n".join(
            (f"{method} {path} HTTP/1.1".encode("latin-1"), *kept, b"Connection: close", b"", b"")
        )
        return await self._forward(
            entry, reader, request_bytes, int(headers.get(b"content-length", b"0")), without_body=method == "HEAD"
        )

    async def _refuse(self, entry: ProxyLogEntry, status: int, did: str, *, close: bool = True) -> bool:
        entry.add_facts(did=did, status=status)
        more = 'Proxy-Authenticate: Basic realm="simweb"\r\n' if status == 407 else ""
        more += "Connection: close\r\n" if close else ""
        phrase, body = _PHRASES.get(status, "Odd"), f"<p>the proxy says {status}"
        await self._send(
            f"HTTP/1.1 {status} {phrase}\r\nServer: simweb-proxy\r\nContent-Type: text/html\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        return not close

    async def _forward(
        self,
        entry: ProxyLogEntry,
        reader: asyncio.StreamReader,
        request_bytes: bytes,
        length: int,
        *,
        without_body: bool,
    ) -> bool:
        """Forward a request and its response. Returns True if both were complete."""
        assert self._site is not None  # noqa: S101
        self._site.write(request_bytes + await self._reader.readexactly(length))
        self._received += length
        try:
            reply = await _read_head(reader, without_body=without_body)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            return await self._refuse(entry, 502, "not answered")
        entry.add_facts(did="forward", status=reply.status)
        await self._send(reply.head)
        left = reply.length
        while left != 0 and (data := await reader.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))):
            left = None if left is None else left - len(data)
            await self._send(data)
        await close_writer(self._site)
        self._site = None
        return left == 0

    # SOCKS 5

    async def _socks(self) -> None:
        entry = None
        version, count = await self._reader.readexactly(2)
        methods = await self._reader.readexactly(count)
        self._received += 2 + count
        if version != _SOCKS or self._proxy.behaviour.mode in ("hang", "garbage"):
            self._log_request("SOCKS", "")
            await self._misbehave()
            return
        wanted = _LOGIN if self._proxy.requires_auth else _NO_LOGIN
        if wanted not in methods or self._proxy.behaviour.status == 407:
            entry = self._log_request("SOCKS", "")
            entry.add_facts(did="unknown user", status=_NO_METHOD)
            await self._send(bytes((_SOCKS, _NO_METHOD)))
            return
        await self._send(bytes((_SOCKS, wanted)))
        user: str | None = None
        if wanted == _LOGIN:
            user, password = await self._socks_login()
            known = self._proxy.is_authorized(user, password)
            await self._send(bytes((1, 0 if known else 1)))
            if not known:
                self._log_request("SOCKS", "", user).add_facts(did="unknown user", status=1)
                return
        await self._socks_connect(user)

    async def _socks_login(self) -> tuple[str, str]:
        _, size = await self._reader.readexactly(2)
        user = await self._reader.readexactly(size)
        (size,) = await self._reader.readexactly(1)
        password = await self._reader.readexactly(size)
        self._received += 3 + len(user) + len(password)
        return user.decode("utf-8", "replace"), password.decode("utf-8", "replace")

    async def _socks_connect(self, user: str | None) -> None:
        _, command, _, kind = await self._reader.readexactly(4)
        size = {1: 4, 4: 16}.get(kind) or (await self._reader.readexactly(1))[0]
        raw = await self._reader.readexactly(size)
        host = str(ipaddress.ip_address(raw)) if kind in (1, 4) else raw.decode("latin-1")
        port = int.from_bytes(await self._reader.readexactly(2), "big")
        self._received += 6 + size + (kind == 3)
        entry = self._log_request("SOCKS", f"[{host}]:{port}" if kind == 4 else f"{host}:{port}", user)
        await self._misbehave()
        behaviour = self._proxy.behaviour
        if behaviour.mode == "status":
            status = behaviour.status
            reply = status if status < _FIRST_HTTP_STATUS else _SOCKS_REPLIES.get(status, _FAILED)
            await self._socks_reply(entry, reply, "status")
            return
        if command != _CONNECT:
            await self._socks_reply(entry, _NO_COMMAND, "not understood")
            return
        try:
            reader = await self._connect(host, port)
        except PermissionError:
            await self._socks_reply(entry, _FORBIDDEN, "forbidden")
        except ConnectionRefusedError:
            await self._socks_reply(entry, _REFUSED, "not reached")
        except (OSError, TimeoutError):
            await self._socks_reply(entry, _UNREACHABLE, "not reached")
        else:
            await self._socks_reply(entry, 0, "tunnel")
            await self._tunnel(reader)

    async def _socks_reply(self, entry: ProxyLogEntry, reply: int, did: str) -> None:
        entry.add_facts(did=did, status=reply)
        await self._send(bytes((_SOCKS, reply, 0, 1, 0, 0, 0, 0, 0, 0)))


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """After: the connection is closed; buffered bytes were sent if the other side read them in time."""
    try:
        writer.close()
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


def _parse_credentials(header: bytes) -> tuple[str | None, str | None]:
    """Parse a Proxy-Authorization header into user and password."""
    with suppress(ValueError, binascii.Error):
        kind, _, value = header.partition(b" ")
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        if kind.lower() == b"basic" and colon:
            return user, password
    return None, None


async def _read_head(reader: asyncio.StreamReader, *, without_body: bool) -> ResponseHead:
    """Read the response head of a site, without hop-by-hop headers. Raises ValueError if it is invalid."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    status = int(first.split(b" ")[1])
    if status < 200:
        return await _read_head(reader, without_body=without_body)
    kept, length = [], None
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
        if name.strip().lower() not in _HOP_BY_HOP:
            kept.append(line)
    if without_body or status in (204, 304):
        length = 0
    elif length is None:
        kept.append(b"Connection: close")
    return ResponseHead(status, b"\r\n".join((first, *kept, b"", b"")), length)
