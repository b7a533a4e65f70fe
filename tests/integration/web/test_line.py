"""Connections that keep us waiting, or never come to an end, are cut off."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.model.account import Role, Scope
from holdfast.store.connect import Database
from holdfast.web.line import LONGEST_HEAD
from tests.support.api import Api, serving, settings

WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    with serving(database, settings(tmp_path, request_timeout=timedelta(seconds=1))) as served:
        yield served


@contextmanager
def _connected(api: Api) -> Iterator[socket.socket]:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        yield line


def _answer(line: socket.socket) -> bytes:
    """A whole answer."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += line.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    assert length is not None
    while len(body) < int(length[1]):
        body += line.recv(65536)
    return head


@pytest.mark.parametrize(
    "begun", [b"", b"GET /health HTTP/1.1\r\nHost: local"], ids=["says nothing", "stops in the head"]
)
def test_who_does_not_say_what_he_wants_is_cut_off(api: Api, begun: bytes) -> None:
    with _connected(api) as line:
        line.sendall(begun)
        assert _answer(line).startswith(b"HTTP/1.1 408 ")
        assert line.recv(100) == b""


def test_nor_may_the_next_request_keep_us_waiting(api: Api) -> None:
    with _connected(api) as line:
        for _ in range(2):
            line.sendall(WHOLE)
            assert _answer(line).startswith(b"HTTP/1.1 200 ")
        line.sendall(WHOLE[:-4])
        assert _answer(line).startswith(b"HTTP/1.1 408 ")
        assert line.recv(100) == b""


def test_a_head_without_end_is_not_read_to_its_end(api: Api) -> None:
    with _connected(api) as line:
        line.sendall(WHOLE[:-2] + b"X-Long: ")
        for _ in range(LONGEST_HEAD // 1024 + 1):
            line.sendall(b"x" * 1024)
        assert _answer(line).startswith(b"HTTP/1.1 431 ")


def test_a_long_body_is_no_long_head(api: Api) -> None:
    client = api.admin
    name = "x" * (2 * LONGEST_HEAD)
    answer = client.post("/api/admin/batches", json={"name": name})
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, "body.name")


CHUNKED = b"GET /api/auth/me HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


def test_a_trailer_is_no_header(api: Api) -> None:
    key = api.key(Role.ADMIN, Scope.READ)
    with _connected(api) as line:
        line.sendall(CHUNKED + f"Authorization: Bearer {key}\r\n\r\n".encode())
        assert _answer(line).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("trailer", [b"X-Long: " + b"x" * 1000, b"X: y\r\n" * 150], ids=["one", "many"])
def test_trailers_without_end_are_not_read_to_their_end(api: Api, trailer: bytes) -> None:
    with _connected(api) as line:
        line.sendall(CHUNKED)
        pieces = 100 * LONGEST_HEAD // len(trailer)
        with pytest.raises(ConnectionError):
            _send(line, trailer, pieces)


def _send(line: socket.socket, piece: bytes, count: int) -> None:
    for _ in range(count):
        line.sendall(piece)
