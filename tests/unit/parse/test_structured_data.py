"""Extraction of structured data as items."""

import json

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.parse import structured_data
from holdfast.parse.structured_data import StructuredData, extract, local_name, types

URL = "https://shop.example/a/b"


def found(page: str) -> StructuredData:
    return extract(LexborHTMLParser(page), URL)


def test_a_page_that_says_nothing() -> None:
    assert found("<p>x") == StructuredData()


def test_values_of_microdata_are_what_html_says() -> None:
    page = """<div itemscope itemtype="https://schema.org/Thing http://x.example#Other" itemid="urn:1">
    <meta itemprop="m" content="c"><time itemprop="t" datetime="2026-01-01">now</time><data itemprop="d" value="5">five</data>
    <a itemprop="url" href="../x">x</a><a itemprop="name" href="/y"> the  name </a><object itemprop="o" data="/z"></object>
    <span itemprop="two words">2</span><span itemprop="many">1</span><span itemprop="many">2</span><span itemprop="many">3</span>
    <img itemprop="brand" src="/logo.png" alt="Brand"><p itemprop="child" itemscope><b itemprop="in">side</b></p></div>
    <b itemprop="outside">nobody's</b><p itemprop="lost" itemscope></p>"""
    assert found(page).microdata == [
        {
            "@type": ["Thing", "Other"],
            "@id": "urn:1",
            "m": "c",
            "t": "2026-01-01",
            "d": "5",
            "url": "https://shop.example/x",
            "name": "the name",
            "o": "https://shop.example/z",
            "two": "2",
            "words": "2",
            "many": ["1", "2", "3"],
            "brand": "Brand",
            "child": {"@type": [], "in": "side"},
        }
    ]


def test_two_items_may_refer_to_the_same_part() -> None:
    page = """<div itemscope itemref="b x"><i itemprop="name">1</i></div><div itemscope itemref="b"><i itemprop="name">2</i></div>
    <p id="b"><b itemprop="brand" itemscope itemref="c"><i itemprop="name">B</i></b></p><u id="c" itemprop="of">C</u>
    <p id="b"><i itemprop="name">not the first with that id</i></p>"""
    brand = {"@type": [], "name": "B", "of": "C"}
    assert found(page).microdata == [
        {"@type": [], "name": "1", "brand": brand},
        {"@type": [], "name": "2", "brand": brand},
    ]


def test_items_that_refer_to_each_other_end() -> None:
    page = """<div itemscope itemref="a"></div><div id="a"><p itemprop="p" itemscope itemref="b"></p></div>
    <div id="b"><p itemprop="q" itemscope itemref="a b"></p></div>"""
    assert found(page).microdata == [{"@type": [], "p": {"@type": [], "q": {"@type": []}}}]
    many = "<div itemscope itemref=big></div>" * 3000 + "<p id=big>" + "<i><b itemprop=x>y</b></i>" * 3000
    assert sum(len(item.get("x", ())) for item in found(many).microdata) <= 10_000


def test_scripts_and_styles_are_no_part_of_a_value() -> None:
    page = """<div itemscope><h1 itemprop="name">The <style>b{}</style><b>n<script>var x = "</b>"</script>am</b>e</h1>
    <span itemprop="price">9<template>8</template></span><script itemprop="code">x()</script></div>"""
    assert found(page).microdata == [{"@type": [], "name": "The name", "price": "9"}]


def test_an_input_says_its_value() -> None:
    page = '<form itemscope><input itemprop="sku" value="S-1"><input itemprop="price" type="hidden" content="5" value="6"></form>'
    assert found(page).microdata == [{"@type": [], "sku": "S-1", "price": "5"}]


def test_open_graph_keeps_every_prefix_of_a_property() -> None:
    page = """<meta property="fb:app_id" content="1"><meta property="article:author" content="A"><meta property="og:title" content="T">
    <meta name="fb:admins" content="2"><meta name="dc:title" content="no"><meta property="http://x.example/a" content="no">
    <meta property="plain" content="no"><meta property="al:ios:url" content="app://x">"""
    assert found(page).open_graph == {
        "fb:app_id": ["1"],
        "article:author": ["A"],
        "og:title": ["T"],
        "fb:admins": ["2"],
        "al:ios:url": ["app://x"],
    }


def test_rdfa_items_stand_in_each_other() -> None:
    page = """<div vocab="https://schema.org/" typeof="Event" about="#e"><span property="name">E</span>
    <span property="dc:title">not ours</span><div property="location" typeof="Place"><i property="name">P</i></div>
    <a property="url" href="/e">x</a><b property="sponsor" resource="#s">y</b></div><p property="name">nobody's</p>"""
    assert found(page).rdfa == [
        {
            "@type": ["Event"],
            "@id": "#e",
            "name": "E",
            "location": {"@type": ["Place"], "name": "P"},
            "url": "https://shop.example/e",
            "sponsor": "#s",
        }
    ]


def test_open_graph_keeps_all_values_in_order() -> None:
    page = """<meta property="og:image" content="1"><meta name="og:image" content=" 2 "><meta property="OG:Title" content="T">
    <meta property="og:empty" content=""><meta property="twitter:card" content="x">"""
    assert found(page).open_graph == {"og:image": ["1", "2"], "og:title": ["T"]}


def test_json_ld_is_found_whatever_its_type_looks_like() -> None:
    page = """<script type="Application/LD+JSON; charset=utf-8">[{"@type":"A"},5,[{"@type":"lost"}]]</script>
    <script type="application/json">{"@type":"B"}</script><script type="application/ld+json"></script>"""
    assert found(page).json_ld == [{"@type": "A"}]


def test_many_items_are_cut() -> None:
    assert len(found("<div itemscope itemtype=X></div>" * 6000).microdata) == 5001


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Record the tags of the elements whose text is read from now on."""
    tags: list[str | None] = []
    real = structured_data.visible_text

    def visible_text(node: LexborNode) -> str:
        tags.append(node.tag)
        return real(node)

    monkeypatch.setattr(structured_data, "visible_text", visible_text)
    return tags


@pytest.mark.parametrize(
    ("outer", "nested"),
    [
        ("<div itemscope>", '<div itemprop="a b c" itemscope>'),
        ("<div typeof=X>", '<div property="a b c" typeof=X>'),
    ],
)
def test_items_under_several_names_do_not_multiply_without_end(outer: str, nested: str) -> None:
    # Ten levels, since JSON of the hundreds that a page may have would not end: 3 ** 10 items before.
    page = found(outer + nested * 10)
    assert page.microdata or page.rdfa
    assert len(json.dumps(page.microdata + page.rdfa)) < 500_000


def test_an_element_is_read_once_for_all_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    read_nodes = watched(monkeypatch)
    names = " ".join(f"n{number}" for number in range(1000))
    (item,) = found(f'<p itemscope itemref=x></p><i id=x itemprop="{names}">text</i>').microdata
    assert (item["n0"], item["n19"], len(item), read_nodes) == ("text", "text", 21, ["i"])


def test_texts_around_texts_are_read_to_a_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    read_nodes = watched(monkeypatch)
    (item,) = found("<div itemscope>" + "<div itemprop=n>" * 300 + "text").microdata
    assert item == {"@type": [], "n": ["text"] * 16}
    assert len(read_nodes) == 16


def test_names_lose_their_vocabulary() -> None:
    names = [
        "Product",
        "schema:Product",
        "http://schema.org/Product",
        "https://schema.org/Product/",
        "http://x.example/v#Product",
    ]
    assert {local_name(name) for name in names} == {"Product"}
    assert types({"@type": ["schema:A", 5]}) == ["A"]
    assert types({}) == []
