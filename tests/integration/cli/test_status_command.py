"""`holdfast status`, and the figures of a crawl for its live display."""

import re

import pytest

from holdfast.db import workers
from holdfast.db.connection import Database
from holdfast.errors import NotFound
from holdfast.jobs.queries import progress
from holdfast.model.activity import Activity, InFlightRequest, VisitWait, WaitKind
from holdfast.model.domain import Event
from tests.support.cli import Cli
from tests.support.crawled import Crawl, crawl_a_little
from tests.support.factories import Store


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def test_an_empty_store_says_what_to_do(cli: Cli) -> None:
    answer = cli("status")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "There is no crawl yet; `holdfast crawl URL` starts one.\n"
    assert cli("status", "--json").json["domains"] == dict.fromkeys(
        ("pending", "active", "exhausted", "blocked", "unreachable"), 0
    )


def test_how_things_stand(cli: Cli, crawl: Crawl) -> None:
    crawl.store.connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'h', 1)")
    crawl.store.connection.execute("UPDATE crawl_runs SET in_window = 7")
    crawl.store.connection.execute("UPDATE crawls SET max_pages = 1000, pages_granted = 3")
    crawl.store.claim("w1")
    answer = cli("status")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].split() == ["JOB", "STATE", "PAGES", "ERRORS", "WAITING", "DOMAINS"]
    assert lines[2].split("  ")[0] == "default"
    assert re.search(r"default  pending, crawl running  3 of 1,000 +1 +2 +2$", answer.out, re.MULTILINE)
    assert re.search(r"^Domains +1 pending, 1 active$", answer.out, re.MULTILINE)
    assert re.search(r"^Pace +0\.1 pages/s, 0\.0 errors/s, \d+ B/s in the last minute$", answer.out, re.MULTILINE)
    assert re.search(r"^Workers +1 alive, 1 domain held, 7 URLs in memory$", answer.out, re.MULTILINE)
    assert re.search(r"^Database +\d+\.\d MB$", answer.out, re.MULTILINE)
    assert re.search(r"^Next +claim expires in 30 min \(.+ UTC\); 1 domain in all$", answer.out, re.MULTILINE)
    assert re.search(r"^ +another attempt in 60 min \(.+ UTC\); 1 domain in all$", answer.out, re.MULTILINE)
    told = cli("status", "--json").json
    assert told["pages_per_second"] == 3 / 60
    assert told["jobs"][0]["waiting"] == 2
    assert [worker["name"] for worker in told["workers"]] == ["w1"]


def test_silent_workers_and_blocked_domains_are_told(cli: Cli, crawl: Crawl) -> None:
    (claim,) = crawl.store.claim("w\x1b9")
    crawl.store.connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES (E'w\\x1b9', 'h', 1, now() - interval '1 h')"
    )
    answer = cli("status")
    assert answer.err.startswith("Worker w\\x1b9 was last heard of at ")
    assert answer.err.endswith(
        " and holds 1 domain; others take over within 150 s, or when its leases end, if it is frozen.\n"
    )
    assert re.search(r"^Workers +none is running$", answer.out, re.MULTILINE)
    crawl.store.release(claim, "w\x1b9", event=Event.FORBIDDEN)
    crawl.store.connection.execute("UPDATE domains SET next_crawl_after = 'infinity' WHERE status = 'blocked'")
    crawl.store.connection.execute("UPDATE crawl_log SET crawled_at = crawled_at - interval '5 min'")
    answer = cli("status")
    assert re.search(r"^Stay blocked +1 domain, until `holdfast domains unblock`$", answer.out, re.MULTILINE)
    assert re.search(r"^Pace +nothing in the last minute$", answer.out, re.MULTILINE)


def test_the_figures_of_a_crawl(crawl: Crawl) -> None:
    store = crawl.store
    store.claim(crawl.worker)
    figures = progress.crawl_progress(store.connection, store.job, crawl.crawl_id)
    assert (figures.state, figures.pages, figures.errors, figures.bytes) == ("running", 3, 1, 900)
    assert (figures.runs, figures.held, figures.max_pages) == (1, 1, None)
    spread = figures.spread
    assert spread is not None
    assert spread.domains == {"pending": 1, "active": 1}
    assert (spread.discovered, spread.waiting, spread.done, spread.denied, spread.failed) == (8, 2, 4, 2, 0)
    assert (spread.ready, spread.spent, spread.finished, spread.next_at is not None) == (0, 0, 0, True)
    assert progress.crawl_progress(store.connection, store.job, crawl.crawl_id, spread=False).spread is None
    with pytest.raises(NotFound):
        progress.crawl_progress(store.connection, store.job, 999)
    assert progress.domain_breakdown(store.connection, 999) == progress.DomainBreakdown()


def test_pages_that_workers_of_a_server_crawled_count_for_the_crawl_of_a_command(crawl: Crawl) -> None:
    """Their runs serve all jobs, and so belong to no crawl."""
    store = crawl.store
    store.connection.execute("UPDATE crawl_runs SET crawl_id = NULL, job_id = NULL")
    assert progress.crawl_progress(store.connection, store.job, crawl.crawl_id).pages == 3


def test_what_runs_now_is_told(cli: Cli, crawl: Crawl) -> None:
    store = crawl.store
    workers.acquire_name(store.connection, crawl.worker)
    waits = (VisitWait("b.example", store.job, WaitKind.CIRCUIT, 12.0, "Connection refused: Failed to connect"),) * 9
    fetching = (InFlightRequest("https://a.example/\x1b", store.job, 0.5),)
    workers.save_activity(store.connection, crawl.worker, Activity({store.job: 3}, fetching, 9, waits))
    out = cli("status").out
    assert re.search(
        rf"^Fetching +3 requests in flight\n +https://a.example/\ufffd \({crawl.worker}\)$", out, re.MULTILINE
    )
    told = r"^Waits +b.example does not answer \(connection refused\), next attempt in 1[012] s \(job default\)$"
    assert re.search(told, out, re.MULTILINE)
    assert re.search(r"^ +and 4 more$", out, re.MULTILINE)
    (worker,) = [worker for worker in cli("status", "--json").json["workers"] if worker["name"] == crawl.worker]
    assert worker["activity"]["requests"] == {str(store.job): 3}
