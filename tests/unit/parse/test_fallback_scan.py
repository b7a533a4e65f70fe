"""The scan for pages on which the parser failed."""

import hashlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse.fallback_scan import scan
from tests.unit.parse.bombs import BOMBS, TAIL


def read(
    body: bytes, *, content_type: str | None = None, x_robots_tag: str | None = None, limit: int = 100
) -> ParsedPage:
    return scan(body, content_type=content_type, x_robots_tag=x_robots_tag, links_per_page=limit, problem="why")


def test_a_page() -> None:
    body = """<title>A &amp; é</title><base href='/b/'><base href=/c/><meta content="noindex" name='Robots'>
        <a href="/1?a=1&amp;b=2">x</a><A class=x HREF='/2'>y</a><a href=/3 rel="x nofollow">z</a><area href=/4>
        <a data-href=/no>n</a><abbr href=/no><a href="mailto:x"><a href=/1?a=1&b=2><a name=x>
        <frame src=/f><iframe src='/i'></iframe><iframe srcdoc=x><meta http-equiv=Refresh content="0;URL=/r">
        <a href=/5 rel=next>""".encode()
    parsed = read(body)
    assert parsed.title == "A & é"
    assert parsed.base == "/b/"
    assert parsed.links == ["/1?a=1&b=2", "/2", "/4", "/5"]
    assert (parsed.links_nofollow, parsed.links_next) == (["/3"], ["/5"])
    assert parsed.frames == ["/f", "/i", "/r"]
    assert (parsed.noindex, parsed.nofollow) == (True, False)
    assert (parsed.text, parsed.problem, parsed.charset) == ("", "why", "utf-8")
    assert parsed.content_hash == hashlib.sha256(body).digest()


def test_header_limit_and_charset() -> None:
    parsed = read(
        "<a href=/яя><a href=/юю><a href=/жж>".encode("cp1251"),
        content_type="x; charset=cp1251",
        x_robots_tag="none",
        limit=2,
    )
    assert (parsed.links, parsed.links_cut, parsed.charset) == (["/яя", "/юю"], 1, "windows-1251")
    assert parsed.links_found == 3
    assert (parsed.noindex, parsed.nofollow) == (True, True)


@pytest.mark.parametrize("name", BOMBS)
def test_links_behind_a_bomb_are_found(name: str) -> None:
    assert read(BOMBS[name] + TAIL).links == ["/after"]


@pytest.mark.parametrize(
    "piece",
    [
        b"<a ",
        b"<a",
        b'<a href="',
        b"<a href='",
        b"<a href",
        b"<title",
        b"<title>",
        b"<meta name=",
        b"rel=",
        b"<a href=x ",
        b" ",
    ],
)
def test_time_is_linear(piece: bytes) -> None:
    """A generous limit: a quadratic pattern would take minutes."""
    began = time.monotonic()
    read(b"<a " + piece * (2_000_000 // len(piece)))
    assert time.monotonic() - began < 20


@settings(max_examples=100)
@given(
    st.binary(max_size=100)
    | st.lists(st.sampled_from([b"<a ", b"href=", b'"', b"'", b"&#", b"\0", b"\xff", b">", b"<title>"])).map(b"".join)
)
def test_any_bytes_are_read(body: bytes) -> None:
    parsed = read(body)
    assert all(text.encode() is not None for text in (parsed.title or "", *parsed.links))
    assert len(parsed.content_hash) == 32
