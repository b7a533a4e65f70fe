"""A site whose pages are made when they are asked for, so that it may have no end."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = str | int
"""The HTML of a page, or a status without one."""


@dataclass(frozen=True)
class Request:
    """A request as the log of a server has it."""

    host: str
    at: float
    status: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """A site that is served, and the log of its requests."""

    port: int
    log: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of the first page."""
        return f"http://127.0.0.1:{self.port}/"

    def asked(self) -> list[str]:
        """The paths of all requests but robots.txt."""
        return [request.path for request in self.log if request.path != "/robots.txt"]


def page(title: str, *links: str) -> str:
    """A page with links."""
    items = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    return (
        f"<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1><ul>{items}</ul></body></html>"
    )


@contextmanager
def served(answer: Callable[[str], Answer], robots: str = "") -> Iterator[Site]:
    """Serve what `answer` makes of a path with its query, and this robots.txt."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            got = robots if self.path == "/robots.txt" else answer(self.path)
            status, body = (200, got.encode()) if isinstance(got, str) else (got, b"")
            site.log.append(Request("127.0.0.1", time.time(), status, self.path, dict(self.headers)))
            self.send_response(status)
            kind = "text/plain" if self.path == "/robots.txt" else "text/html"
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not to standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
