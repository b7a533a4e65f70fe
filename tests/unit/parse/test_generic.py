"""The built-in parser `generic`."""

import json
from typing import Any

import pytest

from holdfast.model.parse_result import MAX_DATA_BYTES
from holdfast.parse import generic
from holdfast.parse.plugin_api import absolute_url, text
from holdfast.parse.plugin_testing import document, run
from tests.unit.parse.bombs import ordinary

STORY = "It was a dark and stormy night, and nobody could find the lamp. " * 5


def data(body: str | bytes, content_type: str = "text/html") -> dict[str, Any]:
    found = run(generic, document(body, content_type=content_type), name="generic")
    assert found.products == ()
    return found.data


def test_an_article() -> None:
    found = data(
        f"""<html lang="en-GB"><title>The  Lamp</title><meta name="description" content="A story"><meta name="author" content="B">
        <meta property="og:type" content="article"><link rel="canonical" href="/lamp"><base href="/stories/">
        <nav><a href="x">Menu</a></nav><main><h1>The Lamp</h1><p>{STORY}</p><form>Subscribe</form><aside>Advert</aside>
        <img src="l.jpg"></main><footer>Imprint <a href="//other.example/y">y</a></footer>
        <script type="application/ld+json">{{"@type":"Article","n":1e999}}</script>"""
    )
    assert found.pop("text") == "The Lamp\n\n" + STORY.strip()
    assert found == {
        "content_type": "text/html",
        "title": "The Lamp",
        "description": "A story",
        "language": "en-GB",
        "canonical": "https://shop.example/lamp",
        "meta": {"description": "A story", "author": "B", "og:type": "article"},
        "headings": ["The Lamp"],
        "images": ["https://shop.example/stories/l.jpg"],
        "links": ["https://shop.example/stories/x", "https://other.example/y"],
        "links_left_out": 0,
        "structured": {"json_ld": [{"@type": "Article", "n": None}], "open_graph": {"og:type": ["article"]}},
    }


def test_main_text_without_a_word_about_where_it_is() -> None:
    page = f"<div id=menu><p>Home</p></div><div><div class=c><p>{STORY}</p><p>The end.</p></div><div><p>Short</p></div></div>"
    assert data(page)["text"] == STORY.strip() + "\n\nThe end."


def test_a_page_without_paragraphs_has_the_text_that_is_seen() -> None:
    assert data("<header>Head</header><div>All <b>there</b> is")["text"] == "Head\n\nAll there is"


def test_a_page_that_is_one_form_has_its_text() -> None:
    assert data(f"<form><main><p>{STORY}</p></main></form>")["text"] == STORY.strip()


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"plain <b>text</b>", "text/plain", "plain <b>text</b>"),
        ("gr\u00fc\u00df".encode("latin-1"), "text/plain; charset=iso-8859-1", "gr\u00fc\u00df"),
        (b"<p>\xff\x00</p>", "text/html; charset=utf-8", "\ufffd\ufffd"),
        (b"", "text/html", ""),
        (b"\x00\x01\x02", "application/octet-stream", "\ufffd"),
    ],
)
def test_any_bytes_give_a_result(body: bytes, content_type: str, expected: str) -> None:
    assert data(body, content_type)["text"] == expected


def test_large_pages_keep_to_the_limits() -> None:
    links = "".join(f'<a href="/{number}{"x" * 1000}">x</a>' for number in range(1500))
    found = data(f"<main>{links}<p>" + "\U0001f600" * 500_000 + "</main>")
    assert len(found["text"]) == generic.MAX_TEXT
    assert len(found["links"]) + found["links_left_out"] == 1500
    assert len(json.dumps(found, ensure_ascii=False).encode()) < MAX_DATA_BYTES
    assert data(ordinary(3000).decode())["links_left_out"] == 2000


def test_structured_data_that_is_too_long_is_left_out_and_said_so() -> None:
    page = (
        f'<meta property="og:title" content="T"><script type="application/ld+json">{{"a":"{"x" * 300_000}"}}</script>'
    )
    assert data(page)["structured"] == {"left_out": ["json_ld"], "open_graph": {"og:title": ["T"]}}


def test_structured_data_that_is_too_deep_or_odd_is_cut() -> None:
    deep = '{"a":' * 40 + "1" + "}" * 40
    found = data(f'<script type="application/ld+json">{{"d":{deep},"{"k" * 600}":1,"n":{2**70}}}</script>')[
        "structured"
    ]["json_ld"][0]
    assert found["n"] is None
    assert set(found) == {"d", "n"}


def test_the_text_of_a_document_and_its_addresses() -> None:
    assert text(document("\ufeffé\0")) == "é\ufffd"
    assert absolute_url("https://x.example/a/", "b c") == "https://x.example/a/b%20c"
    for none in (None, "", "#x", "javascript:x", "http://", "http://[", "https://x.example/" + "x" * 2048, "data:,x"):
        assert absolute_url("https://x.example/", none) is None
