"""Kept-alive connections that break: judged by the site's own log, every request keeps the delay and is a row of ours."""

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, pages

DELAY = 0.1
ALWAYS, SOMETIMES = range(2)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    site = Site(12, 4, 500, crawl_delay=DELAY, reset_reused=1.0)
    with WebProcess(Web(5, 2, site, {SOMETIMES: Site(40, 6, 500, reset_reused=0.4)})) as served:
        yield served


def test_the_delay_is_kept_and_the_log_shows_every_request(crawls: Crawls, web: WebProcess) -> None:
    """The second request of every connection is reset."""
    crawls.set(politeness={"retries": 0})
    assert crawls.crawl(web.url(ALWAYS)).completed
    seen = hits(web, ALWAYS)
    assert log_checks.too_close(seen, DELAY) == []
    asked = Counter(hit.url for hit in pages(seen))
    assert Counter({url: len(outcomes) for url, outcomes in crawls.outcomes().items()}) == asked
    # Three connections break under their second request; then none is used again.
    assert Counter(outcome for outcomes in crawls.outcomes().values() for outcome in outcomes) == {
        "ok": 12,
        "connection_broken": 3,
    }
    assert log_checks.missing_pages(web.expected(ALWAYS), seen) == []
    domain = crawls.domain(web.address.host(ALWAYS))
    assert (domain["pages_crawled"], domain["total_error_count"], domain["consecutive_error_count"]) == (12, 0, 0)
    crawls.verify()


def test_side_by_side_without_a_delay(crawls: Crawls, web: WebProcess) -> None:
    """Four at once: what breaks is asked for again."""
    assert crawls.crawl(web.url(SOMETIMES), concurrency=4).completed
    seen = hits(web, SOMETIMES)
    asked = Counter(hit.url for hit in pages(seen))
    assert Counter({url: len(outcomes) for url, outcomes in crawls.outcomes().items()}) == asked
    assert asked.total() > 40
    assert log_checks.missing_pages(web.expected(SOMETIMES), seen) == []
    assert {outcomes[-1] for outcomes in crawls.outcomes().values()} == {"ok"}, (
        "in the order in which they were asked for"
    )
    crawls.verify()
