"""What a worker does at this moment can be seen in the store, from any process: requests in flight, and why a domain waits."""

from datetime import timedelta
from itertools import count

import pytest

from holdfast.crawler import leases, worker
from holdfast.db import workers
from holdfast.model.activity import Activity, WaitKind
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html

SILENCE = timedelta(minutes=2)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker does is looked at every quarter of a second."""
    monkeypatch.setattr(leases, "ACTIVITY_SECONDS", 0.25)


def test_requests_in_flight_and_the_reason_of_a_wait_are_seen(crawls: Crawls) -> None:
    slow = Page(html().body, delay=1.5, headers={"Content-Type": "text/html"})
    busy = Page(b"later", 429, {"Retry-After": "30", "Content-Type": "text/plain"})
    crawls.set(crawl={"patience": 60})
    with Pages({"/": html("/slow"), "/slow": slow, "busy.localhost/": busy}) as site:
        job = crawls.begin(site.url("/slow"), site.url("/", "busy.localhost")).job

        def activity() -> Activity:
            return workers.activities(crawls.connection, silence=SILENCE).get("w1", Activity())

        def in_flight(url: str) -> list[int]:
            """The jobs of requests for a URL; others may be in flight beside it."""
            found = activity()
            assert sum(found.requests.values()) >= len(found.fetching)
            return [request.job_id for request in found.fetching if request.url == url]

        with crawls.worker(job):
            wait_for(lambda: in_flight(site.url("/slow")), "the slow request in flight")
            assert in_flight(site.url("/slow")) == [job.id]
            wait_for(lambda: activity().waits, "a domain that waits")
            (wait,) = activity().waits
            assert (wait.domain, wait.kind, wait.job_id) == (f"busy.localhost:{site.port}", WaitKind.BACK_OFF, job.id)
            assert wait.seconds is not None
            assert 20 < wait.seconds <= 30
            assert "429" in wait.detail
            wait_for(lambda: not activity().requests, "the slow page")
            before = crawls.value("SELECT activity_at FROM workers")
            wait_for(lambda: crawls.value("SELECT clock_timestamp() - %s > '1 s'", before), "some time")
            assert crawls.value("SELECT activity_at FROM workers") == before, "nothing changes, so nothing is written"
        assert workers.activities(crawls.connection, silence=SILENCE) == {}


def test_a_server_that_is_gone_is_named_with_what_it_said(crawls: Crawls) -> None:
    crawls.set(crawl={"patience": 60}, politeness={"retry_delay": 5, "circuit_failures": 2})
    headers = {"Content-Type": "text/html", "Connection": "close"}  # a kept connection would outlive the server
    answers = {"/": html(*(f"/{n}" for n in range(20)))} | {f"/{n}": html() for n in range(20)}
    with Pages({path: Page(page.body, headers=headers) for path, page in answers.items()}) as site:
        job = crawls.begin(site.url("/"), delay=0.1).job
        thread = crawls.worker(job)
        thread.__enter__()
        wait_for(lambda: crawls.total() >= 2, "two pages")
    try:  # the server is down
        wait_for(
            lambda: (
                (found := workers.activities(crawls.connection, silence=SILENCE).get("w1", Activity()).waits)
                and found[0].kind is WaitKind.CIRCUIT
                and found[0].seconds is not None
            ),
            "the circuit to open",
            20,
        )
        (wait,) = workers.activities(crawls.connection, silence=SILENCE)["w1"].waits
        assert (wait.domain, wait.kind) == (f"localhost:{site.port}", WaitKind.CIRCUIT)
        assert "refused" in wait.detail.lower() or "connect" in wait.detail.lower()
    finally:
        thread.__exit__(None, None, None)


def test_a_fault_in_looking_at_the_worker_costs_no_crawl(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count()

    def fails(*_: object) -> Activity:
        raise TypeError(f"look {next(looks)}")

    monkeypatch.setattr(worker, "observe", fails)
    slow = Page(html().body, delay=1, headers={"Content-Type": "text/html"})
    with Pages({"/": html("/slow"), "/slow": slow}) as site:
        assert crawls.crawl(site.url("/"), delay=0).completed
    assert next(looks) > 1
