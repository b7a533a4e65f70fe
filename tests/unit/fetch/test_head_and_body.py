"""Heads of all kinds are read into clean text; bodies never grow beyond what was agreed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fetch import dns
from holdfast.fetch import response as body_of
from holdfast.fetch.response import MAX_RATIO, RATIO_FROM, BodyCollector, parse_head, parse_status


def lines(*texts: bytes) -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\n", *(text + b"\r\n" for text in texts), b"\r\n"]


def test_headers_by_lower_case_name_joined() -> None:
    head = parse_head(lines(b"Vary: a", b'ETag:\t"x"  ', b"vary: b", b"X-Empty:"))
    assert head.headers == {"vary": "a, b", "etag": '"x"', "x-empty": ""}
    assert head.status == 200
    assert head.raw == b'HTTP/1.1 200 OK\r\nVary: a\r\nETag:\t"x"  \r\nvary: b\r\nX-Empty:\r\n\r\n'


def test_folded_lines_go_on_with_the_one_before() -> None:
    assert parse_head(lines(b"A: one", b"  two", b"\tthree")).headers == {"a": "one two three"}


def test_lines_that_are_no_headers_are_left_out() -> None:
    assert parse_head(lines(b"nonsense", b" folded", b": no name", b"A: 1")).headers == {"a": "1"}


def test_no_control_characters() -> None:
    assert parse_head(lines(b"A: x\x00y\x1b[31m\x85z", b"B\x07: caf\xe9")).headers == {"a": "x y [31m z", "b": "café"}


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"text/html; charset=x", "text/html"),
        (b"Text/HTML", "text/html"),
        (b";charset=x", ""),
        (b"", ""),
        (b"image/png", "image/png"),
    ],
)
def test_content_type(value: bytes, content_type: str) -> None:
    assert parse_head(lines(b"Content-Type: " + value)).content_type == content_type


def test_the_last_content_type_counts() -> None:
    assert (
        parse_head(lines(b"Content-Type: image/png", b"Content-Type: text/html", b"Content-Type:")).content_type
        == "text/html"
    )


@pytest.mark.parametrize(
    ("value", "location"),
    [
        (b"/a b", "/a b"),
        ("/caf\u00e9".encode(), "/café"),
        (b"/caf\xe9", "/caf%E9"),
        (b"/caf\xe9%20?x=1#y", "/caf%E9%20?x=1#y"),
        (b"  ", None),
        (b"//h/\x07x", "//h/ x"),
    ],
)
def test_location(value: bytes, location: str | None) -> None:
    assert parse_head(lines(b"Location: " + value)).location == location


def test_the_first_location_counts() -> None:
    head = parse_head(lines(b"Location: /a", b"Location: /b"))
    assert head.location == "/a"


@pytest.mark.parametrize(
    ("values", "layers"),
    [
        ([], 0),
        ([b"identity"], 0),
        ([b"gzip"], 1),
        ([b"gzip, deflate"], 2),
        ([b"gzip", b"br , gzip"], 3),
        ([b",gzip,,"], 1),
    ],
)
def test_layers_of_encoding(values: list[bytes], layers: int) -> None:
    assert parse_head(lines(*(b"Content-Encoding: " + value for value in values))).encodings == layers


@pytest.mark.parametrize(
    ("value", "length"), [(b"5", 5), (b"-5", None), (b"5, 5", None), (b"9" * 5000, None), (b"x", None)]
)
def test_length(value: bytes, length: int | None) -> None:
    assert parse_head(lines(b"Content-Length: " + value)).length == length


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"HTTP/1.1 200 OK", 200),
        (b"HTTP/2 404 ", 404),
        (b"HTTP/1.0 301", 301),
        (b"HTTP/1.1 2000", 0),
        (b"\r\n", 0),
        (b"ICY 200", 0),
    ],
)
def test_status(line: bytes, code: int) -> None:
    assert parse_status(line) == code


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_give_clean_text(texts: list[bytes]) -> None:
    head = parse_head(lines(*texts))
    for name, value in head.headers.items():
        assert not [c for c in name + value if ord(c) < 32 or 127 <= ord(c) < 160]


def test_a_body_is_what_was_written() -> None:
    body = BodyCollector()
    body.begin(10, cut=False)
    assert body.write(b"hello") is None
    assert body.write(b"world") is None
    assert body.take() == b"helloworld"
    assert (body.cut, body.too_large) == (False, False)


@given(st.lists(st.binary(max_size=50)), st.integers(0, 200), st.booleans())
def test_never_more_than_the_limit(pieces: list[bytes], limit: int, cut: bool) -> None:
    body = BodyCollector()
    body.begin(limit, cut=cut)
    whole = b"".join(pieces)
    stopped = any(body.write(piece) is not None for piece in pieces)
    assert stopped == (len(whole) > limit)
    assert body.take() == (whole if not stopped else whole[:limit] if cut else b"")
    assert (body.cut, body.too_large) == (stopped and cut, stopped and not cut)


def test_shortened_is_cut() -> None:
    body = BodyCollector()
    body.begin(100, cut=False)
    body.truncate_at(3)
    assert body.write(b"hello") is not None
    assert (body.take(), body.cut, body.too_large) == (b"hel", True, False)


def test_bombs() -> None:
    body = BodyCollector()
    body.begin(1 << 30, cut=False)
    body.limit_by_ratio(10)
    assert body.write(b"x" * RATIO_FROM) is None
    assert body.write(b"x") is not None
    assert body.too_large
    body.begin(1 << 30, cut=False)
    body.write(b"x" * (RATIO_FROM + 1))
    assert body.is_decompression_bomb(RATIO_FROM // MAX_RATIO - 1)
    assert not body.is_decompression_bomb(RATIO_FROM // MAX_RATIO + 1)
    assert body_of.MAX_RATIO > 50


def test_hosts_file(tmp_path: Path) -> None:
    text = (
        "# mine\n127.0.0.1 localhost\n10.0.0.1\tA.Example b.example. # trailing\nfe80::1%eth0 scoped\n"
        "nonsense c.example\n::5 a.example\n10.0.0.1 a.example"
    )
    names = dns.parse_hosts(text)
    assert names["a.example"] == ("10.0.0.1", "::5")
    assert names["b.example"] == ("10.0.0.1",)
    assert "c.example" not in names
    file = tmp_path / "hosts"
    known = dns.HostsFile(file)
    assert known.lookup("a.example") == ()
    file.write_text(text)
    assert known.lookup("a.example") == ("10.0.0.1", "::5")
    file.write_text("10.0.0.22 a.example\n9.9.9.9 localhost")
    assert known.lookup("a.example") == ("10.0.0.22",)
    assert known.lookup("localhost") == known.lookup("deep.below.localhost") == dns.LOOPBACK
    file.unlink()
    assert known.lookup("a.example") == ()
