"""Sitemaps and feeds: what is read of good, broken and hostile ones."""

import gzip
import re
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.sitemap import (
    EntryKind,
    NewsInfo,
    SitemapEntry,
    SitemapFormat,
    SitemapLimits,
    SitemapSummary,
    SkipReason,
)
from holdfast.parse.sitemap import BLOCK, SitemapParser, read_sitemap

gzipped = partial(gzip.compress, mtime=0)
"""Without the time: names of tests are made of it."""

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
A, B, C = (f"<url><loc>http://x.test/{name}</loc></url>" for name in "abc")


def urls(body: bytes | str, limits: SitemapLimits | None = None) -> list[str]:
    entries, _ = read_sitemap(body.encode() if isinstance(body, str) else body, limits)
    return [entry.url.removeprefix("http://x.test/") for entry in entries]


def summary(body: bytes | str, limits: SitemapLimits | None = None) -> SitemapSummary:
    return read_sitemap(body.encode() if isinstance(body, str) else body, limits)[1]


def test_a_sitemap_with_everything() -> None:
    body = f"""{HEAD}<url> <loc>
        http://x.test/a?b=1&amp;c=<![CDATA[2&d]]> </loc><lastmod>2024-05-06T07:08:09+02:00</lastmod><changefreq> Daily </changefreq>
        <priority>0.8</priority>
        <xhtml:link rel="alternate" hreflang="de" href="http://x.test/de"/><xhtml:link rel="alternate" href=" http://m.x.test/ "/>
        <xhtml:link rel="stylesheet" href="/no"/>
        <image:image><image:loc>http://x.test/1.png</image:loc><image:title>no</image:title></image:image>
        <image:image><image:loc>http://x.test/2.png</image:loc></image:image>
        <news:news><news:publication><news:name>no</news:name><news:language>en</news:language></news:publication>
        <news:publication_date>2024-05</news:publication_date><news:title> A &#233;
        b </news:title></news:news>
        <video:video><video:title>no</video:title><video:publication_date>2001</video:publication_date></video:video></url>
        <url><loc>http://x.test/b</loc><lastmod>soon</lastmod><changefreq>often</changefreq><priority>7</priority></url></urlset>"""
    entries, got = read_sitemap(body.encode())
    assert entries == [
        SitemapEntry(
            url="http://x.test/a?b=1&c=2&d",
            kind=EntryKind.PAGE,
            lastmod=datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC),
            change_frequency="daily",
            priority=0.8,
            alternates=(("de", "http://x.test/de"), ("", "http://m.x.test/")),
            images=("http://x.test/1.png", "http://x.test/2.png"),
            news=NewsInfo(datetime(2024, 5, 1, tzinfo=UTC), "A é b", "en"),
        ),
        SitemapEntry("http://x.test/b"),
    ]
    assert got == SitemapSummary(format=SitemapFormat.URLSET, entries=2)


RSS = """<rss version="2.0"><channel><link>http://x.test/home</link><pubDate>Thu, 05 Jan 2017 12:34:50 GMT</pubDate>
<image><url>http://x.test/logo.png</url><link>http://x.test/home</link></image>
<item><title>http://x.test/no</title><link>http://x.test/a</link><guid>http://x.test/guid</guid>
<pubDate>Thu, 05 Jan 17 13:34:51 +0100</pubDate><enclosure url="http://x.test/a.jpg" type="image/jpeg"/>
<enclosure url="http://x.test/a.mp3" type="audio/mpeg"/><source url="http://y.test/"><link>http://y.test/</link></source></item>
<item><guid isPermaLink="false">http://x.test/b</guid><dc:date>2017-01-05T12:34:50Z</dc:date></item>
<item><guid>urn:1</guid><atom:link rel="self" href="/no"/><atom:link href="/c"/></item><item><guid>urn:2</guid></item></channel></rss>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel>
<link>http://x.test/home</link><items><rdf:Seq><rdf:li resource="http://x.test/no"/></rdf:Seq></items></channel>
<image rdf:about="http://x.test/no.gif"><url>http://x.test/no.gif</url><link>http://x.test/no</link></image>
<item rdf:about="http://x.test/a"><link>http://x.test/a</link></item><item rdf:about="http://x.test/b"/></rdf:RDF>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="http://x.test/home"/><updated>2020-01-01T00:00:00Z</updated>
<entry><link rel="self" href="http://x.test/no"/><link href="http://x.test/a"/><link rel="alternate" href="http://x.test/a.html"/>
<link rel="enclosure" type="image/png" href="http://x.test/a.png"/><published>2019-01-01T00:00:00Z</published>
<updated>2020-01-01T00:00:00Z</updated><content type="xhtml"><div><link href="http://x.test/no"/></div></content></entry>
<entry><id>http://x.test/b</id></entry><entry><id>urn:3</id></entry></feed>"""


def test_feeds() -> None:
    entries, got = read_sitemap(RSS.encode())
    noon = datetime(2017, 1, 5, 12, 34, 50, tzinfo=UTC)
    assert entries == [
        SitemapEntry("http://x.test/a", lastmod=noon.replace(second=51), images=("http://x.test/a.jpg",)),
        SitemapEntry("http://x.test/b", lastmod=noon),
        SitemapEntry("/c"),
    ]
    assert (got.format, got.skipped, got.problem) == (SitemapFormat.RSS, {SkipReason.NO_URL: 1}, None)
    assert urls(RDF) == ["a", "b"]
    assert summary(RDF).format is SitemapFormat.RSS
    entries, got = read_sitemap(ATOM.encode())
    assert entries == [
        SitemapEntry("http://x.test/a", lastmod=datetime(2020, 1, 1, tzinfo=UTC), images=("http://x.test/a.png",)),
        SitemapEntry("http://x.test/b"),
    ]
    assert (got.format, got.skipped) == (SitemapFormat.ATOM, {SkipReason.NO_URL: 1})


@pytest.mark.parametrize(
    ("body", "expected", "form"),
    [
        (f"{HEAD}{A}{B}</urlset>", ["a", "b"], "urlset"),
        (f"<urlset>{A}</urlset>", ["a"], "urlset"),
        (f"<URLSET>{A.upper()}</URLSET>", ["HTTP://X.TEST/A"], "urlset"),
        (f"<!DOCTYPE urlset><urlset>{A}</urlset>", ["a"], "urlset"),
        ("<s:urlset xmlns:s='x'><s:url><s:loc>http://x.test/a</s:loc></s:url></s:urlset>", ["a"], "urlset"),
        ("<s:urlset><t:url><s:loc>http://x.test/a</s:loc></t:url></s:urlset>", ["a"], "urlset"),
        (f"<urlset>{B.replace('url>', 'sitemap>')}</urlset>", ["b"], "urlset"),
        ("<urlset><url><loc><url><![CDATA[http://x.test/a?b&c]]></url></loc></url></urlset>", ["a?b&c"], "urlset"),
        ("<urlset><url><lastmod>2020</lastmod></url><url><loc/></url></urlset>", [], "urlset"),
        (
            "<urlset><url><video:video><loc>http://x.test/no</loc></video:video><loc>/r</loc></url></urlset>",
            ["/r"],
            "urlset",
        ),
        ("<sitemapindex><sitemap> http://x.test/a&amp;b </sitemap></sitemapindex>", ["a&b"], "index"),
        (f"\n \ufeff\n{HEAD}{A}</urlset>", ["a"], "urlset"),
        (f"{HEAD}{A}</urlset>".encode("utf-16"), ["a"], "urlset"),
        (f"{HEAD}{A}</urlset>".encode("utf-16-le"), ["a"], "urlset"),
        (f"{HEAD}{A}</urlset>".encode("utf-16-be"), ["a"], "urlset"),
        (f"{HEAD.replace('UTF-8', 'UTF-16')}{A}</urlset>", ["a"], "urlset"),
        (f"{HEAD.replace('UTF-8', 'windows-1251')}{A.replace('/a', '/я')}</urlset>".encode("cp1251"), ["я"], "urlset"),
        (f"{HEAD.replace('UTF-8', 'Shift_JIS')}{A.replace('/a', '/表')}</urlset>".encode("cp932"), ["表"], "urlset"),
        (f"{HEAD.replace('UTF-8', 'no-such')}{A}</urlset>", ["a"], "urlset"),
        (
            "http://x.test/a\r\n\r\n  http://x.test/b \n# no\nhttp://x.test/c d\nHTTPS://x.test/e",
            ["a", "b", "HTTPS://x.test/e"],
            "text",
        ),
        ("\ufeffhttp://x.test/я\rhttp://x.test/b", ["я", "b"], "text"),
        ("http://x.test/я\n".encode("utf-16"), ["я"], "text"),
        ("http://x.test/a\n".encode("utf-16-le"), ["a"], "text"),
        (b"http://x.test/\xe9\nhttp://x.test/b", ["%E9", "b"], "text"),
    ],
)
def test_formats_and_encodings(body: str | bytes, expected: list[str], form: str) -> None:
    data = body.encode() if isinstance(body, str) else body
    for version in (data, gzipped(data), gzipped(data[:9]) + gzipped(data[9:]) + b"\0\0\0"):
        assert urls(version) == expected
        got = summary(version)
        assert (got.format, got.entries, got.problem, got.truncated) == (form, len(expected), None, False)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not a sitemap: empty"),
        (b" \n\xef\xbb\xbf ", "not a sitemap: empty"),
        (b"\x1f", "not a sitemap: binary data"),
        (gzipped(b""), "not a sitemap: empty"),
        (b"<!-- no more -->", "broken XML at byte 16: no element found"),
        (b"<!doctype html><title>x</title>http://x.test/", "not a sitemap: HTML"),
        (b"<!-- a --> <HTML><p>", "not a sitemap: HTML"),
        (b"<?xml version='1.0'?><!DOCTYPE html PUBLIC 'a' 'b'><html/>", "not a sitemap: HTML"),
        (b"<?xml version='1.0'?><html xmlns='x'/>", "not a sitemap: HTML"),
        (b"<opml><body/></opml>", "not a sitemap: XML with the root element 'opml'"),
        (b"%PDF-1.4\n\0\1", "not a sitemap: binary data"),
        (b"User-agent: *\nDisallow: /", "not a sitemap: text without a line that is a URL"),
        (b'{"url": "http://x.test/"}', "not a sitemap: text without a line that is a URL"),
        (gzipped(gzipped(b"http://x.test/a")), "refused: gzip inside of gzip"),
        (b"\x1f\x8bno", "broken gzip: "),
    ],
)
def test_what_is_no_sitemap(body: bytes, problem: str) -> None:
    entries, got = read_sitemap(body)
    assert (entries, got.format, got.entries) == ([], None, 0)
    assert (got.problem or "").startswith(problem)


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE urlset [<!ENTITY x "http://x.test/secret">]>',
        '<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE urlset [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>',
        '<!DOCTYPE urlset SYSTEM "http://127.0.0.1:9/x.dtd">',
        '<!DOCTYPE urlset PUBLIC "a" "file:///etc/passwd">',
        '<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY x "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE urlset [<!ATTLIST url loc CDATA "http://x.test/default">]>',
        '<bad"/><!DOCTYPE urlset [<!ENTITY x "y">]>',
    ],
)
def test_document_type_declarations_are_refused(declaration: str) -> None:
    entries, got = read_sitemap(
        f"<?xml version='1.0'?>{declaration}<urlset><url><loc>&x;</loc></url></urlset>".encode()
    )
    assert entries == []
    assert (got.problem or "").startswith(
        ("refused: it has a document type declaration", "not a sitemap", "broken XML")
    )
    assert "passwd" not in (got.problem or "")


@pytest.mark.parametrize(
    ("body", "expected", "problem"),
    [
        (f"<br />\n<b>Warning</b>: x in <b>y.php</b>\n{HEAD}{A}</urlset>", ["a"], "broken XML: 41 bytes before"),
        (f"Notice: x\n<urlset>{A}</urlset>", ["a"], "broken XML: 10 bytes before"),
        (f"{HEAD}{A}<url><loc>http://x.test/b?c=1&d=2&copy=3&amp;e</loc><priority>0.5</priority></url>{C}</urlset>",
         ["a", "b?c=1&d=2&copy=3&e", "c"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/b</url>{C}</urlset>", ["a", "b", "c"], "broken XML at byte"),
        (f"{HEAD}{A}</url></url>{B}</urlset>", ["a", "b"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/b</loc>{C}</urlset>", ["a", "b", "c"], "broken XML at byte"),
        (f"{HEAD}{A}<url><image:image><image:loc>http://x.test/i</url>{C}</urlset>", ["a", "c"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/&eacute;&#xe9;&nosuch;</loc></url></urlset>", ["a", "éé&nosuch;"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/b\0</loc></url>{C}</urlset>", ["a", "b\ufffd", "c"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/&#xD800;&#0;</loc></url>", ["a", "\ufffd\ufffd"], "broken XML at byte"),
        (f"{HEAD}{A}".encode() + b"<url><loc>http://x.test/\xed\xa0\x80\xe9</loc></url></urlset>",
         ["a", "%ED%A0%80%E9"], "broken XML at byte"),
        (f"{HEAD}{A}<url><loc>http://x.test/b?<![CDATA[c&d]]></loc><x a=1></url>{C}</urlset>", ["a", "b?c&d", "c"], "broken XML at byte"),
        (f"{HEAD}{A}</urlset>\n{HEAD}{B}</urlset>", ["a", "b"], "broken XML at byte"),
        (f"{HEAD}{A}</urlset><!-- x", ["a"], "broken XML at byte"),
        (f"{HEAD}{A}<url bad=>{B}<!-- {C} --><?x {C[1:]} <loc x='<'>{C}", ["a", "b", "c"], "broken XML at byte"),
        (f"{HEAD}{A}<url><xhtml:link rel=alternate hreflang='de' href=http://x.test/de><loc>http://x.test/b</loc>",
         ["a", "b"], "broken XML at byte"),
        (f"{A}{B}", ["a", "b"], "broken XML at byte"),
        ("<rss><item><link>http://x.test/a</link><title>R&D</title></item><item><link>http://x.test/b?c&d</link></item></rss>",
         ["a", "b?c&d"], "broken XML at byte"),
        ("<feed><entry><link href='http://x.test/a?b&c'></entry><entry><link href=\"http://x.test/b\"/></feed>",
         ["a?b&c", "b"], "broken XML at byte"),
    ],
)  # fmt: skip
def test_broken_xml_is_read_leniently(body: str | bytes, expected: list[str], problem: str) -> None:
    assert urls(body) == expected
    assert (summary(body).problem or "").startswith(problem)


def test_a_file_that_ends_early_loses_only_its_last_url() -> None:
    whole = f"{HEAD}{A}{B}{C}".encode()
    for length in range(len(HEAD), len(whole)):
        got = urls(whole[:length])
        assert got == ["a", "b", "c"][: len(got)]
        assert len(got) >= whole[:length].count(b"</loc>")
        assert summary(whole[:length]).truncated
    assert summary(f"{HEAD}{A}<url><loc>http://x.test/b").skipped == {SkipReason.CUT_OFF: 1}
    cut = gzipped(whole * 50)[:-30]
    assert set(urls(cut)) == {"a", "b", "c"}
    assert (summary(cut).problem, summary(cut).truncated) == ("broken gzip: it ends early", True)
    damaged = bytearray(gzipped(f"{HEAD}{A}".encode() + bytes(200_000) + b"</urlset>", 1))
    damaged[-8:] = b"\0" * 8
    assert urls(bytes(damaged)) == ["a"]
    assert "broken gzip" in (summary(bytes(damaged)).problem or "")


def test_limits() -> None:
    long = f"http://x.test/{'é' * 1030}"
    limits = SitemapLimits(urls=3, alternates=2, images=1)
    body = f"{HEAD}<url><loc>{long}</loc></url><url><loc>http://x.test/a</loc>" + "".join(
        f"<l:link rel='alternate' hreflang='x{n}' href='/{n}'/><image><loc>/{n}</loc></image>" for n in range(4)
    )
    entries, got = read_sitemap(f"{body}<image><loc>{long}</loc></image></url>{B * 5}</urlset>".encode(), limits)
    assert [(len(entry.alternates), entry.images) for entry in entries] == [(2, ("/0",)), (0, ()), (0, ())]
    assert got.skipped == {
        SkipReason.URL_TOO_LONG: 2,
        SkipReason.ALTERNATES_OVER_LIMIT: 2,
        SkipReason.IMAGES_OVER_LIMIT: 3,
    }
    assert (got.entries, got.truncated, got.problem) == (3, True, "more than 3 URLs")
    assert summary("http://x.test/\n" * 4, limits).problem == "more than 3 URLs"
    assert summary(f"http://x.test/{'x' * 3000}\nhttp://x.test/").skipped == {SkipReason.URL_TOO_LONG: 1}
    small = SitemapLimits(decoded_bytes=len(HEAD) + 2 * len(A) + 20)
    for version in (f"{HEAD}{A}{B}{C}</urlset>".encode(), gzipped(f"{HEAD}{A}{B}{C}</urlset>".encode())):
        assert urls(version, small) == ["a", "b"]
        got = summary(version, small)
        assert (got.problem, got.truncated) == (f"larger than {small.decoded_bytes:,} bytes", True)
    deep = summary(f"{HEAD}{A}{'<x>' * 101}")
    assert deep.entries == 1
    assert deep.problem == "refused: more than 100 elements inside of each other"


SIZE = 3_000_000
START = f"{HEAD}{A}".encode()


def bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(START)
    blanks = b"".join(packer.compress(b" " * 1_000_000) for _ in range(200))
    return head + blanks + packer.flush()


HOSTILE: dict[str, Callable[[], bytes]] = {
    "one tag": lambda: START + b"<x " + b"a" * SIZE,
    "one attribute": lambda: START + b'<x a="' + b"a" * SIZE,
    "attributes": lambda: START + b"<x " + b"".join(b'a%d="" ' % n for n in range(SIZE // 10)),
    "attributes again and again": lambda: START + b'<x a="1" b="2" c="3" d="4"/>' * (SIZE // 28),
    "a loc": lambda: START + b"<url><loc>" + b"a" * SIZE,
    "a loc of entities": lambda: START + b"<url><loc>" + b"&amp;" * (SIZE // 5),
    "a loc of references to nothing": lambda: START + b"<url><loc>" + b"&x" * (SIZE // 2),
    "white space": lambda: START + b"<url><loc>" + b" " * SIZE,
    "a comment": lambda: START + b"<!-- " + b"a-" * (SIZE // 2),
    "comments": lambda: START + b"<!---->" * (SIZE // 7),
    "an instruction": lambda: START + b"<?x " + b"a?" * (SIZE // 2),
    "CDATA": lambda: START + b"<url><loc><![CDATA[" + b"]]" * (SIZE // 2),
    "angles": lambda: START + b"<" * SIZE,
    "ends": lambda: START + b"</url>" * (SIZE // 6),
    "starts": lambda: START + b"<url>" * (SIZE // 5),
    "fields": lambda: START + b"<url>" + b"<lastmod>a</lastmod>" * (SIZE // 20),
    "names": lambda: START + b"".join(b"<n%d/>" % n for n in range(SIZE // 10)),
    "images": lambda: START + b"<url>" + b"<image><loc>http://x.test/i</loc></image>" * (SIZE // 42),
    "broken attributes": lambda: START + b"<&" + b"<x " + b"a=' " * (SIZE // 4),
    "a broken name": lambda: START + b"<&" + b"<x" * (SIZE // 2),
    "NULs": lambda: START + bytes(SIZE),
    "white space before all": lambda: b" \n" * (SIZE // 2),
    "comments before all": lambda: b"<!-- -->" * (SIZE // 8),
    "a line": lambda: b"http://x.test/a\n" + b"a" * SIZE,
    "blanks": lambda: b"http://x.test/a\n" + b" \t" * (SIZE // 2),
    "members": lambda: gzipped(b"http://x.test/a\n", 1) + gzipped(b"", 1) * (SIZE // 80),
    "a bomb": bomb,
}
"""Bodies that would cost more than their size if anything were quadratic or unbounded."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_take_little_memory_and_end(name: str) -> None:
    """A quadratic step would take longer than a test may."""
    body = HOSTILE[name]()
    parser = SitemapParser()
    tracemalloc.start()
    found = sum(len(entries) for entries in parser.read(body))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12_000_000
    assert found == (0 if "before all" in name else 1)
    assert (parser.summary.problem is None) == (name in ("a line", "blanks")), parser.summary


def chunks(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(body) + 1) for cut in cuts})
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def fed(pieces: list[bytes]) -> tuple[list[SitemapEntry], SitemapSummary]:
    parser = SitemapParser()
    entries = [entry for piece in pieces for entry in parser.feed(piece)]
    entries += parser.close()
    return entries, parser.summary


WORDS = re.findall(
    r"\S+",
    """http://x.test/ <url> </url> <loc> </loc> <lastmod>2020-01-01</lastmod> <image:image> <link/href='x'> & &amp; < > <!-- -->
    <![CDATA[ ]]> <?xml ?> <!DOCTYPE a> é \0""",
)
PIECES = st.lists(
    st.sampled_from([HEAD, A, B, C, RSS, ATOM, " ", "x" * 3000, B * 2000, HEAD.replace("UTF-8", "UTF-16"), *WORDS]),
    max_size=12,
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=150, deadline=None)
@given(
    body=PIECES | st.binary(max_size=300),
    packed=st.integers(0, 3),
    damage=st.integers(0, 5000),
    cuts=st.lists(st.integers(0, 3 * BLOCK), max_size=10),
)
def test_any_bytes_in_any_pieces_give_the_same(body: bytes, packed: int, damage: int, cuts: list[int]) -> None:
    if packed:
        body = gzipped(body, packed)
    if packed == 3 and damage < len(body):
        body = body[:damage] + b"\xff" + body[damage + 1 :]
    expected = fed([body])
    assert fed(chunks(body, cuts)) == expected
    if len(body) < 2000:
        assert fed([body[at : at + 1] for at in range(len(body))]) == expected
    for entry in expected[0]:
        assert entry.url == entry.url.strip()
        assert "\0" not in entry.url
        entry.url.encode()
    assert len(expected[0]) == expected[1].entries
    assert expected[1].format or expected[1].problem
