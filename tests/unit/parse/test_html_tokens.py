"""The small grammars: robots directives, hrefs, srcset, meta refresh, white space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parse.html_tokens import (
    clean_href,
    collapse_whitespace,
    parse_meta_refresh,
    parse_robots_directives,
    parse_srcset,
    parse_x_robots_tag,
    select_links,
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("noindex", (True, False)),
        ("NoFollow", (False, True)),
        (" noindex , nofollow ", (True, True)),
        ("none", (True, True)),
        ("all", (False, False)),
        ("index,follow", (False, False)),
        ("noindexed", (False, False)),
        ("", (False, False)),
    ],
)
def test_directives(content: str, expected: tuple[bool, bool]) -> None:
    assert parse_robots_directives(content) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (False, False)),
        ("noindex", (True, False)),
        ("holdfast: noindex", (True, False)),
        ("HoldFast : none", (True, True)),
        ("otherbot: noindex, nofollow", (False, False)),
        ("otherbot: noindex, holdfast: nofollow", (False, True)),
        ("noindex, otherbot: nofollow", (True, False)),
        ("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", (True, False)),
        ("max-snippet: 20, nofollow", (False, True)),
        (":::,,,", (False, False)),
    ],
)
def test_robots_header(header: str | None, expected: tuple[bool, bool]) -> None:
    assert parse_x_robots_tag(header) == expected


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("/a", "/a"),
        (" \n/a\t", "/a"),
        ("a b", "a b"),
        ("HTTPS://x/", "HTTPS://x/"),
        ("//x/", "//x/"),
        ("?q=a:b", "?q=a:b"),
        ("a/b:c", "a/b:c"),
        ("", None),
        ("  ", None),
        (None, None),
        ("#top", None),
        (" #top", None),
        ("javascript:void(0)", None),
        ("JavaScript:x", None),
        ("mailto:a@b", None),
        ("tel:1", None),
        ("data:image/png;base64,x", None),
        ("ftp://x/", None),
    ],
)
def test_what_leads_somewhere(href: str | None, expected: str | None) -> None:
    assert clean_href(href) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a.jpg", ["a.jpg"]),
        ("a.jpg 1x, b.jpg 2x", ["a.jpg", "b.jpg"]),
        ("a.jpg, b.jpg 2x", ["a.jpg", "b.jpg"]),
        ("a.jpg 100w,b.jpg 200w", ["a.jpg", "b.jpg"]),
        ("/w_1,h_2/a.jpg 1x,\n /w_3,h_4/b.jpg 2x", ["/w_1,h_2/a.jpg", "/w_3,h_4/b.jpg"]),
        ("a.jpg f(1,2) 1x, b.jpg", ["a.jpg", "b.jpg"]),
        ("a.jpg f(1,2", ["a.jpg"]),
        (" , ,a.jpg,, ", ["a.jpg"]),
        ("", []),
        (",,, ", []),
    ],
)
def test_srcset(value: str, expected: list[str]) -> None:
    assert parse_srcset(value) == expected


def test_white_space_is_folded() -> None:
    assert collapse_whitespace(" a\n\t b\xa0\xa0c \r\n") == "a b c"
    assert collapse_whitespace(" " * 100_001) == ""


@given(st.text())
def test_grammars_take_any_text(text: str) -> None:
    clean_href(text)
    parse_srcset(text)
    parse_x_robots_tag(text)
    assert "  " not in collapse_whitespace(text)


def test_links_are_kept_once_in_order_up_to_the_limit() -> None:
    hrefs = ("/b", "/a", "/b", "/a#x", " /a ", "/c#1", "/c#2", "/c", "/d", "/e", "/e", "#f", "mailto:x")
    assert select_links([(href, None) for href in hrefs], 3)[:4] == (["/b", "/a", "/c#1"], 2, [], [])


def test_links_that_ask_not_to_be_followed_are_counted() -> None:
    rels = ("nofollow", "noopener NOFOLLOW", "ugc", "sponsored", "nofollowing", None)
    found = [*((f"/{rel}", rel) for rel in rels), ("mailto:x", "nofollow")]
    kept = ["/ugc", "/sponsored", "/nofollowing", "/None"]
    assert select_links(found, 10)[:4] == (kept, 0, ["/nofollow", "/noopener NOFOLLOW"], [])


def test_the_next_page_is_named() -> None:
    found = [("/2", "next"), ("/1", "prev"), ("/3", "Next nofollow"), (" /2", "x NEXT"), ("/4", None)]
    assert select_links(found, 10)[:4] == (["/2", "/1", "/4"], 0, ["/3"], ["/2"])


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("5; url=/x", "/x"),
        ("0;URL='/x'", "/x"),
        ('0;Url = "/x" trailing', "/x"),
        ("0,url=/x", "/x"),
        (" 1.5 ; /x y ", "/x y"),
        ("5 /x", "/x"),
        ("5\n;\turl\t=\t/x", "/x"),
        ("0;url=http://h/a?b=c;d", "http://h/a?b=c;d"),
        ("0;urls=/x", "urls=/x"),
        ("0;url='/x", "/x"),
        (".5;/x", "/x"),
        ("0;url=", None),
        ("0;url=''", None),
        ("5", None),
        ("5;", None),
        ("", None),
        ("url=/x", None),
        ("-1;url=/x", None),
        ("5x;url=/x", None),
        ("0;url=javascript:x()", None),
        ("0;url=#top", None),
    ],
)
def test_where_a_refresh_leads(content: str, target: str | None) -> None:
    assert parse_meta_refresh(content) == target
