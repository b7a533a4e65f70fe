"""Traps: what is cut, and above all what is not."""

import pytest

from holdfast.politeness.crawler_traps import TemplateCounter, template_key, trap_reason, url_template
from holdfast.settings import Crawl

YEAR = 2026
SITE = "https://example.com"
CRAWL = Crawl()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a" * 21, "it has 21 path segments, more than 20"),
        ("/a/a/a/a", "its path repeats a more than 3 times"),
        ("/x/a/a/a/a/y", "its path repeats a more than 3 times"),
        ("/a/b/a/b/a/b/a/b", "its path repeats a/b more than 3 times"),
        ("/a/b/c/a/b/c/a/b/c/a/b/c", "its path repeats a/b/c more than 3 times"),
        ("/x/////y", "its path repeats // more than 3 times"),
        ("/s?" + "&".join(f"p{i}=1" for i in range(21)), "it has 21 parameters, more than 20"),
        ("/s?" + "&".join(["p=1"] * 6), "it has the parameter p more than 5 times"),
        ("/2029/01/", "it leads through a calendar to the year 2029"),
        ("/news/1889/12/31/x", "it leads through a calendar to the year 1889"),
        ("/events/2100-05-01", "it leads through a calendar to the year 2100"),
        ("/calendar/3000", "it leads through a calendar to the year 3000"),
        ("/calendar/month/9999/1", "it leads through a calendar to the year 9999"),
        ("/c?date=1970-01-01", "it leads through a calendar to the year 1970"),
        ("/c?month=5&year=2040", "it leads through a calendar to the year 2040"),
    ],
)
def test_traps(path: str, why: str) -> None:
    assert trap_reason(SITE + path, CRAWL, YEAR) == why


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a/a/a",
        "/a/b/a/b/a/b",
        "/a/b/c/a/b/c/d/a/b/c",
        "/" + "/".join(f"s{i}" for i in range(20)),
        "/2028/12/31/",
        "/1990/01/",
        "/2026/02/30-years",
        "/t/some-topic/4521/3",
        "/product/1200/12",
        "/photo-3000x2000.jpg",
        "/events/123456",
        "/article/3000-ways-to-say-no",
        "/s?year=2025&page=9999",
        "/s?" + "&".join(f"p{i}=1" for i in range(20)),
        "/s?" + "&".join(["p=1"] * 5),
        "/s?" + "/".join("aaaaaaaa"),
    ],
)
def test_no_traps(path: str) -> None:
    assert trap_reason(SITE + path, CRAWL, YEAR) is None


def test_the_limits_are_settings() -> None:
    assert trap_reason(f"{SITE}/a/b/c", Crawl(max_segments=2), YEAR)
    assert trap_reason(f"{SITE}/a/a", Crawl(max_repeats=1), YEAR)
    assert trap_reason(f"{SITE}{'/a' * 9}", Crawl(max_repeats=9), YEAR) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/item/123", "/item/#"),
        ("/item/123?page=7&q=x", "/item/#?page=#&q=x"),
        ("/2024-05-06/x", "/#/x"),
        ("/2024/05/06/x", "/#/x"),
        ("/v1.2.3/x", "/v#/x"),
        ("/u/0123abcd-0123-0123-0123-0123456789ab", "/u/#"),
        ("/commit/deadbeef01", "/commit/#"),
        ("/facade/decade", "/facade/decade"),
        ("/deadbeef", "/deadbeef"),
    ],
)
def test_templates(path: str, expected: str) -> None:
    assert url_template(f"https://h1.example.com{path}") == f"https://h1.example.com{expected}"


def test_a_template_is_over_after_its_cap_and_others_are_not() -> None:
    counter = TemplateCounter(cap=100)
    assert not any(counter.count(f"{SITE}/item/{i}").over for i in range(100))
    assert sum(counter.count(f"{SITE}/item/{i}").over for i in range(100, 1100)) >= 980
    assert not counter.count(f"{SITE}/other/1").over


def test_a_url_met_again_counts_once_and_stays_in() -> None:
    counter = TemplateCounter(cap=1000)
    for _ in range(5):
        assert not any(counter.count(f"{SITE}/item/{i}").over for i in range(900))


def test_a_cap_below_the_few_that_are_remembered_one_by_one() -> None:
    counter = TemplateCounter(cap=1)
    assert [counter.count(f"{SITE}/item/{i}").over for i in (1, 2, 1, 3)] == [False, True, False, True]


def test_urls_without_numbers_never_are() -> None:
    counter = TemplateCounter(cap=1)
    assert not any(counter.count(f"https://h1.example.com/{'x' * i}").over for i in range(100))


def test_memory_is_bounded() -> None:
    counter = TemplateCounter(cap=10_000)
    for i in range(3 * TemplateCounter.MAX_TEMPLATES):
        counter.count(f"{SITE}/{'x' * (i % 100)}/{'y' * (i // 100)}/1")
    assert len(counter._seen) == TemplateCounter.MAX_TEMPLATES
    one = TemplateCounter(cap=2**31 - 1)
    for i in range(1000):
        one.count(f"{SITE}/{i}")
    assert [len(seen._bits or b"") for seen in one._seen.values()] == [2**20 // 8 + 1]


def test_a_template_has_the_same_number_in_every_process() -> None:
    assert template_key(f"{SITE}/item/1?page=2") == template_key(f"{SITE}/item/77?page=345") == 7612148655162585582
    assert template_key(f"{SITE}/item") is None


def test_what_the_store_knows_counts_and_what_was_met_is_never_over() -> None:
    key = template_key(f"{SITE}/item/1")
    assert key is not None
    counter = TemplateCounter(10, {key: 8})
    assert counter.count(f"{SITE}/item/1") == (False, key), "one that is in the store is counted from its first URL on"
    counter.add_stored({key: 2})
    assert counter.count(f"{SITE}/item/2") == (True, key)
    assert not counter.count(f"{SITE}/item/1").over
    assert counter.count(f"{SITE}/thing/1") == (False, None), "the only one of its kind costs no row"
    assert counter.count(f"{SITE}/thing/1") == (False, None)
    second = counter.count(f"{SITE}/thing/2")
    assert second.template is not None
    assert not second.over
    counter.add_stored({second.template: 9})
    assert counter.count(f"{SITE}/thing/3").over
