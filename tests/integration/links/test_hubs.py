"""Links to a URL that many pages link to: the same answers, found by a walk instead of a sort."""

import pytest

from holdfast.db.connection import Database
from holdfast.links import queries
from holdfast.links.service import LinkService
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import target_number
from holdfast.model.url import url_key
from tests.support.crawled import HOME, Crawl
from tests.support.factories import Store
from tests.support.furnished import put_links

PAGES = 9


def _crawl(database: Database, store: Store) -> None:
    """A crawl of pages that all link to the home page, and the last one to another page, too."""
    crawl = Crawl(database, store)
    store.seed(HOME)
    claim = store.claim_one("w1")
    urls = [f"{HOME}{number}" for number in range(PAGES)]
    crawl.commit(claim, [crawl.outcome(HOME, Outcome.OK)], [crawl.found(HOME, url) for url in urls])
    crawl.commit(claim, [crawl.outcome(url, Outcome.OK) for url in urls])
    for url in urls:
        put_links(store.connection, url, HOME, *([f"{HOME}rare"] if url == urls[-1] else []))


def _incoming(links: LinkService) -> list[str]:
    """Every page of the list of links to the home page, in its order."""
    found, after = [], None
    while True:
        page = links.incoming(HOME, after=after, limit=2)
        found += [one.page_url for one in page.rows]
        if page.next is None:
            return found
        after = page.next


def test_pages_that_link_to_a_hub_are_those_of_a_sorted_list(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _crawl(database, store)
    links = LinkService(database)
    as_sorted = _incoming(links)
    assert sorted(as_sorted) == [f"{HOME}{number}" for number in range(PAGES)]
    monkeypatch.setattr(queries, "HUB", PAGES)
    assert _incoming(links) == as_sorted
    assert links.count_incoming(HOME) == PAGES


def test_the_newest_job_with_links_to_a_url_is_found_also_for_a_hub(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = store.connection
    _crawl(database, store)
    connection.execute(
        "INSERT INTO page_links (domain_id, job_id, url_key, links, cut, targets, body)"
        " SELECT domain_id, %s, url_key, links, cut, targets, body FROM page_links",
        (store.new_job("second"),),
    )
    hub, rare, none = (target_number(url_key(url)) for url in (HOME, f"{HOME}rare", f"{HOME}none"))

    def newest() -> list[str | None]:
        found = [queries.job_linking(connection, number) for number in (hub, rare, none)]
        return [None if one is None else one[1] for one in found]

    def check(expected: list[str | None]) -> None:
        assert newest() == expected
        with monkeypatch.context() as patched:
            patched.setattr(queries, "_SOME", 2)  # the first two rows are of the first job
            assert newest() == expected

    check(["second", "second", None])
    connection.execute("UPDATE crawl_jobs SET state = 'cancelled', deleted_at = now() WHERE name = 'second'")
    check(["default", "default", None])
    connection.execute("DELETE FROM page_links")
    check([None, None, None])
