"""The extraction of main content: what is kept, how it is written as Markdown, and that no page can write markup or commands into it."""

import html
import json
import re
from datetime import date
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from holdfast.model.document import Document, PageKind
from holdfast.parse.text import markdown, repeated
from holdfast.parse.text.blocks import MAX_BLOCKS, read_blocks
from holdfast.parse.text.extract import extract_document, select
from holdfast.parse.text.hints import parse_date
from tests.unit.parse.bombs import BOMBS

URL = "https://site.example/blog/lamp.html?x=1#top"
STORY = "It was a dark and stormy night, and nobody could find the lamp. " * 4
RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def rendered(page: str) -> str:
    """The Markdown of a whole page, without any judgement of its content."""
    return markdown.render(read_blocks(LexborHTMLParser(page.encode()))[0], URL).markdown


class _Tags(HTMLParser):
    """Collects the elements and link targets of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.targets: list[str] = []
        self.comments = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.targets += [value or "" for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_comment(self, data: str) -> None:  # noqa: ARG002 — the name is the base class's
        self.comments += 1


def article() -> Document:
    return extract_document(
        f"""<html lang="en-GB"><title>The Lamp | The Site</title><meta property="og:site_name" content="The Site">
        <script type="application/ld+json">{{"@type":"BlogPosting","author":{{"name":"Ann Bee"}},
        "datePublished":"2024-03-05T23:30:00-11:00"}}</script>
        <nav><ul><li><a href=/a>Home</a><li><a href=/b>Blog</a></ul></nav><main><article><h1>The Lamp</h1><p>{STORY}</p>
        <h2>Where it was</h2><p>{STORY}<br>In the <a href="attic.html">attic</a>.</p><h2>Who lit it</h2><p>{STORY}</p></article></main>
        <footer><p>© 2024 The Site. All rights reserved.</p></footer>""".encode(),
        URL,
    )


def test_an_article() -> None:
    found = article()
    assert (found.title, found.author, found.published) == ("The Lamp", "Ann Bee", date(2024, 3, 5))
    assert (found.language, found.site_name, found.kind) == ("en-GB", "The Site", PageKind.ARTICLE)
    assert found.text.count("stormy") == 12
    assert "rights reserved" not in found.text
    assert "Home" not in found.text
    assert "lamp.\nIn the attic." in found.text
    assert "lamp.\\\nIn the [attic](https://site.example/blog/attic.html)." in found.markdown
    assert [heading.path for heading in found.headings][-2:] == [
        ("The Lamp", "Where it was"),
        ("The Lamp", "Who lit it"),
    ]
    for heading in found.headings:
        assert found.markdown[heading.markdown_offset :].startswith(f"{'#' * heading.level} {heading.title}\n")
        assert found.text[heading.text_offset :].startswith(heading.title)
    pieces = [found.text[block.text_start : block.text_end] for block in found.blocks]
    assert [repeated.block_hash(piece) for piece in pieces] == [block.block_hash for block in found.blocks]
    assert "".join(found.text.split()) == "".join("".join(pieces).split())
    assert article() == found


def test_stated_texts_are_clean() -> None:
    found = extract_document("<title>a\u202eb\x1b[2J</title><meta name=author content='\u2066\u200b'>".encode(), URL)
    assert (found.title, found.author) == ("ab[2J", None)


def test_a_page_without_content_has_that_of_its_structured_data() -> None:
    stated = html.escape(STORY)
    assert (
        extract_document(f'<meta name=description content="{stated}"><div id=app></div>'.encode(), URL).text
        == STORY.strip()
    )
    assert extract_document(b"", URL).text == ""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol><li>a<p>more</p><li>b</ol>", "1. a\n\n   more\n2. b"),
        ("<blockquote><p>a</p></blockquote>", "> a"),
        ("<p>a <b>b </b><i>c</i> <code>x`y</code></p>", "a **b** *c* ``x`y``"),
        ("<table><tr><th>a<th>b|c<tr><td><td>d</table>", "| a | b\\|c |\n| --- | --- |\n|  | d |"),
        ("<table><tr><td><p>only</table>", "only"),
        (
            '<pre><code class="language-python">if x:\n    y = "```"\n</code></pre>',
            '````python\nif x:\n    y = "```"\n````',
        ),
        ("<div class=highlight-c><pre><span>int</span> x;\n\n  y</pre></div>", "```c\nint x;\n\n  y\n```"),
        (
            "<a href='/p q(1)'>x</a><a href='mailto:a@b.example'>y</a>",
            "[x](https://site.example/p%20q%281%29) [y](mailto:a@b.example)",
        ),
        (
            "<p>see <a href=' java\tscript:alert(1)'>x</a> <a href='//o.example/y'>y</a></p>",
            "see x [y](https://o.example/y)",
        ),
        ("<p># no</p><p>1. no</p><p>- no</p><p>===</p>", "\\# no\n\n1\\. no\n\n\\- no\n\n\\==="),
        ("<p>a <img src='/i.png' alt='a picture'></p>", "a [a picture](https://site.example/i.png)"),
        (
            "<p>New!<a href=/x.png>x</a> \\!<a href=/y>y</a><br>Now! <a href=/z>z</a></p>",
            "New\\![x](https://site.example/x.png) \\\\\\![y](https://site.example/y)\\\nNow! [z](https://site.example/z)",
        ),
        ("<p>snake_case &amp;lt; AT&amp;T</p>", "snake_case &amp;lt; AT&T"),
    ],
)
def test_markdown(page: str, expected: str) -> None:
    assert rendered(page) == expected


_ATTACKS = (
    "<script>alert(1)</script>", "<img src=x onerror=y>", "[x](javascript:alert(1))", "![x](data:text/html,y)", "<javascript:x>",
    "[x]: javascript:y\n\n[x]", "```\n<b>", "~~~", "`<i>`", "``", "\\`<i>", "\\", "&lt;u&gt;", "&#60;u>",
    "|a|b|\n|-|-|\n|<b>|", "    <b>",
    "<!--", "-->", "]]>", "<![CDATA[", "</div><iframe src=/>", "\n\n<form>", "***", "__", "> <q>", "- <q>",
    "#", "!", "\x1b[31m", "\u202e", "\x9b2J", "\r",
)  # fmt: skip
_PLACES = (
    "<p>%s</p>", "<pre>%s</pre>", "<code>%s</code>", "<h2>%s</h2>", "<ul><li>%s</ul>", "<table><tr><td>a<td>%s<tr><td>b<td>c</table>",
    "<a href='https://x.example/%s'>%s</a>", "<blockquote>%s</blockquote>", "<b>%s</b><i>x</i>", "<img alt='%s' src=x>y",
    "<pre><code class='language-%s'>%s</code></pre>", "<table><tr><td><code>%s</code><td>a<tr><td>b<td>c</table>", "<a href='%s'>x</a>",
    "<p>%s<a href='/t.png'>%s</a>%s<a href='/u.png'>x</a></p>",
)  # fmt: skip
_MADE = {*("p", "pre", "code", "h1", "h2", "ul", "ol", "li", "a", "blockquote", "em", "strong", "br", "s")} | {
    *("table", "thead", "tbody", "tr", "td", "th")
}


@given(
    st.lists(
        st.tuples(st.sampled_from(_PLACES), st.lists(st.sampled_from(_ATTACKS), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    )
)
def test_text_stays_text_whatever_it_says(pieces: list[tuple[str, list[str]]]) -> None:
    page = "".join(place.replace("%s", html.escape("".join(attacks))) for place, attacks in pieces)
    found = rendered(page)
    assert not [
        c for c in found if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or c in "\u202e\u2066\u200f"
    ]
    shown = _Tags(RENDERER.render(found))
    assert shown.tags <= _MADE
    assert shown.comments == 0
    assert all(target.startswith(("https://", "http://", "mailto:")) for target in shown.targets)


_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SAYINGS = st.lists(st.sampled_from(_ATTACKS) | st.text(max_size=20), max_size=4).map("".join)


def test_navigation_is_left_out_unless_it_is_nearly_the_whole_page() -> None:
    menu = f"<nav><p>{STORY}</p></nav>"
    found = extract_document(
        f"<title>t</title>{menu}<main><h1>Lamps</h1><p>Bright ones. {STORY}</p></main>".encode(), URL
    )
    assert (found.text.count("Bright"), found.text.count("stormy")) == (1, 4)
    unclosed = extract_document(
        f"<title>t</title><nav><a href=/>Home</a><main><h1>Lamps</h1><p>Bright. {STORY}</p></main>".encode(), URL
    )
    assert "Bright" in unclosed.text


@given(st.lists(_SAYINGS, min_size=7, max_size=7))
def test_no_part_of_a_document_has_markup_or_commands(sayings: list[str]) -> None:
    title, author, site, heading, cell, code, said = map(html.escape, sayings)
    stated = json.dumps({"@type": "Article", "author": {"name": sayings[1]}, "headline": sayings[0]}).replace(
        "<", "\\u003c"
    )
    found = extract_document(
        f"""<title>{title}</title><meta name=author content="{author}"><meta property="og:site_name" content="{site}">
        <script type="application/ld+json">{stated}</script><h1>{heading}</h1><p>{said}</p><ul><li>{said}</ul><pre>{code}</pre>
        <table><tr><th>{cell}<th>b<tr><td>{said}<td><code>{code}</code></table><blockquote>{said}</blockquote>""".encode(
            "utf-8", "replace"
        ),
        URL,
    )
    headings = [part for one in found.headings for part in (one.title, *one.path)]
    for part in (found.markdown, found.text, found.title, found.author, found.site_name, found.language, *headings):
        assert part is None or not _UNWANTED.search(part)
    for line in (found.title, found.author, found.site_name, *headings):
        assert line is None or len(line.splitlines()) == 1
    shown = _Tags(RENDERER.render(found.markdown))
    assert shown.tags <= _MADE
    assert shown.comments == 0
    assert all(target.startswith(("https://", "http://", "mailto:")) for target in shown.targets)


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_hostile_pages_have_a_bounded_document(name: str) -> None:
    bomb = BOMBS[name][
        :4_000
    ]  # the parser itself is quadratic in some of them; larger ones are parsed where they can be killed
    found = extract_document(bomb + b"<p>" + STORY.encode(), URL)
    assert len(found.markdown) <= 2 * len(bomb) + 10_000
    assert len(found.blocks) <= MAX_BLOCKS


def test_deep_pages_are_read_to_the_bottom() -> None:
    for opening in ("<div>", "<ul><li>", "<blockquote>", "<b>"):
        found = rendered(opening * 2000 + "the end")
        assert "the end" in found
        assert len(found) < 200  # nesting is cut


def test_a_page_of_many_blocks_is_cut() -> None:
    blocks, _ = read_blocks(LexborHTMLParser(b"<p>x" * (MAX_BLOCKS + 1000)))
    assert len(blocks) == MAX_BLOCKS


def test_the_selection_maximizes_the_expected_f1() -> None:
    assert select([], []) == []
    assert select([0.0, 0.0], [5, 5]) == []
    assert select([0.9, 0.05, 0.8], [10, 10, 10]) == [0, 2]
    assert select([0.2, 0.2, 0.01], [10, 10, 10]) == [0, 1]  # better some of them than none


def test_repeated_blocks_are_removed() -> None:
    hashes = [repeated.block_hash(text) for text in ("Home | Blog", "A story about a lamp", "12 comments", "Imprint")]
    assert repeated.block_hash("13 Comments!") == hashes[2]
    counts = {hashes[0]: 10, hashes[1]: 1, hashes[2]: 9, hashes[3]: 2}
    words = [2, 50, 2, 1]
    assert repeated.repeated_blocks(hashes, words, counts, 10) == [0, 2]
    assert repeated.repeated_blocks(hashes, words, counts, 10, protected=[2]) == [0]
    assert repeated.repeated_blocks(hashes, words, counts, 4) == []  # too few pages to say
    assert repeated.repeated_blocks(hashes[:1], [2], counts, 10) == []  # a copy of another page


def test_the_most_frequent_counts_are_kept() -> None:
    counts = dict.fromkeys(range(50), 1) | {1000: 7, 1001: 2}
    assert repeated.pruned(counts, 4) == {1000: 7, 1001: 2, 0: 1, 1: 1}
    assert repeated.pruned(counts, 100) == counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T01:02:03Z", date(2024, 2, 29)), ("20240229", date(2024, 2, 29)), ("March 5th, 2021", date(2021, 3, 5)),
        ("5 Mar 2021", date(2021, 3, 5)), ("2023-02-29", None), ("March 2021", None), ("yesterday", None), ("", None),
    ],
)  # fmt: skip
def test_dates(text: str, expected: date | None) -> None:
    assert parse_date(text) == expected
