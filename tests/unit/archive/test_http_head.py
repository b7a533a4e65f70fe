"""Heads as the archive keeps them: true about the decoded body, and harmless whatever the server sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.archive.http_head import parse_head, request_head, response_head
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome


def stored(head: bytes, body: bytes = b"12345", **fields: object) -> list[bytes]:
    """Lines of the head that is stored."""
    result = FetchResult("https://a.example/", Outcome.OK, status=200, body=body, response_head=head)
    for name, value in fields.items():
        setattr(result, name, value)
    text = response_head(result)
    assert text.endswith(b"\r\n\r\n")
    return text[:-4].split(b"\r\n")


def test_headers_that_no_longer_hold_are_renamed() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nServer: x\r\ntransfer-encoding : chunked\r\nContent-Length: 3\r\n\r\n"
    assert stored(head) == [
        b"HTTP/1.1 200 OK",
        b"X-Archive-Orig-Content-Encoding: br",
        b"Server: x",
        b"X-Archive-Orig-transfer-encoding : chunked",
        b"X-Archive-Orig-Content-Length: 3",
        b"Content-Length: 5",
    ]


def test_a_right_length_stays_once() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n"
    assert stored(head) == [b"HTTP/1.1 200 OK", b"Content-Length: 5", b"X-Archive-Orig-content-length: 5"]


@pytest.mark.parametrize(
    ("first", "kept"),
    [
        (b"HTTP/2 200", b"HTTP/1.1 200 OK"),
        (b"HTTP/3 200 ", b"HTTP/1.1 200 OK"),
        (b"HTTP/1.0 200 Fine", b"HTTP/1.0 200 Fine"),
        (b"HTTP/1.1 200", b"HTTP/1.1 200"),
        (b"HTTP/1.1 20x nonsense", b"HTTP/1.1 200 OK"),
    ],
)
def test_the_status_line_is_http_1(first: bytes, kept: bytes) -> None:
    assert stored(first + b"\r\nA: b\r\n\r\n")[:2] == [kept, b"A: b"]


def test_without_a_head_it_is_made_from_what_is_known() -> None:
    lines = stored(b"", status=299, headers={"x-ü": "a\r\nSet-Cookie: b", "content-length": "9"})
    assert lines == [
        b"HTTP/1.1 299",
        "x-ü: a Set-Cookie: b".encode(),
        b"X-Archive-Orig-content-length: 9",
        b"Content-Length: 5",
    ]


def test_odd_lines_are_kept_where_they_do_no_harm() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\nA: b\rc\x00d\n\tfolded\r\nno colon\n: no name\r\nL\xe4tin: \xff\r\n\r\n\r\n"
    assert stored(head)[1:-1] == [
        b"A: b c d folded",
        b"X-Archive-Orig-Line: no colon",
        b"X-Archive-Orig-Line: : no name",
        b"L\xe4tin: \xff",
    ]


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_any_bytes_make_a_head_that_can_be_parsed(noise: bytes, body: bytes) -> None:
    lines = stored(b"HTTP/1.1 200 OK\r\n" + noise, body)
    assert not [line for line in lines if not line or b"\r" in line or b"\n" in line]
    status, headers = parse_head(b"\r\n".join(lines))
    assert (status, headers["content-length"]) == (200, str(len(body)))
    assert not {"transfer-encoding", "content-encoding"} & set(headers)


def test_secrets_of_a_request_are_not_kept() -> None:
    sent = b"GET /a HTTP/2\r\nAuthorization: Basic c2VjcmV0\r\nCOOKIE : secret=1\r\nproxy-authorization:x\r\nHost: a\r\n\r\n"
    assert request_head(sent) == (
        b"GET /a HTTP/1.1\r\nAuthorization: [redacted]\r\nCOOKIE: [redacted]\r\nproxy-authorization: [redacted]\r\nHost: a\r\n\r\n"
    )
    assert request_head(b"") == request_head(b"\r\n") == b""


def test_headers_come_back_as_a_fetch_gives_them() -> None:
    assert parse_head(b"HTTP/1.1 404 Not Found\r\nVary: a\r\nVARY: b\r\nX: 1:2") == (404, {"vary": "a, b", "x": "1:2"})
