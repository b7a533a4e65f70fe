"""What pages say to machines, as items."""

from selectolax.lexbor import LexborHTMLParser

from holdfast.parse.structured import Structured, last_part, read, types

URL = "https://shop.example/a/b"


def found(page: str) -> Structured:
    return read(LexborHTMLParser(page), URL)


def test_a_page_that_says_nothing() -> None:
    assert found("<p>x") == Structured()


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


def test_names_lose_their_vocabulary() -> None:
    names = [
        "Product",
        "schema:Product",
        "http://schema.org/Product",
        "https://schema.org/Product/",
        "http://x.example/v#Product",
    ]
    assert {last_part(name) for name in names} == {"Product"}
    assert types({"@type": ["schema:A", 5]}) == ["A"]
    assert types({}) == []
