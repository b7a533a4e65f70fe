"""Which URLs of a domain come first."""

import pytest

from holdfast.politeness.url_priority import HIGH, LOW, MEDIUM, url_priority

SITE = "https://example.com"


@pytest.mark.parametrize(
    ("path", "depth", "priority"),
    [
        ("/", 0, HIGH),
        ("/tag/x", 0, HIGH),
        ("/", 9, HIGH),
        ("/about", 1, HIGH),
        ("/about", 2, HIGH),
        ("/about", 3, MEDIUM),
        ("/about", 5, MEDIUM),
        ("/about", 6, LOW),
        ("/news/page/2", 3, LOW),
        ("/news/page/2/", 1, LOW),
        ("/news/page-2", 3, LOW),
        ("/news?page=3", 3, LOW),
        ("/news?a=b&page=3&c=d", 3, LOW),
        ("/tag/python", 3, LOW),
        ("/category/a/b", 3, LOW),
        ("/archive/", 3, LOW),
        ("/archives", 3, LOW),
        ("/2020/01/", 3, LOW),
        ("/blog/2020", 3, LOW),
        ("/2020/01/a-story", 3, MEDIUM),
        ("/pages/2-legs", 3, MEDIUM),
        ("/stage/x", 3, MEDIUM),
        ("/tagged", 3, MEDIUM),
        ("/x?pages=many", 3, MEDIUM),
        ("/x?page=home", 3, MEDIUM),
    ],
)
def test_priorities(path: str, depth: int, priority: int) -> None:
    assert url_priority(SITE + path, depth) == priority


def test_a_host_that_reads_like_a_listing_is_none() -> None:
    assert url_priority("https://page2/x", 3) == MEDIUM
