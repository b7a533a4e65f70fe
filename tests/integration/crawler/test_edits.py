"""Edits by people under a visit: how a domain and a job are crawled changes at once, by notice, and by polling where a notice is lost."""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.crawler import proxy_registry
from holdfast.crawler import worker as worker_module
from holdfast.db import listen_notify, release
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for
from tests.support.farm import Farm, running

PAGES = 150
ACTS = 10.0
"""Seconds: generous beside the two that are promised, far from the minute that it took before."""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(29, 2, Site(PAGES, 8, 700))) as served:
        yield served


@pytest.fixture(params=["notice", "polling"])
def heard_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the two ways at a time."""
    if request.param == "notice":
        monkeypatch.setattr(worker_module, "JOB_POLL", 3600.0)
    else:

        def deaf(_: psycopg.Connection, seconds: float) -> bool:
            time.sleep(seconds)
            return False

        monkeypatch.setattr(listen_notify, "wait", deaf)
    return str(request.param)


def edit(crawls: Crawls, web: WebProcess, *words: str) -> None:
    DomainService(crawls.database).configure(web.address.host(0), parse_assignments(words), actor="ann")


def test_a_domain_that_is_switched_off_is_asked_for_nothing_more(
    crawls: Crawls, web: WebProcess, heard_by: str
) -> None:
    job = crawls.begin(web.url(0), job="news", delay=0.1).job
    with crawls.worker(job):
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        edit(crawls, web, "active=no")
        wait_for(lambda: crawls.held() == 0, f"the visit to end by {heard_by}", ACTS)
        quiet, done = now(), crawls.total()
        time.sleep(0.5)
        assert not hits(web, since=quiet)
    assert 3 <= done < PAGES
    crawls.verify()


def test_a_new_delay_holds_from_the_next_request_on(crawls: Crawls, web: WebProcess) -> None:
    """A longer one counts from the last request of before; a shorter one ends the wait for the longer one."""
    crawls.set(domains={"crawl_delay": 0.1}, crawl={"patience": 300})
    job = crawls.begin(web.url(0), job="news").job
    since = now()
    with crawls.worker(job):
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        edit(crawls, web, "delay=1")
        wait_for(lambda: _tenures(crawls) == 2, "the visit to be begun anew", ACTS)
        again = now()
        wait_for(lambda: len(hits(web, since=again)) >= 2, "requests at the new delay")
        edit(crawls, web, "delay=120")
        wait_for(lambda: _tenures(crawls) == 3, "the next one", ACTS)
        slow = now()
        time.sleep(0.5)
        assert not hits(web, since=slow), "it has two minutes to wait"
        edit(crawls, web, "delay=0.05")
        wait_for(lambda: len(hits(web, since=slow)) >= 3, "requests at the short delay", ACTS)
    times = [hit.at for hit in hits(web, since=since) if hit.at < slow]
    last = max(at for at in times if at < again)
    gaps = _gaps([at for at in times if at >= last])
    assert len(gaps) >= 2
    assert all(gap >= 1 - 0.05 for gap in gaps), times
    crawls.verify()


def test_every_setting_begins_the_visit_anew(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    job = crawls.begin(web.url(0), job="news", delay=0.1).job
    edits = ["concurrency=3", "user_agent=other/2", "parser=product", "budget=77", "frequency=3d", "strip_params=sid"]
    with crawls.worker(job):
        for number, words in enumerate([*([one] for one in edits), ["proxy=any", "proxy_direct=yes"]], 1):
            done = crawls.total()
            wait_for(lambda done=done: crawls.total() > done, "a page of this visit")  # type: ignore[misc]
            assert _tenures(crawls) == number
            edit(crawls, web, *words)
            wait_for(lambda number=number: _tenures(crawls) == number + 1, f"{words} to be heard of", ACTS)  # type: ignore[misc]
            if words == ["user_agent=other/2"]:
                wait_for(lambda: hits(web, since=since)[-1].agent == "other/2", "the new name", ACTS)
    crawls.verify()


def test_a_window_that_begins_now_ends_the_visit_and_one_that_is_lifted_lets_it_go_on(
    crawls: Crawls, web: WebProcess
) -> None:
    at = datetime.now(UTC)
    job = crawls.begin(web.url(0), job="news", delay=0.1).job
    with crawls.worker(None):
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        edit(crawls, web, f"window={at - timedelta(hours=1):%H:%M}-{at + timedelta(hours=2):%H:%M}")
        wait_for(
            lambda: crawls.value("SELECT not_before > clock_timestamp() + interval '1 hour' FROM job_domains"),
            "it to be closed",
            ACTS,
        )
        done = crawls.total()
        edit(crawls, web, "window=")
        wait_for(lambda: crawls.total() > done, "it to go on", ACTS)
    assert job.id
    crawls.verify()


def test_limits_of_a_job_that_another_command_changes_hold_for_the_crawl_under_way(
    crawls: Crawls, web: WebProcess, heard_by: str
) -> None:
    """The promise of pages that the visit had under the old limit is given back."""
    since = now()
    job = crawls.begin(web.url(0), web.url(1), job="news", max_pages=PAGES, delay=0.1).job
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 6, "the first pages")
        crawls.begin(job="news", max_pages=20)
        worker.end()
    assert crawls.total() <= 20 + 2 * 5, heard_by
    assert len(pages(hits(web, since=since))) <= 20 + 2 * 5
    crawls.verify()


def test_parser_and_delay_of_a_job_reach_a_worker_that_serves_it_alone(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), job="news", delay=0.1).job
    with crawls.worker(job):
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        assert not crawls.value("SELECT count(*) FROM page_parses")
        crawls.begin(job="news", parser="product", delay=0.05)
        wait_for(lambda: crawls.value("SELECT count(*) FROM page_parses") >= 2, "pages that are parsed", ACTS)
    crawls.verify()


def test_an_edit_while_the_visit_ends_for_a_reason_of_before_is_not_lost(crawls: Crawls, web: WebProcess) -> None:
    """The wait that a visit ends with is judged by the settings of before: where they have changed, nothing waits."""
    at = datetime.now(UTC)
    crawls.begin(web.url(0), job="news", delay=0.1)
    edit(crawls, web, f"window={at - timedelta(hours=1):%H:%M}-{at + timedelta(hours=2):%H:%M}")
    real = release.release

    def late(connection: psycopg.Connection, **given: Any) -> object:
        if crawls.value("SELECT maintenance_window IS NOT NULL FROM domains"):
            edit(crawls, web, "window=")
        return real(connection, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "release", late)
        with crawls.worker(None):
            wait_for(lambda: crawls.total() >= 3, "pages", ACTS)
    crawls.verify()


def test_proxies_that_are_assigned_are_used_at_once_and_one_that_is_switched_off_no_more(
    crawls: Crawls, web: WebProcess, heard_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_registry, "REFRESH_SECONDS", 3600.0)  # the registry does not refresh by itself
    job = crawls.begin(web.url(0), job="news", delay=0.05).job
    with running(tmp_path, 2) as processes, crawls.worker(job):
        farm = Farm(crawls, processes)
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        farm.register().assign(web.address.host(0))
        wait_for(lambda: min(farm.counts()) >= 2, f"both to be used by {heard_by}", ACTS)
        assert _tenures(crawls) == 2
        proxies.switch(crawls.connection, farm.ids[0], on=False, actor="ann")
        wait_for(lambda: _without(farm, 0), "only the other one to be used", ACTS)
        off = len(farm.asked(0))
        proxies.switch(crawls.connection, farm.ids[0], on=True, actor="ann")
        wait_for(lambda: len(farm.asked(0)) > off, "it to be used again", ACTS)
        proxy_pools.unassign(crawls.connection, web.address.host(0), None, actor="ann")
        DomainService(crawls.database).configure(web.address.host(0), parse_assignments(["proxy=direct"]), actor="ann")
        wait_for(lambda: crawls.held() == 1 and _tenures(crawls) >= 3, "a visit without them", ACTS)
        direct = now()
        wait_for(lambda: hits(web, since=direct), "a direct request", ACTS)
    crawls.verify()


def test_a_crawl_as_a_program_hears_what_another_command_sets(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    name = web.address.host(0)
    with crawls.start("crawl", web.url(0), "--job", "news", "--delay", "0.1", "--workers", "1") as program:
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        assert crawls.command("domain-set", name, "user_agent=other/2") == 0
        wait_for(lambda: hits(web, since=since)[-1].agent == "other/2", "the new name", ACTS)
        assert crawls.command("domains", "set", name, "active=no") == 0
        wait_for(lambda: crawls.held() == 0, "it to be let go of", ACTS)
        quiet = now()
        program.end()
    assert not hits(web, since=quiet)
    agents = [hit.agent == "other/2" for hit in hits(web, since=since)]
    assert agents == sorted(agents), "never the old name after the new one"
    crawls.verify()


def _without(farm: Farm, place: int) -> bool:
    """Whether so many requests passed one by as never do where it has its turn."""
    before = farm.counts()
    wait_for(lambda: sum(farm.counts()) >= sum(before) + 6)
    return farm.counts()[place] == before[place]


def _tenures(crawls: Crawls) -> int:
    return int(crawls.value("SELECT count(*) FROM claim_log"))


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(sorted(times))]
