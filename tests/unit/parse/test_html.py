"""Parsing of pages in this process: text, links, metadata, robots directives."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse.html import parse_page


def page(
    html: str | bytes, *, links_per_page: int = 1000, content_type: str = "text/html; charset=utf-8"
) -> ParsedPage:
    body = html.encode() if isinstance(html, str) else html
    return parse_page(body, content_type=content_type, links_per_page=links_per_page)


def test_a_whole_page() -> None:
    parsed = page("""<!DOCTYPE html><html><head><title> A &amp;
        B </title><meta name="Description" content=" what
        it is "><meta property="og:description" content="other"><base href="/folder/"><base href="/second/">
        <link rel="canonical" href="https://x.test/c"><link rel=alternate hreflang=de href=/de>
        <link rel="alternate" media="handheld" href="/m"><link rel=alternate type="application/rss+xml" href=/feed>
        <link rel="alternate stylesheet" href="/s.css"><link rel=alternate href=/de>
        <meta property="og:image" content="/og.png"></head>
        <body><p>Hello <b>bold</b> world</p><a href="x">one</a><map><area href="/area"></map>
        <a href="y" rel="nofollow">two</a><img src="i.png" srcset="i1.png 1x, i2.png 2x"></body></html>""")
    assert parsed.title == "A & B"
    assert parsed.description == "what it is"
    assert parsed.text == "Hello bold world one two"
    assert parsed.canonical == "https://x.test/c"
    assert parsed.base == "/folder/"
    assert parsed.alternates == ["/de", "/m"]
    assert parsed.links == ["x", "/area"]
    assert (parsed.links_cut, parsed.links_nofollow) == (0, ["y"])
    assert parsed.links_found == 6
    assert parsed.images == ["/og.png", "i.png", "i1.png", "i2.png"]
    assert parsed.charset == "utf-8"
    assert parsed.content_hash == hashlib.sha256(b"A & B\nHello bold world one two").digest()
    assert (parsed.noindex, parsed.nofollow, parsed.password_form, parsed.problem) == (False, False, False, None)


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<!doctype html><html lang=de-AT><p>x", "de-AT"),
        ("<p>x<html LANG=' fr '>", "fr"),
        ("<html lang>x", None),
        ("<html xml:lang=de>x", None),
        ("<p lang=de>x", None),
    ],
)
def test_the_language_is_that_of_the_whole_page(html: str, language: str | None) -> None:
    assert page(html).content_language == language
    assert page(html, content_type="text/plain").content_language is None


def test_feeds_and_sitemaps_that_a_page_names() -> None:
    parsed = page(
        """<link rel=alternate type="application/rss+xml" href=" /rss "><link rel="alternate" type="application/rss+xml">
        <link rel="Feed Alternate" type="Application/Atom+XML; charset=utf-8" href=/atom><link rel=alternate href=/page>
        <link rel=alternate type=application/json href=/no><link rel=alternate type=application/rss+xml href=/rss>
        <link rel=sitemap type=application/xml title=Sitemap href=/map.xml><link rel=SITEMAP href="mailto:x">
        <a rel=sitemap href=/map.html>map</a>"""
        + "".join(f"<link rel=sitemap href=/{n}>" for n in range(99))
    )
    assert parsed.feeds == ["/rss", "/atom"]
    assert parsed.sitemaps == ["/map.xml", *(f"/{n}" for n in range(49))]
    assert (parsed.alternates, parsed.links, parsed.links_found) == (["/page"], ["/map.html"], 2)


def test_what_is_not_seen_is_no_text() -> None:
    parsed = page("""<body>a<script>b</script><style>c</style><noscript>d<a href=/n>n</a><img src=/i></noscript><!-- e -->
        <template>f<a href=/t>t</a></template><p hidden>g<a href=/h>h</a></p><iframe>i</iframe><svg><style>j</style></svg>k""")
    assert parsed.text == "a k"
    assert parsed.links == ["/n", "/h"]
    assert parsed.images == ["/i"]


@pytest.mark.parametrize("outer", ["<noscript>", "<p hidden>", "<div hidden><noscript>"])
@pytest.mark.parametrize(
    "inner", ["<script>x</script>", "<iframe>x</iframe>", "<b hidden>x<i hidden>y</i></b>", "<noscript>x</noscript>"]
)
def test_what_is_not_seen_may_be_inside_of_what_is_not_seen(outer: str, inner: str) -> None:
    closing = "</noscript></p></div>"
    parsed = page(f"<body>a{f'{outer}b{inner}c{closing}' * 50}k")
    assert parsed.text == "a k"


def test_links_keep_the_order_of_the_page() -> None:
    assert page('<a href=1></a><map><area href=2></map><a href=3></a><area href="4"><a href=1>').links == [
        "1",
        "2",
        "3",
        "4",
    ]


def test_a_page_that_is_hidden_as_a_whole_has_its_text() -> None:
    assert page("<body hidden>text").text == "text"


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title></title>x", None),
        ("x", None),
        ("<svg><title>icon</title></svg><title>page</title>", "page"),
        ("<svg><title>icon</title></svg>", None),
        ("<title>" + "x" * 2000 + "</title>", "x" * 1000),
        ("<title><b>x</b></title>", "<b>x</b>"),
    ],
)
def test_titles(html: str, title: str | None) -> None:
    assert page(html).title == title


def test_descriptions() -> None:
    assert page("<meta property=og:description content=x>").description == "x"
    assert page("<meta name=description content=' '><meta name=og:description content=x>").description == "x"
    assert page(f"<meta name=description content='{'x' * 6000}'>").description == "x" * 5000
    assert page("<meta name=description>").description is None


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("<base href='https://x.test/y/'>", "https://x.test/y/"),
        ("<base target=_top><base href=/a><base href=/b>", "/a"),
        ("<base href='javascript:x'><base href=/b>", None),
        ("<base href='data:x'>", None),
        ("<base href=''>", None),
        ("", None),
    ],
)
def test_base(html: str, base: str | None) -> None:
    assert page(html).base == base


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<meta name=robots content='noindex'>", (True, False)),
        ("<meta name=ROBOTS content='NOFOLLOW'>", (False, True)),
        ("<meta name=holdfast content='none'>", (True, True)),
        ("<meta name=otherbot content='none'>", (False, False)),
        ("<meta name=robots content=noindex><meta name=holdfast content=nofollow>", (True, True)),
        ("<body><meta name=robots content='noindex, follow'>", (True, False)),
        ("<!-- <meta name=robots content=none> -->", (False, False)),
        ("<meta name=robots>", (False, False)),
    ],
)
def test_robots(html: str, expected: tuple[bool, bool]) -> None:
    parsed = page(html)
    assert (parsed.noindex, parsed.nofollow) == expected


def test_the_robots_header_counts_too() -> None:
    parsed = parse_page(b"<meta name=robots content=nofollow>", content_type=None, x_robots_tag="holdfast: noindex")
    assert (parsed.noindex, parsed.nofollow) == (True, True)
    plain = parse_page(b"x", content_type="text/plain", x_robots_tag="noindex")
    assert (plain.noindex, plain.nofollow) == (True, False)


def test_images_of_all_kinds() -> None:
    parsed = page("""<img data-src=a><img src="data:image/gif;base64,x" data-original=b data-lazy-src=c data-srcset="d 1x, e 2x">
        <picture><source srcset="f 1x"><img src=a></picture><video><source src=movie.mp4></video><img><img src>""")
    assert parsed.images == ["a", "b", "c", "d", "e", "f"]


def test_the_limit_of_links() -> None:
    parsed = page("".join(f"<a href=/{i}>" for i in range(10)) + "<a href=/1>", links_per_page=4)
    assert parsed.links == ["/0", "/1", "/2", "/3"]
    assert parsed.links_cut == 6


def test_all_links_are_counted_whatever_the_limit() -> None:
    html = """<link rel=canonical href=/0><link rel=alternate href=/de><iframe src=/frame></iframe><iframe src=/1></iframe>
        <meta http-equiv=refresh content="5; url=/after"><a href=/1 rel=nofollow><a href=/n1 rel=nofollow><a href=/n2 rel=nofollow>
        <a href=mailto:x><a href=#top><a href=/0#part>"""
    parsed = page(html + "".join(f"<a href=/{i}>" for i in range(10)) + "<a href=/1>", links_per_page=1)
    assert (len(parsed.links), len(parsed.links_nofollow), len(parsed.frames)) == (1, 1, 1)
    assert parsed.links_found == len({"/de", "/frame", "/after", "/n1", "/n2"}) + 10
    assert page("<p>x").links_found == 0


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<form><input type=password></form>", True),
        ("<form><div><input type=Password></div></form>", True),
        ("<form id=f></form><input form=f type=password>", True),
        ("<input type=password>", False),
        ("<form><input type=text></form>", False),
        ("<form><input type=password></form>" + "word " * 300, False),
    ],
)
def test_login_pages(html: str, expected: bool) -> None:
    assert page(html).password_form is expected


def test_other_encodings() -> None:
    parsed = page(
        "<title>Пр</title><a href='/и'>ив</a>".encode("windows-1251"), content_type="text/html; charset=cp1251"
    )
    assert (parsed.title, parsed.text, parsed.links, parsed.charset) == ("Пр", "ив", ["/и"], "windows-1251")
    parsed = page("\ufeff<p>é</p>".encode("utf-16-le"), content_type="text/html")
    assert (parsed.text, parsed.charset) == ("é", "utf-16le")
    assert page("\ufeff<p>é</p>", content_type="text/html").text == "é"


@pytest.mark.parametrize(
    "html",
    [
        b"<title>a\0b</title><p>c\0d</p><a href='/e\0f'>g</a>",
        b"<title>&#0;&#xD800;&#xdfff;&#x110000;</title><p>&#0;&#xD800;</p><a href='&#xD800;&#0;x'>g</a>",
        b"<title>\xed\xa0\x80</title><p>\xff\xfe</p><a href='/\xed\xb0\x80'>g</a>",
        b"<p <a <b <<<>>> </ </> <! <? <!-- <a href=/x>",
        b'<a href="/unclosed',
    ],
)
def test_nasty_pages_are_read_and_clean(html: bytes) -> None:
    _clean(page(html))


def test_plain_text_has_no_links() -> None:
    parsed = page(b"<a href=/x>\n  caf\xe9", content_type="text/plain; charset=latin1")
    assert (parsed.text, parsed.links, parsed.title) == ("<a href=/x> café", [], None)
    assert parsed.content_hash == hashlib.sha256("\n<a href=/x> café".encode()).digest()


def test_a_page_without_text_is_known_by_its_bytes() -> None:
    body = b"\xff\xfe<\0i\0m\0g\0>\0"
    assert page(body, content_type="text/html").content_hash == hashlib.sha256(body).digest()
    assert page(b"", content_type="text/html").content_hash == hashlib.sha256(b"").digest()


def _clean(parsed: ParsedPage) -> None:
    for text in (parsed.title or "", parsed.description or "", parsed.text, *parsed.links, *parsed.images):
        assert "\0" not in text
        text.encode()
    assert len(parsed.content_hash) == 32


_PIECES = st.sampled_from(
    [
        b"<a href=",
        b"<p>",
        b"</p>",
        b"<b>",
        b"<table>",
        b"<td>",
        b"<svg>",
        b"<title>",
        b"<!--",
        b"-->",
        b'"',
        b"'",
        b">",
        b"\0",
        b"&#0;",
        b"\xed\xa0\x80",
    ]
)


@settings(max_examples=150)
@given(
    st.lists(_PIECES | st.binary(max_size=8), max_size=30).map(b"".join),
    st.sampled_from(
        [None, "text/html", "text/plain", "text/html; charset=shift_jis", "text/html; charset=utf-16", ";;;"]
    ),
)
def test_any_bytes_give_a_page(body: bytes, content_type: str | None) -> None:
    _clean(parse_page(body, content_type=content_type))


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<div class="g-recaptcha" data-sitekey="x"></div>', True),
        ("<script src=https://js.hcaptcha.com/1/api.js></script><div class=h-captcha></div>", True),
        ('<title>Just a moment...</title><script src="/cdn-cgi/challenge-platform/h/b/x.js"></script>', True),
        ('<form action="/errors/validateCaptcha"><input name=field-keywords></form>', True),
        ('<script src="https://geo.captcha-delivery.com/captcha/?x"></script>Please enable JS', True),
        ("<p>What a captcha is, and how to live without one</p>", False),
        ('<div class="g-recaptcha"></div><p>' + "A letter to the editors, with many words. " * 20, False),
        ('<div class="g-recaptcha"></div>' + "".join(f"<a href=/{n}>{n}</a>" for n in range(9)), False),
        ("", False),
    ],
    ids=["google", "hcaptcha", "cloudflare", "amazon", "datadome", "only the word", "much text", "many links", "empty"],
)
def test_a_page_that_only_asks_whether_we_are_human_is_a_captcha(html: str, expected: bool) -> None:
    assert page(html).captcha is expected


def test_frames_and_refreshes_lead_on() -> None:
    frames = page(
        "<frameset><frame src=menu.html><frame src=' body.html '><frame src=menu.html><noframes>x</noframes></frameset>"
    )
    assert frames.frames == ["menu.html", "body.html"]
    found = page("""<meta http-equiv=" REFRESH " content="5; url=/next"><meta http-equiv=x content="0;url=/no">
        <meta http-equiv=refresh content=30><iframe src=/i></iframe><iframe srcdoc="<p>"></iframe><iframe src="about:blank"></iframe>
        <noscript><iframe src="/j"></iframe></noscript><a href=/a>a</a>text""")
    assert found.frames == ["/i", "/j", "/next"]
    assert (found.links, found.text) == (["/a"], "a text")


def test_the_next_page_is_known_by_its_rel() -> None:
    found = page("<link rel=next href=/3><link rel=prev href=/1><a rel='x next' href=/4>4</a><a href=/5>5</a>")
    assert (found.links, found.links_next) == (["/4", "/5"], ["/4", "/3"])


def test_texts_of_links_are_read_if_they_are_asked_for() -> None:
    page = b"""<a href=" /a " rel=" next   nofollow "> One <b>two</b>\n</a><a href="/a">again</a><a name=x>no link</a>
    <a href="javascript:x()">code</a><map><area href="/m" alt="map"></map><a href="/late">late</a>"""
    parsed = parse_page(page, content_type="text/html", links_per_page=3, anchors=True)
    assert parsed.anchors == [("/a", "One two", "next nofollow"), ("/a", "again", ""), ("/m", "", "")]
    assert parsed.anchors_cut == 1
    assert parse_page(page, content_type="text/html", links_per_page=3).anchors == []


def test_the_text_of_a_link_is_cut() -> None:
    (anchor,) = parse_page(b"<a href=/x>" + b"word " * 100, content_type=None, anchors=True).anchors
    assert len(anchor.text) == 200
