"""Links of a page as records: texts, kinds and limits; the places that fragments name; a record of one page."""

import asyncio

import pytest

from holdfast.crawler.link_recorder import CheckBudget, LinkRecorder
from holdfast.model.commit_batch import FrontierItem
from holdfast.model.domain_name import SiteCache
from holdfast.model.fetch_types import FoundLink, ParsedPage
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import LinkKind, RecordedLink, check_key, has_place, pack_places, target_number
from holdfast.model.url import DEFAULT_RULES, url_key
from holdfast.parse.html import parse_html
from holdfast.parse.links import fragment_of
from holdfast.parse.page_child import as_json, from_json
from holdfast.parse.page_parser import PageParser

PAGE = b"""<!doctype html><head><link rel=canonical href=/c><link rel="alternate stylesheet" href=/s><link rel=next href=/2></head>
<a href=" /a ">An <b>old</b>
 page</a><a href="/a">An old page</a><a href="/img"><img src=x.png alt=" A  picture "></a><a rel="NoFollow  ugc" href="/n#x">n</a>
<a href="#here">here</a><a href="#">none</a><a href="#top">none</a><a href="mailto:a@b.c">m</a><a href="javascript:x()">j</a><a>no</a>
<map><area href=/area alt="An area"></map><iframe src=/frame></iframe><i id="one"></i><a name="two"></a><p name="no">"""


def test_links_have_their_text_rel_and_element() -> None:
    parsed = parse_html(PAGE, links_per_page=100, links=True, images=True)
    assert parsed.found_links == [
        FoundLink("/a", "An old page", "", LinkKind.A),
        FoundLink("/img", "A picture", "", LinkKind.A),
        FoundLink("/n#x", "n", "NoFollow ugc", LinkKind.A),
        FoundLink("#here", "here", "", LinkKind.A),
        FoundLink("/area", "An area", "", LinkKind.AREA),
        FoundLink("/frame", "", "", LinkKind.FRAME),
        FoundLink("/c", "", "canonical", LinkKind.CANONICAL),
        FoundLink("/2", "", "next", LinkKind.NEXT),
        FoundLink("x.png", "", "", LinkKind.IMAGE),
    ]
    assert (parsed.found_links_cut, parsed.places) == (0, ["one", "two"])


def test_without_the_option_nothing_is_collected() -> None:
    parsed = parse_html(PAGE, links_per_page=100)
    assert (parsed.found_links, parsed.places) == ([], None)


def test_links_beyond_the_limit_are_counted_and_texts_are_cut() -> None:
    body = b"".join(b"<a href=/%d>%s</a>" % (number, b"x" * 500) for number in range(5)) + b"<iframe src=/f></iframe>"
    parsed = parse_html(body, links_per_page=3, links=True)
    assert ([link.href for link in parsed.found_links], parsed.found_links_cut) == (["/0", "/1", "/2"], 3)
    assert {len(link.text) for link in parsed.found_links} == {200}


def test_a_page_with_very_many_places_has_none() -> None:
    body = b"".join(b"<i id=a%d></i>" % number for number in range(10_001))
    assert parse_html(body, links_per_page=10, links=True).places is None


def test_links_come_through_the_pipe_of_a_page_in_a_process_of_its_own() -> None:
    parsed = parse_html(PAGE, links_per_page=100, links=True)
    assert from_json(as_json(parsed)) == parsed


@pytest.mark.parametrize(
    ("href", "fragment"),
    [
        ("/a#b", "b"),
        ("#b%20c", "b%20c"),
        ("/a#", ""),
        ("/a", ""),
        ("#Top", ""),
        ("#!/route", ""),
        ("#/route", ""),
        ("#b:~:text=x", "b"),
        ("#:~:text=x", ""),
    ],
)
def test_the_place_that_a_link_names(href: str, fragment: str) -> None:
    assert fragment_of(href) == fragment


def test_places_are_found_as_written_and_decoded() -> None:
    packed = pack_places(["one", "länge", "a b"])
    assert len(packed) == 12
    assert [has_place(packed, one) for one in ("one", "l%C3%A4nge", "a%20b", "two", "ONE")] == [True] * 3 + [False] * 2


def recorder() -> LinkRecorder:
    sites = SiteCache(registrable=False)
    own = DEFAULT_RULES.with_stripped(["ref"])
    return LinkRecorder(sites.site_of("https://a.example/"), sites, DEFAULT_RULES, own)


def recorded(parsed: ParsedPage, url: str = "https://a.example/x/page") -> list[RecordedLink]:
    item = FrontierItem(url_key(url), url, 1, 0, 0, None, False, None, None)
    facts = recorder().facts(item, parsed, Outcome.OK, None, limit=10)
    assert facts.page is not None
    return list(facts.page.links)


def test_targets_are_spelt_as_the_frontier_spells_them() -> None:
    hrefs = ["b?ref=1", "/c#d", "https://B.example:443/?ref=1", "//a.example/../e", "#here", "https://[bad/"]
    links = [FoundLink(href, "t", "", LinkKind.A) for href in hrefs]
    found = recorded(ParsedPage(found_links=links, nofollow=True))
    assert [(link.url, link.fragment, link.valid) for link in found] == [
        ("https://a.example/x/b", "", True),
        ("https://a.example/c", "d", True),
        ("https://b.example/?ref=1", "", True),
        ("https://a.example/e", "", True),
        ("https://a.example/x/page", "here", True),
        ("https://[bad/", "", False),
    ]
    assert all(link.nofollow for link in found), "the page asks for it"


def test_a_page_that_could_only_be_scanned_has_links_without_texts() -> None:
    found = recorded(ParsedPage(links=["/a"], links_nofollow=["/b"], frames=["/c"]))
    assert [(link.url[-2:], link.kind, link.nofollow) for link in found] == [
        ("/a", LinkKind.A, False),
        ("/b", LinkKind.A, True),
        ("/c", LinkKind.FRAME, False),
    ]


def test_a_hostile_page_is_recorded_within_its_limits() -> None:
    body = b"<a href=/x>" * 100_000 + b"<div>" * 5_000 + b"<img alt=x>"

    async def parse() -> ParsedPage:
        parser = PageParser(links_per_page=1000)
        try:
            return await parser.parse(body, content_type="text/html", links=True)
        finally:
            await parser.aclose()

    parsed = asyncio.run(parse())
    assert len(parsed.found_links) <= 1000
    assert recorded(parsed)[0].url == "https://a.example/x"


def test_numbers_and_keys_of_targets() -> None:
    key = url_key("https://a.example/")
    assert target_number(key) == int.from_bytes(key[:8], "big", signed=True)
    assert check_key("https://a.example/") not in (key, url_key("https://a.example/x"))


def test_a_budget_of_checks_counts_each_link_once() -> None:
    budget = CheckBudget(3, 1)
    assert [budget.reserve(key) for key in (b"a", b"b", b"a", b"c")] == [True, True, True, False]
    assert budget.reason == "3 links to this host (crawl.checks_per_host)"
