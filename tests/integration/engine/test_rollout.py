"""The roll-out flags (000 §11): what each one's off means, and which scheduling is in force is said at start."""

import logging
from collections.abc import Iterator

import pytest

from holdfast.errors import Refused
from holdfast.simweb.plan import Site, Wall, Web
from holdfast.simweb.process import WebProcess
from holdfast.store import sweep
from tests.support.crawls import Crawls, hits, now, pages, wait_for

WALLED = 3


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(9, 4, Site(15, 6, 500), {WALLED: Site(3, 2, 500, wall=Wall.FORBIDDEN)})) as served:
        yield served


def order(web: WebProcess, since: float) -> list[str]:
    """Hosts in the order in which their first page was asked for."""
    return list(dict.fromkeys(hit.host for hit in pages(hits(web, since=since))))


def test_claims_need_scheduling(crawls: Crawls, web: WebProcess) -> None:
    answer = crawls.run("crawl", web.url(0), ENABLE_SMART_SCHEDULING="false")
    assert "ENABLE_CLAIM_PROTOCOL requires ENABLE_SMART_SCHEDULING=true" in answer.refused(2)


def test_without_claims_only_one_worker_runs(crawls: Crawls, web: WebProcess) -> None:
    """The second refuses to start with a sentence, and the first is not disturbed."""
    crawls.set(rollout={"claim_protocol": False, "smart_scheduling": False})
    job = crawls.begin(web.url(0)).job
    with crawls.worker(None, "first") as first:
        wait_for(lambda: crawls.total() >= 1, "the first page")
        second = crawls.run("worker", "--name", "second")
        assert second.code == 5
        assert second.err.splitlines()[-1] == (
            "Error: Without claims only one worker may run, and another one does; stop it, or switch claims on."
        )
        with_claims = crawls.run("worker", "--name", "third", ENABLE_CLAIM_PROTOCOL="true", **_scheduling_on())
        assert with_claims.code == 5
        assert "A worker runs without claims, which forbids any other; stop it first." in with_claims.err
        wait_for(lambda: crawls.total() == 15, "all pages")
        assert first.lives
    assert crawls.desk.end(job).completed
    crawls.verify()


def _scheduling_on() -> dict[str, str]:
    # The group's own names are taken out: two names for one setting must not disagree.
    return {
        "ENABLE_SMART_SCHEDULING": "true",
        "HOLDFAST_ROLLOUT_CLAIM_PROTOCOL": "",
        "HOLDFAST_ROLLOUT_SMART_SCHEDULING": "",
    }


def test_a_worker_with_claims_keeps_one_without_from_starting(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), delay=0.1).job
    with crawls.worker(job, "first"):
        wait_for(lambda: crawls.total() >= 1, "the first page")
        crawls.set(rollout={"claim_protocol": False})
        with crawls.worker(job, "second") as second, pytest.raises(Refused, match="only one worker may run"):
            second.end()


def test_a_whole_crawl_without_claims(crawls: Crawls, web: WebProcess) -> None:
    """The command starts one worker, whatever it is asked for."""
    crawls.set(rollout={"claim_protocol": False, "smart_scheduling": False})
    answer = crawls.run("crawl", web.url(0), web.url(1), "--workers", "4", "--json")
    assert (answer.code, answer.json["completed"], answer.json["pages"]) == (0, True, 30)
    assert crawls.value("SELECT count(*) FROM crawl_runs") == 1
    crawls.verify()


@pytest.mark.parametrize("smart", [True, False])
def test_domains_are_chosen_by_priority_or_in_their_order(crawls: Crawls, web: WebProcess, smart: bool) -> None:
    crawls.set(worker={"domains": 1}, rollout={"smart_scheduling": smart, "claim_protocol": smart})
    since = now()
    job = crawls.begin(*web.urls[:3]).job
    hosts = [web.address.host(site) for site in range(3)]
    # The last one that was met is worth the most.
    crawls.connection.execute("UPDATE job_domains SET priority = domain_id")
    with crawls.worker(job) as worker:
        worker.end()
    assert order(web, since) == (hosts[::-1] if smart else hosts)
    crawls.verify()


def test_without_budgets_of_domains_only_the_crawls_counts(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(rollout={"per_domain_budget": False}, domains={"max_pages_per_run": 4})
    assert crawls.crawl(web.url(0), web.url(1), max_pages=20).progress.pages == 20
    assert max(count for (count,) in crawls.rows("SELECT pages_crawled FROM domains")) > 4
    crawls.verify()
    assert crawls.crawl(web.url(2), max_pages_per_domain=3).completed
    assert crawls.domain(web.address.host(2))["pages_crawled"] == 15


@pytest.mark.parametrize("on", [True, False])
def test_refresh(crawls: Crawls, web: WebProcess, on: bool) -> None:
    """Exhausted domains that are due become pending by the sweep of a worker, or stay as they are."""
    crawls.set(rollout={"refresh_mode": on})
    assert crawls.command("seeds", "add", web.url(1)) == 0
    since = now()
    host = web.address.host(1)
    with crawls.worker(None):
        wait_for(lambda: crawls.domain(host)["status"] == "exhausted", "the first time")
        crawls.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
        if on:
            wait_for(lambda: crawls.pages_of(host) == 30 and crawls.domain(host)["status"] == "exhausted", "the second")
        else:
            swept = crawls.value("SELECT clock_timestamp()")
            wait_for(
                lambda: crawls.value("SELECT max(heartbeat_at) > %s + interval '1 s' FROM workers", swept), "a sweep"
            )
    seen = pages(hits(web, 1, since=since))
    if on:
        assert len(seen) == 30
        assert [hit.status for hit in seen[15:]] == [304] * 15  # nothing had changed, and it was asked like that
    else:
        assert len(seen) == 15
        assert crawls.domain(host)["status"] == "exhausted"
    crawls.verify()


def test_without_tracking_nothing_is_made_of_what_was_learnt(crawls: Crawls, web: WebProcess) -> None:
    """A site that refuses everything is not blocked: the next crawl asks it again."""
    crawls.set(rollout={"domain_tracking": False})
    since = now()
    crawls.crawl(web.url(WALLED), job="walls")
    assert crawls.domain(web.address.host(WALLED))["status"] != "blocked"
    assert len(pages(hits(web, WALLED, since=since))) == 1
    crawls.crawl(web.url(WALLED), job="again")
    assert len(pages(hits(web, WALLED, since=since))) == 2
    crawls.verify()


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({}, "domains are chosen by priority and held by claims"),
        (
            {"claim_protocol": False, "smart_scheduling": False},
            "domains are chosen in the order of their seeds and by this worker alone (claims are off)",
        ),
    ],
)
def test_the_mode_is_logged_at_start(
    crawls: Crawls, web: WebProcess, caplog: pytest.LogCaptureFixture, rollout: dict[str, object], said: str
) -> None:
    crawls.set(rollout=rollout)
    with caplog.at_level(logging.INFO):
        crawls.crawl(web.url(0), max_pages=1)
    assert [record for record in caplog.records if said in record.getMessage()]


def test_a_sweep_alone_refreshes_as_told(crawls: Crawls, web: WebProcess) -> None:
    """The flag is the worker's; the sweep does what it is told, and says what it did."""
    assert crawls.command("seeds", "add", web.url(2)) == 0
    with crawls.worker(None):
        wait_for(lambda: crawls.domain(web.address.host(2))["status"] == "exhausted", "the end")
    crawls.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
    silence = crawls.settings.claims.lease
    assert sweep.sweep(crawls.connection, run_silence=silence, refresh=False).cooled == 0
    assert sweep.sweep(crawls.connection, run_silence=silence, refresh=True).cooled == 1
    assert crawls.domain(web.address.host(2))["status"] == "pending"
    crawls.verify()
