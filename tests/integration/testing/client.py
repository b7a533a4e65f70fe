"""A client that does what it is told: any Host, any bytes."""

import http.client
import socket
import time
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

from holdfast.testing.simweb.process import WebProcess
from tests.unit.testing.walker import Got

PATIENCE = 60.0


class Response:
    """An answer that came whole."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()


def ask(
    web: WebProcess, target: str = "/", *, site: int = 0, method: str = "GET", headers: dict[str, str] | None = None
) -> Response:
    """One request on a connection of its own."""
    port = web.address.ports[site] if web.web.by_port else web.port
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request(
            method, target, headers={"Host": web.address.host(site), "User-Agent": "test", **(headers or {})}
        )
        return Response(connection.getresponse())


def fetch(web: WebProcess, url: str) -> Got:
    """For the walker: what went wrong is status 0."""
    parts = urlsplit(url)
    site = int((parts.hostname or "").removeprefix("s").partition(".")[0])
    try:
        answer = ask(web, f"{parts.path}?{parts.query}" if parts.query else parts.path, site=site)
    except (http.client.HTTPException, OSError):
        return Got(0)
    return Got(answer.status, answer.body, answer.headers.get("Location"))


def raw(web: WebProcess, sent: bytes, *, most: int = 10**9) -> bytes:
    """What comes back for these bytes, until the server ends the connection or *most* bytes have come."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        got = b""
        while len(got) < most and (piece := connection.recv(65_536)):
            got += piece
        return got


def eventually(true: Callable[[], bool]) -> None:
    """Wait until it is; fail if it never is."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
