"""Tasks, crawled by a worker: what a standing worker makes of those that the schedule has queued."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import factories
from holdfast.archive.reader import ArchiveReader
from holdfast.control.scheduler import Scheduler, Ticked
from holdfast.crawler import visit
from holdfast.model.fetch_types import ParsedPage
from holdfast.parse.page_parser import PageParser
from holdfast.tasks.records import Task, TaskOptions
from holdfast.tasks.service import TaskService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for
from tests.support.pages import Pages, html, moved

PLAIN, SHUT, OTHER = range(3)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    special = {SHUT: Site(5, 4, 500, robots=Robots.DENY_ALL)}
    with WebProcess(Web(19, 3, Site(12, 6, 700), special)) as served:
        yield served


class Tasks:
    """Tasks of a test's store."""

    def __init__(self, crawls: Crawls) -> None:
        self.crawls = crawls
        settings = crawls.settings
        self.desk = TaskService(crawls.database, factories.url_rules(settings), factories.new_domains(settings))
        self._scheduler = Scheduler(self.desk.rules, self.desk.defaults)

    def add(self, url: str, **how: object) -> Task:
        return self.desk.add(url, TaskOptions(**how), actor="test")  # type: ignore[arg-type]

    def tick(self) -> Ticked:
        return self._scheduler.tick(self.crawls.connection)

    def get(self, task: Task) -> Task:
        return self.desk.show(task.id)

    def until(self, status: str, *tasks: Task) -> None:
        wait_for(lambda: {self.get(task).status for task in tasks} == {status}, f"tasks to be {status}")


@pytest.fixture
def tasks(crawls: Crawls) -> Tasks:
    crawls.set(domains={"crawl_delay": 0.01, "max_concurrent_requests": 1})  # so that their order can be told
    crawls.connection.execute("UPDATE crawl_jobs SET spec = spec || '{\"allow_private\": true}' WHERE kind = 'tasks'")
    return Tasks(crawls)


def test_tasks_are_fetched_kept_and_wait_to_be_parsed(tasks: Tasks, crawls: Crawls, web: WebProcess) -> None:
    since = now()
    urls = [page.url for page in web.expected(PLAIN)][:5]
    made = [tasks.add(url, priority=number + 1) for number, url in enumerate(urls)]
    assert tasks.tick() == Ticked(0, 5)
    with crawls.worker(None):
        tasks.until("queued_parse", *made)
    for task in map(tasks.get, made):
        assert (task.http_status_code, task.error_message, task.attempt) == (200, None, 1)
        assert task.archive is not None
        assert ArchiveReader(crawls.settings.data / "archive").read(task.archive.ref).body
    assert [hit.url for hit in pages(hits(web, since=since))] == urls  # by priority, and no link was followed
    domain = crawls.domain(web.address.host(PLAIN))
    assert (domain["status"], domain["next_crawl_after"], domain["pages_crawled"]) == ("pending", None, 5)
    history = [(event.from_status, event.to_status) for event in tasks.desk.history(made[0].id)[-1].events]
    assert history == [
        ("pending", "queued"),
        ("queued", "crawling"),
        ("crawling", "downloaded"),
        ("downloaded", "queued_parse"),
    ]
    crawls.verify()


def test_what_fails_for_good_and_what_is_tried_again(tasks: Tasks, crawls: Crawls, web: WebProcess) -> None:
    gone = tasks.add(web.url(PLAIN) + "no/such/page")
    shut = tasks.add(web.url(SHUT) + "a")
    nowhere = tasks.add("http://no-such-host.invalid/")
    tasks.tick()
    with crawls.worker(None):
        tasks.until("failed", gone, shut)
        tasks.until("pending", nowhere)
    assert tasks.get(gone).http_status_code == 404
    assert "not_found" in str(tasks.get(gone).error_message)
    assert "robots_denied" in str(tasks.get(shut).error_message)
    again = tasks.get(nowhere)
    assert (again.retry_count, again.scheduled_at > again.updated_at) == (1, True)
    assert "no_such_host" in str(again.error_message)
    assert {row[0] for row in crawls.rows("SELECT status::text FROM domains")} == {"pending"}
    crawls.verify()


def test_the_same_url_again_and_again(tasks: Tasks, crawls: Crawls, web: WebProcess) -> None:
    """Its row of the frontier is used again; an exhausted domain stays exhausted, and its tasks are crawled all the same."""
    crawls.crawl(web.url(PLAIN), job="whole site")
    name = web.address.host(PLAIN)
    assert crawls.domain(name)["status"] == "exhausted"
    left_alone = crawls.domain(name)["next_crawl_after"]
    task = tasks.add(web.url(PLAIN))
    with crawls.worker(None):
        for attempt in (1, 2, 3):
            tasks.tick()
            tasks.until("queued_parse", task)
            assert tasks.get(task).attempt == attempt
            tasks.desk.cancel(task.id, actor="test")
            tasks.desk.restart(task.id, actor="test")
    assert crawls.domain(name)["status"] == "exhausted"
    assert crawls.domain(name)["next_crawl_after"] == left_alone
    assert tasks.get(task).archive is not None
    crawls.verify()


def test_what_a_person_did_meanwhile_stands_and_is_not_asked_for(tasks: Tasks, crawls: Crawls, web: WebProcess) -> None:
    since = now()
    first, second = (page.url for page in web.expected(OTHER)[:2])
    paused, cancelled = tasks.add(first), tasks.add(second)
    tasks.tick()
    tasks.desk.pause(paused.id, actor="test")
    tasks.desk.cancel(cancelled.id, actor="test")
    with crawls.worker(None):
        wait_for(
            lambda: not crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'"),
            "the frontier to be empty",
        )
        assert not pages(hits(web, since=since))
        tasks.desk.resume(paused.id, actor="test")
        tasks.tick()
        tasks.until("queued_parse", paused)
    assert tasks.get(cancelled).status == "cancelled"
    assert [hit.url for hit in pages(hits(web, since=since))] == [first]
    crawls.verify()


def test_a_task_comes_before_the_job_that_crawls_its_domain(
    tasks: Tasks, crawls: Crawls, web: WebProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "TASK_POLL", 0.1)
    crawls.set(domains={"crawl_delay": 0.5}, crawl={"slice": 3600})
    assert crawls.command("jobs", "create", "long", web.url(PLAIN), "--allow-private") == 0
    with crawls.worker(None):
        wait_for(lambda: crawls.total() >= 2, "the job to be under way")
        task = tasks.add(web.expected(PLAIN)[-1].url, priority=1)
        tasks.tick()
        tasks.until("queued_parse", task)
        assert crawls.value("SELECT sum(waiting) FROM job_domains") > 0
    crawls.verify()


def test_a_redirect_is_followed_to_whatever_domain_it_leads_to(tasks: Tasks, crawls: Crawls) -> None:
    """By the schedule, a hop a tick. What it leads to is the page of the task, whose own URL stays what it was."""
    with Pages() as site:
        start, end = site.url("/start", "a.localhost"), site.url("/end", "b.localhost")
        nowhere, circle = site.url("/nowhere", "a.localhost"), site.url("/circle", "a.localhost")
        site.answers |= {"/start": moved(end), "/start?twin": moved(end), "/end": html(text="here")}
        site.answers |= {"/nowhere": moved("app://somewhere")}
        site.answers |= {f"/circle{'x' * n}": moved(f"/circle{'x' * (n + 1)}") for n in range(9)}
        led, lost, endless = (tasks.add(url) for url in (start, nowhere, circle))
        twin = tasks.add(f"{start}?twin")  # led to the same page, at another time
        with crawls.worker(None):

            def ticked(status: str, task: Task) -> bool:
                tasks.tick()
                return tasks.get(task).status == status

            wait_for(lambda: ticked("queued_parse", led), "it to arrive")
            wait_for(lambda: ticked("queued_parse", twin), "its twin to arrive")
            wait_for(lambda: ticked("failed", endless), "the endless one to be given up")
    assert (tasks.get(led).url, tasks.get(led).http_status_code) == (start, 200)
    assert tasks.get(lost).status == "failed"
    assert "too_many_redirects" in str(tasks.get(endless).error_message)
    crawls.verify()


def test_a_task_that_is_queued_anew_while_its_url_is_in_a_window_is_served(
    tasks: Tasks, crawls: Crawls, web: WebProcess
) -> None:
    """The outcome that is on its way was for the attempt before."""
    slow, task = (tasks.add(page.url) for page in web.expected(PLAIN)[:2])
    tasks.tick()
    crawls.set(domains={"crawl_delay": 1})
    crawls.connection.execute("UPDATE domains SET crawl_delay_seconds = 1")
    with crawls.worker(None):
        wait_for(lambda: tasks.get(task).status == "crawling", "it to be taken")
        tasks.desk.pause(task.id, actor="test")
        tasks.desk.resume(task.id, actor="test")
        tasks.tick()
        tasks.until("queued_parse", slow, task)
    crawls.verify()


def test_a_page_that_the_database_refuses_costs_its_task_and_no_other(
    tasks: Tasks, crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is taken apart, and what was fetched for tasks is written down as such: each hears of its end, the domain does not."""
    parse = PageParser.parse

    async def poison(self: PageParser, body: bytes, **more: Any) -> ParsedPage:
        parsed = await parse(self, body, **more)
        if b"poison" in body:
            parsed.title = "a\0b"
        return parsed

    monkeypatch.setattr(PageParser, "parse", poison)
    crawls.set(flush={"pages": 5, "seconds": 60})  # all of them in one batch
    with Pages({f"/{i}": html(text="poison" if i == 2 else "words") for i in range(5)}) as site:
        made = [tasks.add(site.url(f"/{i}"), max_retries=0) for i in range(5)]
        tasks.tick()
        with crawls.worker(None):
            wait_for(
                lambda: {tasks.get(task).status for task in made} <= {"queued_parse", "failed"}, "all to be heard of"
            )
    bad = made.pop(2)
    assert tasks.get(bad).status == "failed"
    assert "cannot be stored" in str(tasks.get(bad).error_message)
    assert {tasks.get(task).status for task in made} == {"queued_parse"}
    assert crawls.value("SELECT status::text FROM domains") == "pending"
    crawls.verify()
