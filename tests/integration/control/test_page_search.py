"""Search of pages: by what the URL begins with, and by words of the title."""

import pytest

from holdfast.db.connection import Database
from holdfast.errors import BadUrl, NotFound, UsageError
from holdfast.pages import queries
from holdfast.pages.records import PageFilter
from holdfast.pages.service import PageService
from tests.support.crawled import HOME, Crawl, crawl_a_little
from tests.support.factories import Store


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


@pytest.fixture
def service(database: Database, crawl: Crawl) -> PageService:
    return PageService(database)


def urls(service: PageService, **where: str) -> set[str | None]:
    found = service.page(PageFilter(**where))  # type: ignore[arg-type]
    assert found.next is None
    return {page.url for page in found.rows}


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (HOME, {"", "a", "a/b", "gone"}),
        ("https://example.com", {"", "a", "a/b", "gone"}),
        ("HTTPS://EXAMPLE.com/a", {"a", "a/b"}),
        ("https://example.com/a/", {"a/b"}),
        ("https://example.com/%61", {"a", "a/b"}),
        ("example.com/g", {"gone"}),
        ("http://example.com/", set()),
        ("https://example.com/zzz", set()),
    ],
)
def test_urls_that_begin_so(service: PageService, prefix: str, expected: set[str]) -> None:
    assert urls(service, url_prefix=prefix) == {f"{HOME}{path}" for path in expected}
    assert urls(service, url_prefix=prefix, domain="example.com") == {f"{HOME}{path}" for path in expected}


def test_without_a_scheme_both_are_meant(service: PageService, store: Store) -> None:
    store.connection.execute("UPDATE url_frontier SET url = 'http://example.com/a' WHERE url = 'https://example.com/a'")
    assert urls(service, url_prefix="example.com/a") == {"http://example.com/a", f"{HOME}a/b"}


def test_prefixes_that_are_refused(service: PageService) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.example"):
        urls(service, url_prefix="https://nowhere.example/")
    with pytest.raises(UsageError, match="leave one of them out"):
        urls(service, url_prefix=HOME, domain="other.example")
    with pytest.raises(BadUrl, match="neither an http or https URL"):
        urls(service, url_prefix="ftp://example.com/")


def test_words_of_the_title(service: PageService, store: Store) -> None:
    store.connection.execute(
        "UPDATE crawled_pages SET title = 'The Annual Report of 2031, a draft' WHERE url_key = substr(sha256(%s), 1, 16)",
        (f"{HOME}a/b".encode(),),
    )
    for words in ("report annual", "REPORT", '"annual report"', "2031 -final", "nothing or draft"):
        assert urls(service, title=words) == {f"{HOME}a/b"}, words
    for words in ("repo", '"report annual"', "report -draft", "report final", "!!!"):
        assert urls(service, title=words) == set(), words
    assert urls(service, title="quoted") == {HOME}
    assert urls(service, title="draft", url_prefix=f"{HOME}a") == {f"{HOME}a/b"}
    assert urls(service, title="draft", url_prefix=f"{HOME}g") == set()


def test_a_search_that_looked_at_enough_pages_says_so_and_goes_on(
    service: PageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGES", _limited(2))
    first = service.page(PageFilter(title="quoted"), order="newest")
    assert (first.rows, first.scanned) == ([], 2)
    assert first.next is not None
    second = service.page(PageFilter(title="quoted"), order="newest", after=first.next)
    assert [page.url for page in second.rows] == [HOME]
    assert service.page(PageFilter(title="a"), limit=4).scanned in (None, 2)
    everything = service.page(limit=3)
    assert (len(everything.rows), everything.scanned) == (3, None)


def _limited(rows: int) -> object:
    from dataclasses import replace

    return replace(queries.PAGES, scan_limit=rows, sort_limit=0)
