"""What a job does at this moment and what it waits for, whichever process crawls it."""

from datetime import timedelta

import pytest

from holdfast.control.explain import Explainer
from holdfast.db import crawls as crawl_rows
from holdfast.db import jobs, runs, workers
from holdfast.db.connection import Database
from holdfast.errors import NotFound
from holdfast.jobs.live import LiveJob, LiveJobReader
from holdfast.jobs.queries import actions
from holdfast.jobs.service import JobService
from holdfast.model.activity import Activity, InFlightRequest, VisitWait, WaitKind
from holdfast.model.domain import Event
from holdfast.model.job import JobAction, JobSpec
from holdfast.model.url import UrlRules
from tests.support.crawls import Crawls, wait_for
from tests.support.factories import Store
from tests.support.pages import Page, Pages, html


def look(database: Database, job_id: int) -> LiveJob:
    return LiveJobReader(database, job_id).read()


def told(live: LiveJob) -> list[str]:
    return [wait.text(live.figures.now) for wait in live.waits]


def running(store: Store, worker: str, job_id: int | None = None) -> None:
    """A worker that serves this job, or all."""
    workers.acquire_name(store.connection, worker)
    runs.begin(store.connection, worker=worker, job_id=job_id)


def test_a_pending_job_says_what_it_waits_for(database: Database, store: Store) -> None:
    store.seed("a.example")
    live = look(database, store.job)
    assert told(live) == ["no worker is running; `holdfast serve` or `holdfast worker` starts one"]
    assert (live.figures.state, live.figures.waiting, live.figures.workers) == ("pending", 1, 0)
    with store.connection.transaction():
        actions.act(store.connection, store.job, JobAction.PAUSE)
    assert told(look(database, store.job)) == ["job default is paused; `holdfast jobs resume default` resumes it"]
    with store.connection.transaction():
        actions.act(store.connection, store.job, JobAction.RESUME)
    running(store, "w9")
    assert told(look(database, store.job)) == []


def test_a_job_that_is_scheduled_says_when(database: Database, store: Store) -> None:
    with store.connection.transaction():
        at = jobs.now(store.connection) + timedelta(hours=6)
        jobs.set_schedule(store.connection, store.job, "6h", at)
    (wait,) = told(look(database, store.job))
    assert wait == f"job default is scheduled (6h), until {at:%Y-%m-%d %H:%M} UTC"


def test_a_job_that_was_deleted_is_not_there(database: Database) -> None:
    with pytest.raises(NotFound, match="There is no job 77 any more"):
        look(database, 77)


def test_a_domain_that_is_held_for_another_job_is_named(database: Database, store: Store) -> None:
    store.seed("a.example")
    other = crawl_rows.create(store.connection, name="demo", spec=JobSpec(), fingerprint=None).id
    store.connection.execute(
        "INSERT INTO job_domains (domain_id, job_id, discovered, waiting) SELECT id, %s, 1, 1 FROM domains", (other,)
    )
    running(store, "w1", store.job)
    running(store, "w2")
    store.claim("w1")
    assert told(look(database, other)) == ["waits for job default on a.example; jobs on one domain take turns"]
    assert told(look(database, store.job)) == []


def test_waits_of_workers_and_of_the_store_are_told_with_trouble_first(database: Database, store: Store) -> None:
    store.seed("a.example", "b.example", "c.example")
    (claim,) = store.claim()
    running(store, "w1")
    store.release(claim, event=Event.FORBIDDEN)
    workers.save_activity(
        store.connection,
        "w1",
        Activity(
            {store.job: 2, 99: 5},
            (InFlightRequest("https://c.example/x", store.job, 0.5), InFlightRequest("https://d.example/", 99, 9.0)),
            3,
            (
                VisitWait("c.example", store.job, WaitKind.DELAY, 9.0),
                VisitWait("b.example", store.job, WaitKind.CIRCUIT, 12.0, "Connection refused: Failed to connect"),
                VisitWait("d.example", 99, WaitKind.CIRCUIT, 12.0),
            ),
        ),
    )
    live = look(database, store.job)
    assert (live.requests, [fetch.url for fetch in live.fetching]) == (2, ["https://c.example/x"])
    blocked, circuit, delay = told(live)
    assert blocked.startswith("a.example is blocked (")
    assert "`holdfast domains unblock a.example`" in blocked
    assert circuit.startswith("b.example does not answer (connection refused), next attempt in 1")
    assert delay.startswith("c.example: the delay between two requests, next request in ")
    assert [wait.meant for wait in live.waits] == [False, False, True]


def test_a_watcher_of_the_api_hears_the_same_reasons(database: Database, store: Store) -> None:
    store.seed("b.example")

    def progress() -> tuple[int, list[str]]:
        found = JobService(database, "").progress([store.job])[store.job]
        return found.requests, found.waits

    assert progress() == (0, ["no worker is running; `holdfast serve` or `holdfast worker` starts one"])
    running(store, "w1")
    assert progress() == (0, [])
    wait = VisitWait("b.example", store.job, WaitKind.BACK_OFF, 12.0, "HTTP 429")
    workers.save_activity(store.connection, "w1", Activity({store.job: 4}, (), 1, (wait,)))
    assert progress() == (4, ["b.example asked for fewer requests (HTTP 429)"]), "without the time, which changes"


def test_explain_says_the_same_of_a_domain_that_is_held(database: Database, store: Store) -> None:
    store.seed("b.example")
    store.claim("w1")
    running(store, "w1")
    wait = VisitWait("b.example", store.job, WaitKind.CIRCUIT, 12.0, "Connection refused: Failed to connect")
    workers.save_activity(store.connection, "w1", Activity({}, (), 1, (wait,)))
    story = Explainer(database, UrlRules()).domain("b.example")
    (told,) = story.work[0].waits
    assert told.what == "b.example does not answer (connection refused)"
    assert told.until is not None
    assert 10 < (told.until - story.now).total_seconds() <= 12


def test_the_figures_count_what_a_worker_fetches_that_serves_all_jobs(crawls: Crawls) -> None:
    refused = Page(b"", 500, {"Content-Type": "text/html"})
    crawls.set(politeness={"retries": 0})
    with Pages({"/": html("/a", "/b"), "/a": html(), "/b": refused}) as site:
        job = crawls.begin(site.url("/"), job="news").job
        reader = LiveJobReader(crawls.database, job.id)
        with crawls.worker(None):
            wait_for(lambda: reader.read().figures.errors, "all pages")
        live = reader.read()
    figures = live.figures
    assert (figures.pages, figures.pages_in_all, figures.errors, figures.waiting) == (2, 2, 1, 0)
    assert figures.bytes > 0
    assert list(live.causes.values()) == [1]


def test_a_job_that_only_waits_for_parsers_says_so(crawls: Crawls) -> None:
    with Pages({"/": html("/a"), "/a": html()}) as site:
        assert crawls.crawl(site.url(), job="site", markdown=True).completed
    job = jobs.find(crawls.connection, "site")
    assert told(look(crawls.database, job)) == []
    crawls.connection.execute("UPDATE page_parses SET due = true")
    assert told(look(crawls.database, job)) == ["2 pages are fetched and wait for their parsers"]
