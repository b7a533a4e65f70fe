"""What a visit remembers of links saves work and loses no URL."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.crawler.link_filter import LinkFilter, LinkMemoryBudget, RecentLinks
from holdfast.model.commit_batch import FrontierItem
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.job import JobSpec, Scope
from holdfast.model.scope import compile_rules
from holdfast.model.url import UrlRules, resolve, url_key
from holdfast.settings import Crawl

ENOUGH = 1 << 20
SITE = "https://www.example.com"
HREFS = st.lists(st.sampled_from(["/a", "/b", "c", "d/e", "https://h.example/f", "/" + "x" * 400]), max_size=8)
PAGES = st.lists(st.tuples(HREFS, st.sampled_from([f"{SITE}/1/", f"{SITE}/2/"]), st.integers(0, 4)), max_size=12)


@settings(deadline=None, max_examples=200)
@given(PAGES, st.sampled_from([1, 600, 2000, ENOUGH]))
def test_a_link_is_dropped_only_if_it_was_met_as_near_to_a_seed(
    pages: list[tuple[list[str], str, int]], size: int
) -> None:
    recent = RecentLinks(LinkMemoryBudget(size))
    nearest: dict[str, int] = {}
    written: dict[tuple[str, str], int] = {}
    for hrefs, page, depth in pages:
        fresh = recent.unseen(hrefs, page, depth)
        for href in hrefs:
            if nearest.get(resolve(page, href), 99) > depth:
                assert href in fresh
            if size == ENOUGH and len(href) < 300 and written.get((page, href), 99) <= depth:
                assert href not in fresh
        for href in hrefs:
            url, words = resolve(page, href), (page, href)
            nearest[url] = min(nearest.get(url, 99), depth)
            written[words] = min(written.get(words, 99), depth)


def test_what_visits_remember_shrinks_when_there_are_more_of_them() -> None:
    memory = LinkMemoryBudget(8 * 152)
    recent = RecentLinks(memory)
    assert recent.unseen(["/a", "/b", "/c", "/d"], f"{SITE}/", 1) == ["/a", "/b", "/c", "/d"]
    memory.sharers = 4  # from now on it may keep one new one, and as many old ones
    for href in ("/e", "/f", "/g", "/h"):
        assert recent.unseen([href], f"{SITE}/", 1) == [href]
    assert recent.unseen(["/a"], f"{SITE}/", 1) == ["/a"]


def finder() -> LinkFilter:
    return LinkFilter(
        7,
        Site("example.com", "example.com", SITE),
        scope=compile_rules(JobSpec(scope=Scope.ANY)),
        sites=SiteCache(registrable=True),
        rules=UrlRules(),
        limits=Crawl(),
        max_depth=10,
        this_year=2026,
        memory=LinkMemoryBudget(),
    )


@pytest.mark.parametrize(
    ("href", "first", "second", "base"),
    [
        ("?page=2", f"{SITE}/shop/shoes", f"{SITE}/shop/hats", None),  # a query alone is of the page, not of its folder
        ("?u=http://x", f"{SITE}/shop/shoes", f"{SITE}/cart/hats", None),
        ("/a", f"{SITE}/1", "https://shop.example.com/1", None),  # a domain has several hosts …
        ("/a", "http://www.example.com/1", f"{SITE}/1", None),  # … and schemes
        ("//cdn.example.com/a", "http://www.example.com/1", f"{SITE}/1", None),
        ("/a", f"{SITE}/1", f"{SITE}/2", "https://shop.example.com/"),  # a base may be anywhere
    ],
)
def test_the_same_words_on_another_page_that_mean_another_url_are_followed(
    href: str, first: str, second: str, base: str | None
) -> None:
    links = finder()
    pages = [(first, base), (second, None)]
    found = [
        url.url
        for page, base in pages
        for url in links.find(FrontierItem(url_key(page), page, 0, 0, 0, None, False, None, None), base, [href])
    ]
    assert found == [resolve(base or page, href) for page, base in pages]
