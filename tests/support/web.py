"""Web servers on loopback that say exactly what a test tells them to, right or wrong, in the test's own event loop."""

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchRequest
from holdfast.settings import Fetch

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Talks to a client whose request was read; the connection ends with it."""
Answer = bytes | Script
"""Bytes are sent as they are, and the connection stays open."""


@asynccontextmanager
async def client(
    *, hosts_file: Path = Path("/nonexistent"), ca_file: str | None = None, **settings: Any
) -> AsyncIterator[HttpClient]:
    """The real client, with a resolver of its own."""
    wanted = Fetch(**settings)
    async with (
        Resolver(wanted, hosts_file=hosts_file) as resolver,
        HttpClient(wanted, resolver, ca_file=ca_file) as made,
    ):
        yield made


def ask(url: str, *, allow_private: bool = True, **more: Any) -> FetchRequest:
    return FetchRequest(url, "holdfast-tests/1.0", allow_private=allow_private, **more)


def response(
    body: bytes = b"", status: str = "200 OK", content_type: str | None = "text/html", **headers: str | int
) -> bytes:
    """An answer of HTTP/1.1. Headers are written with _ for -."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {headers.pop('Content_Length', len(body))}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def then_close(data: bytes) -> Script:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return script


def then_hang(data: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return script


def then_reset(data: bytes) -> Script:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        linger = struct.pack("ii", 1, 0)  # with nothing to linger for, the end is a reset
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    return script


def endless(head: bytes, piece: bytes, pause: float = 0.0) -> Script:
    """A head, then the same piece forever."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return script


class Web:
    """A server. Without *script* it reads requests and answers by path; *script* talks from the first byte on."""

    def __init__(
        self,
        answers: Mapping[str, Answer] | None = None,
        *,
        script: Script | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answers = dict(answers or {})
        self.connections = 0
        self.heads: list[bytes] = []
        """What clients asked, as it came."""
        self._script = script
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http{'s' if self._tls else ''}://{host}:{self.port}{path}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._script is not None:
                await self._script(reader, writer)
                return
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                path = head.split()[1].decode().partition("?")[0]
                answer = self.answers.get(path, response(b"nothing here", "404 Not Found"))
                if not isinstance(answer, bytes):
                    await answer(reader, writer)
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def http2(body: bytes, refuse: Callable[[int], bytes | None] = lambda _: None) -> Script:
    """HTTP/2 in as few words as possible: every request is answered 200, text/html, with *body*, unless *refuse* has other frames for
    its stream."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data, headers, settings, ping = 0, 1, 4, 6
        assert await reader.readexactly(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        writer.write(frame(settings, 0, 0))
        while True:
            start = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(start[:3], "big"))
            kind, flags, stream = start[3], start[4], int.from_bytes(start[5:], "big")
            if kind == settings and not flags & 1:
                writer.write(frame(settings, 1, 0))
            elif kind == ping and not flags & 1:
                writer.write(frame(ping, 1, 0, payload))
            elif kind == headers:
                if (refused := refuse(stream)) is not None:
                    writer.write(refused)
                    continue
                fields = b"\x88" + b"\x0f\x10" + bytes((len(b"text/html"),)) + b"text/html"
                writer.write(frame(headers, 4, stream, fields) + frame(data, 1, stream, body))
            await writer.drain()

    return script


@dataclass(frozen=True)
class Certificate:
    """A certificate that vouches for itself, for the name `site.example`."""

    file: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> "Certificate":
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("there is no openssl to make a certificate with")
        made = cls(folder / "certificate.pem", folder / "key.pem")
        wanted = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2"]
        names = ["-subj", "/CN=site.example", "-addext", "subjectAltName=DNS:site.example"]
        files = ["-keyout", str(made.key), "-out", str(made.file)]
        subprocess.run([openssl, "req", *wanted, *names, *files], check=True, capture_output=True)
        return made

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context
