"""Connections that keep us waiting, or never come to an end, are cut off."""

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast.api.http_protocol import MAX_HEAD_BYTES
from holdfast.db.connection import Database
from holdfast.model.auth import Role, Scope
from tests.support.api import Api, serving, settings
from tests.support.crawls import wait_for

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
    """The head of one whole answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _some(line, 1)
    length = re.search(rb"content-length: (\d+)", head.lower())
    assert length is not None
    left = int(length[1])
    while left:
        left -= len(_some(line, left))
    return head


def _some(line: socket.socket, most: int) -> bytes:
    got = line.recv(most)
    assert got, "the connection was closed in the middle of an answer"
    return got


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
        for _ in range(MAX_HEAD_BYTES // 1024 + 1):
            line.sendall(b"x" * 1024)
        assert _answer(line).startswith(b"HTTP/1.1 431 ")


def _head(length: int) -> bytes:
    """A request whose head has so many bytes."""
    before = WHOLE[:-2] + b"X-Long: "
    return before + b"x" * (length - len(before) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("before", [b"", WHOLE], ids=["alone", "after another request"])
def test_the_limit_of_a_head_is_exact_when_it_comes_in_one_piece(api: Api, before: bytes) -> None:
    for length, status in ((MAX_HEAD_BYTES, b"200"), (MAX_HEAD_BYTES + 1, b"431"), (70_000, b"431")):
        with _connected(api) as line:
            line.sendall(before + _head(length))
            if before:
                assert _answer(line).startswith(b"HTTP/1.1 200 ")
            assert _answer(line).startswith(b"HTTP/1.1 " + status + b" "), length


def test_a_long_body_is_no_long_head(api: Api) -> None:
    client = api.admin
    name = "x" * (2 * MAX_HEAD_BYTES)
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
        pieces = 100 * MAX_HEAD_BYTES // len(trailer)
        with pytest.raises(ConnectionError):
            _send(line, trailer, pieces)


def _send(line: socket.socket, piece: bytes, count: int) -> None:
    for _ in range(count):
        line.sendall(piece)


ODD = {
    "upgrade": (404, b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    "no HTTP": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "CONNECT": (400, b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"),
    "asterisk": (404, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
    "long head": (431, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"),
    "two lengths": (400, b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    "unknown path": (404, b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"),
    "unknown method": (405, b"DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n"),
    "no text": (400, b"GET /api/stats?%00 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "long body": (413, b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"),
}


def test_odd_requests_count_like_others_and_write_no_log(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(database, settings(tmp_path, anonymous_limit=2 * len(ODD))) as api:
        answered = [_statuses(api) for _ in range(3)]
        assert api.anybody.get("/api/stats").status_code == 429
        assert api.anybody.get("/health").status_code == 200
    expected = {kind: status for kind, (status, _) in ODD.items()}
    assert answered == [expected, expected, dict.fromkeys(ODD, 429)]
    assert [record.getMessage() for record in caplog.records] == []


def _statuses(api: Api) -> dict[str, int]:
    found = {}
    for kind, (_, sent) in ODD.items():
        with _connected(api) as line:
            line.sendall(sent)
            found[kind] = int(_answer(line).split()[1])
    return found


def test_one_address_has_no_more_than_its_share_of_connections(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))
    for proxies, expected in (((), [True, True, True, False]), (("127.0.0.0/8",), [True] * 4)):
        with serving(database, settings(tmp_path, trusted_proxies=proxies)) as api, ExitStack() as lines:
            held = [lines.enter_context(_connected(api)) for _ in range(4)]
            assert [_is_served(line) for line in held] == expected
            held[0].close()
            wait_for(partial(_is_open, api), "another one is served")


def _is_open(api: Api) -> bool:
    with _connected(api) as line:
        return _is_served(line)


def _is_served(line: socket.socket) -> bool:
    try:
        line.sendall(WHOLE)
        return _answer(line).startswith(b"HTTP/1.1 200 ")
    except (ConnectionError, AssertionError):
        return False
