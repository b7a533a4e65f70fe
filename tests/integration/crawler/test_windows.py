"""Maintenance windows: a domain that is closed is not asked for anything, and what waits for it goes on when it opens."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import factories
from holdfast.control.scheduler import Scheduler
from holdfast.crawler import visit
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.tasks.records import TaskOptions
from holdfast.tasks.service import TaskService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, wait_for

CLOSED, OPEN = range(2)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(23, 2, Site(12, 6, 700))) as served:
        yield served


def closed_now() -> str:
    """A window from an hour ago to two hours from now."""
    at = datetime.now(UTC)
    return f"{at - timedelta(hours=1):%H:%M}-{at + timedelta(hours=2):%H:%M}"


def set_window(crawls: Crawls, web: WebProcess, window: str, site: int = CLOSED) -> None:
    DomainService(crawls.database).configure(
        web.address.host(site), parse_assignments([f"window={window}"]), actor="ann"
    )


def opens_in(crawls: Crawls, web: WebProcess) -> timedelta:
    """How long all that there is to do on the closed domain waits."""
    found = crawls.value(
        "SELECT min(jd.not_before) - clock_timestamp() FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE d.domain = %s",
        web.address.host(CLOSED),
    )
    assert isinstance(found, timedelta)
    return found


def let_it_open(crawls: Crawls, web: WebProcess) -> None:
    """As if its time had come."""
    set_window(crawls, web, "")
    crawls.connection.execute("UPDATE job_domains SET not_before = clock_timestamp() WHERE not_before IS NOT NULL")


def test_a_closed_domain_is_left_alone_and_the_others_are_not(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    crawls.begin(web.url(CLOSED), web.url(OPEN), job="both")
    set_window(crawls, web, closed_now())
    crawls.crawl(web.url(CLOSED), web.url(OPEN), job="both")
    assert hits(web, CLOSED, since=since) == [], "not even for its robots.txt"
    assert crawls.domain(web.address.host(OPEN))["status"] == "exhausted"
    closed = crawls.domain(web.address.host(CLOSED))
    assert (closed["status"], closed["pages_crawled"], closed["last_crawled_at"]) == ("pending", 0, None)
    assert timedelta(hours=1) < opens_in(crawls, web) <= timedelta(hours=2)
    crawls.verify()
    let_it_open(crawls, web)
    crawls.crawl(web.url(CLOSED), web.url(OPEN), job="both")
    assert crawls.domain(web.address.host(CLOSED))["status"] == "exhausted"
    assert crawls.pages_of(web.address.host(CLOSED)) == len(web.expected(CLOSED))
    crawls.verify()


def test_a_domain_that_closes_during_a_visit_is_let_go_of(
    crawls: Crawls, web: WebProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "MAINTENANCE_POLL", 0.05)
    crawls.set(domains={"crawl_delay": 0.2})
    name = web.address.host(CLOSED)
    job = crawls.begin(web.url(CLOSED)).job
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.pages_of(name) >= 2, "the crawl to be under way")
        set_window(crawls, web, closed_now())
        worker.end()
    pages = crawls.pages_of(name)
    assert 2 <= pages < len(web.expected(CLOSED))
    assert crawls.held() == 0
    assert opens_in(crawls, web) > timedelta(hours=1)
    assert crawls.domain(name)["status"] == "active"
    crawls.verify()
    let_it_open(crawls, web)
    crawls.set(domains={"crawl_delay": 0})
    crawls.crawl(web.url(CLOSED))
    assert crawls.pages_of(name) == len(web.expected(CLOSED)), "where it was, and each page once"
    crawls.verify()


def test_a_window_at_another_time_is_no_hindrance(crawls: Crawls, web: WebProcess) -> None:
    at = datetime.now(UTC)
    crawls.begin(web.url(CLOSED))
    set_window(crawls, web, f"{at + timedelta(hours=2):%H:%M}-{at - timedelta(hours=2):%H:%M}")
    crawls.crawl(web.url(CLOSED))
    assert crawls.pages_of(web.address.host(CLOSED)) == len(web.expected(CLOSED))
    crawls.verify()


def test_tasks_wait_until_it_opens(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    settings = crawls.settings
    crawls.connection.execute("UPDATE crawl_jobs SET spec = spec || '{\"allow_private\": true}' WHERE kind = 'tasks'")
    desk = TaskService(crawls.database, factories.url_rules(settings), factories.new_domains(settings))
    task = desk.add(web.url(CLOSED), TaskOptions(priority=1), actor="test")
    set_window(crawls, web, closed_now())
    Scheduler(desk.rules, desk.defaults).tick(crawls.connection)
    with crawls.worker(None):
        wait_for(
            lambda: (
                crawls.value("SELECT bool_or(not_before > clock_timestamp()) FROM job_domains") and not crawls.held()
            ),
            "it to be put off",
        )
        assert opens_in(crawls, web) > timedelta(hours=1)
        assert (desk.show(task.id).status, hits(web, CLOSED, since=since)) == ("queued", [])
        let_it_open(crawls, web)
        wait_for(lambda: desk.show(task.id).status == "queued_parse", "the task to be fetched")
    assert [hit.path for hit in hits(web, CLOSED, since=since) if not hit.path.startswith("/robots")] == ["/"]
    crawls.verify()


def test_what_somebody_wrote_in_sql_that_is_no_window_is_not_heeded(crawls: Crawls, web: WebProcess) -> None:
    crawls.begin(web.url(OPEN))
    crawls.connection.execute("UPDATE domains SET maintenance_window = 'whenever I like'")
    crawls.crawl(web.url(OPEN))
    assert crawls.pages_of(web.address.host(OPEN)) == len(web.expected(OPEN))
    crawls.verify()


def test_explain_says_that_it_is_closed(crawls: Crawls, web: WebProcess, capsys: pytest.CaptureFixture[str]) -> None:
    crawls.begin(web.url(CLOSED), job="both")
    window = closed_now()
    set_window(crawls, web, window)
    assert crawls.command("explain", web.url(CLOSED)) == 0
    assert f"the domain is closed: {window}" in capsys.readouterr().out
