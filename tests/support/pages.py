"""A site whose pages a test writes itself, under any name and on any loopback address; it remembers what it was asked for."""

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self


@dataclass(frozen=True)
class Page:
    """What is answered."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0


def html(*links: str, head: str = "", text: str = "some words") -> Page:
    """A page with links."""
    anchors = " ".join(f'<a href="{link}">x</a>' for link in links)
    body = f"<!doctype html><html><head><title>A page</title>{head}</head><body><p>{text}</p>{anchors}</body></html>"
    return Page(body.encode("utf-8", "surrogateescape"), headers={"Content-Type": "text/html; charset=utf-8"})


def moved(target: str, status: int = 302) -> Page:
    return Page(b"", status, {"Location": target})


MISSING = Page(b"no", 404, {"Content-Type": "text/plain"})


class Pages:
    """Serves `answers`: by "host/path" (without the port), or by "/path" for every host. robots.txt is missing unless it is given. A
    request that names the ETag of its page is answered with 304."""

    def __init__(
        self,
        answers: Mapping[str, Page] | None = None,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        login: str | None = None,
    ) -> None:
        """*login*: of Basic authentication, as it is sent; all but robots.txt is answered with 401 without it."""
        self.answers = dict(answers or {})
        self.login = login
        self.connections = 0
        self.asked: list[tuple[float, str]] = []
        """When, and "host/path"."""
        self.headers: list[tuple[str, dict[str, str]]] = []
        """Of each request: "host/path", and its headers by lower-case name."""
        handler = type("Handler", (_Handler,), {"site": self})
        self._server = (_Server6 if ":" in address else _Server)((address, port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"http://{host}:{self.port}{path}"

    def paths(self, host: str = "localhost") -> list[str]:
        """What a host was asked for, robots.txt apart."""
        asked = [name.removeprefix(host) for _, name in self.asked if name.startswith(f"{host}/")]
        return [path for path in asked if path != "/robots.txt"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    site: ClassVar[Pages]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        self.site.connections += 1
        super().setup()

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0].lower()
        self.site.asked.append((time.monotonic(), host + self.path))
        self.site.headers.append((host + self.path, {name.lower(): value for name, value in self.headers.items()}))
        page = self.site.answers.get(host + self.path) or self.site.answers.get(self.path) or MISSING
        wanted = self.site.login and f"Basic {self.site.login}"
        if wanted and self.headers.get("Authorization") != wanted and self.path != "/robots.txt":
            page = Page(b"who?", 401, {"WWW-Authenticate": 'Basic realm="x"'})
        if "ETag" in page.headers and self.headers.get("If-None-Match") == page.headers["ETag"]:
            page = Page(b"", 304, {"ETag": page.headers["ETag"]}, page.delay)
        time.sleep(page.delay)
        self.send_response(page.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if page.status != 304:
            self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name that it has there
        """The test looks itself."""
