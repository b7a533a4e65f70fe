"""What a crawl counts: every figure equals the log and the frontier, whoever adds it up, and what only a worker knows is reported."""

from collections.abc import Iterator

import pytest

from holdfast.db import claims, stats, sweeper
from holdfast.model.histograms import COMMIT_MS
from holdfast.stats.metrics import collect
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Web
from tests.support.crawls import Crawls, wait_for
from tests.support.factories import LEASE
from tests.support.figures import counted, of_requests


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    odd = {SpecialUrl.MISSING: 0.2, SpecialUrl.PRIVATE: 0.3, SpecialUrl.FORBIDDEN: 0.1}
    with WebProcess(Web(29, 2, Site(25, 6, 1500, robots=Robots.DENY, odd=odd))) as served:
        yield served


def test_a_crawl_is_counted_as_it_was(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(worker={"heartbeat": 0.1})
    assert crawls.crawl(web.url(0), web.url(1), delay=0.02).completed
    connection = crawls.connection
    counters = {key: count.total for key, count in stats.counters(connection).items()}
    assert of_requests(counters) == counted(connection)
    assert counters["outcome", "forbidden"] > 0
    denied = crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'denied' AND reason LIKE 'robots_denied%%'")
    assert counters["robots_denied", ""] == denied > 0
    assert counters["claim", "acquired"] == crawls.value("SELECT count(*) FROM claim_log")
    assert counters["claim", "released"] == crawls.value("SELECT count(*) FROM claim_log WHERE why = 'released'")
    ((commits, latency, milliseconds, renewals, fenced),) = crawls.rows(
        "SELECT commits, commit_latency, commit_ms, lease_renewals, fenced_writes FROM crawl_runs"
    )
    assert (counters["commits", ""], sum(latency), len(latency)) == (commits, commits, len(COMMIT_MS) + 1)
    assert commits >= 2
    assert milliseconds > 0
    assert renewals > 0
    assert fenced == 0
    crawls.verify()
    for _ in range(2):
        stats.fold(connection, every=stats.EVERY * 0, fresh=-stats.FRESH)
        assert {key: count.total for key, count in stats.counters(connection).items()} == counters
        crawls.verify()
    shown = {family.name: family for family in collect(crawls.database)}
    assert shown["crawler_pages_fetched_total"].samples[0].value == crawls.total()
    assert shown["crawler_robots_denials"].samples[0].value == denied


def test_a_write_that_the_fence_refuses_is_counted(
    crawls: Crawls, web: WebProcess, caplog: pytest.LogCaptureFixture
) -> None:
    crawls.set(worker={"heartbeat": 60})  # so that a commit is the first to hear of it
    connection = crawls.connection
    job = crawls.begin(web.url(0), delay=0.05).job
    with crawls.worker(job):
        wait_for(lambda: crawls.total() >= 3, "a few pages")
        with connection.transaction():
            assert sweeper.force_release(connection, worker="w1") == 1
            assert len(claims.claim(connection, worker="w2", job_id=job.id, count=1, lease=LEASE)) == 1
        wait_for(lambda: "refused at a commit" in caplog.text, "a write that is refused")
    assert crawls.value("SELECT fenced_writes FROM crawl_runs") == 1
    counters = stats.counters(connection)
    assert (counters["fenced_writes", ""].total, counters["claim", "forced"].total) == (1, 1)
    crawls.verify()


def test_without_a_background_workers_add_up(crawls: Crawls, web: WebProcess) -> None:
    connection = crawls.connection
    connection.execute(
        "INSERT INTO stats_fresh (at, kind, label, n) VALUES (now() - interval '1 h', 'claim', 'acquired', 3)"
    )
    job = crawls.begin(web.url(0), delay=0.05).job
    with crawls.worker(job):
        wait_for(lambda: crawls.value("SELECT value FROM stats_total WHERE (name, label) = ('claim', 'acquired')") == 3)
