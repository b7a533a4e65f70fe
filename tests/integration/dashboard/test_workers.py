"""Workers, runs and claims in the dashboard: lists, one worker, release of claims, silent runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support.api import Api, serving, settings
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.page_reader import PageReader

ACTIVITY = (
    '{"requests": {"1": 1}, "fetching": [{"url": "https://a.example/<lamp>", "job": 1, "seconds": 1}], "waiting": 1, "waits": '
    '[{"domain": "a.example", "job": 1, "kind": "back_off", "seconds": 9, "detail": "HTTP 429"}]}'
)


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    with serving(database, settings(tmp_path)) as served:
        yield served


@pytest.fixture
def operator(api: Api) -> PageReader:
    return PageReader.of(api, Role.ADMIN)


@pytest.fixture
def viewer(api: Api) -> PageReader:
    return PageReader.of(api, Role.USER)


@pytest.fixture
def at_work(store: Store) -> Store:
    """A worker that fetches and waits, one that died with a domain, and a run of each."""
    store.seed("a.example/", "b.example/", "c.example/")
    for name, age in (("w-alive", "1 s"), ("w-dead", "2 h")):
        store.connection.execute(
            "INSERT INTO workers (name, host, pid, heartbeat_at, activity, activity_at) VALUES (%s, 'host-1', 7, "
            "clock_timestamp() - %s::interval, %s, clock_timestamp())",
            (name, age, ACTIVITY),
        )
        store.connection.execute(
            "INSERT INTO crawl_runs (worker, heartbeat_at, pages_crawled, errors) VALUES (%s, clock_timestamp() - %s::interval, 42, 3)",
            (name, age),
        )
    store.claim("w-alive", 2)
    store.claim("w-dead", 1)
    return store


def test_a_worker_that_is_paused_says_why_and_the_overview_before_its_charts(viewer: PageReader, store: Store) -> None:
    activity = (
        '{"requests": {}, "fetching": [], "waiting": 0, "waits": [], "problems": [{"kind": "disk_full", "text": "fetching is paused: '
        'the disk <b> is full", "since": "2026-01-01T00:00:00+00:00", "value": 1, "about": "archive"}]}'
    )
    store.connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at, activity, activity_at) VALUES ('w1', 'h', 7, clock_timestamp(), %s, "
        "clock_timestamp())",
        (activity,),
    )
    store.connection.execute("INSERT INTO crawl_runs (worker, heartbeat_at) VALUES ('w1', clock_timestamp())")
    assert "paused: disk full" in viewer.text("/workers")
    shown = viewer.text("/workers/w1")
    assert "Fetching is paused: the disk <b> is full." in shown
    assert "there is nothing to do" not in shown
    overview = viewer.text("/overview")
    assert overview.index("Fetching is paused: the disk <b> is full; the crawl goes on by itself.") > 0
    assert overview.index("Fetching is paused") < overview.index("Successful requests")


def test_without_a_worker_the_pages_say_how_to_start_one(viewer: PageReader) -> None:
    assert "No worker has run yet." in viewer.text("/workers")
    assert "holdfast worker" in viewer.text("/workers")
    assert "No worker has run yet." in viewer.text("/workers/runs")
    assert "No domain is held." in viewer.text("/workers/claims")


@pytest.mark.usefixtures("at_work")
def test_the_list_shows_what_workers_do_and_marks_silent_ones(viewer: PageReader) -> None:
    shown = viewer.text("/workers")
    assert "w-alive" in shown
    assert "https://a.example/<lamp>" in shown
    assert "1 domain waits" in shown
    assert "w-dead silent" in shown
    assert "2 h ago" in shown
    page = viewer.get("/workers")
    assert "<lamp>" not in page
    assert page.count("state-silent") == 1
    assert 'data-live="/live/workers"' in page
    alive = viewer.text("/workers?alive=true")
    assert ("w-alive" in alive, "w-dead" in alive) == (True, False)
    silent = viewer.text("/workers?alive=false")
    assert ("w-alive" in silent, "w-dead" in silent) == (False, True)
    regions = viewer.client.get("/regions/workers").json()
    assert set(regions) == {"workers-figures", "workers-list"}
    assert "<form" not in str(regions)


@pytest.mark.usefixtures("at_work")
def test_the_page_of_a_worker_shows_its_claims_runs_and_waits(viewer: PageReader) -> None:
    shown = viewer.text("/workers/w-alive")
    assert "a.example asked for fewer requests (HTTP 429)" in shown
    assert "1 request in flight; 1 domain waits." in shown
    page = viewer.get("/workers/w-alive")
    assert page.count('href="/domains/') >= 2
    assert 'data-live="/live/worker?name=w-alive"' in page
    assert "Release its claims" not in shown
    assert "the process died, is frozen, or cannot reach the database" in viewer.text("/workers/w-dead")
    assert "There is no worker called 'w-gone'." in viewer.text("/workers/w-gone", 404)
    assert viewer.client.get("/regions/worker?name=w-gone").status_code == 404


@pytest.mark.usefixtures("at_work")
def test_runs_and_claims_are_filtered(viewer: PageReader) -> None:
    runs = viewer.text("/workers/runs?worker=w-dead&status=running")
    assert ("w-dead running heartbeat" in runs, "w-alive" in runs) == (True, False)
    assert "No run matches." in viewer.text("/workers/runs?status=failed")
    assert "A run is running, completed, failed" in viewer.text("/workers/runs?status=odd", 422)
    assert viewer.get("/workers/runs?job=nonsuch", 404)
    claims = viewer.get("/workers/claims?worker=w-alive")
    assert claims.count('<th scope="row">') == 2
    assert "No claim matches." in viewer.text("/workers/claims?expired=true")
    assert viewer.get("/workers/claims?expired=false").count('<th scope="row">') == 3


def test_the_claims_of_a_worker_are_released_after_a_page_says_how_many(operator: PageReader, at_work: Store) -> None:
    page = "/workers/w-alive/release"
    asked = operator.text(page)
    assert "Takes 2 domains away from w-alive" in asked
    assert "The worker goes on" in asked
    done = operator.send(page, page)
    assert "Took 2 domains away from w-alive." in done
    assert at_work.value("SELECT count(*) FROM domains WHERE claimed_by = 'w-alive'") == 0
    assert at_work.value("SELECT count(*) FROM domains WHERE claimed_by = 'w-dead'") == 1
    assert "w-alive holds no domain." in operator.text(page)
    assert_invariants(at_work.connection)


def test_the_claim_on_one_domain_is_released_after_a_page_says_whose(operator: PageReader, store: Store) -> None:
    store.seed("a.example/", "b.example/")
    store.claim("w1", 2)
    page = "/workers/claims/release?domain=a.example"
    assert f'href="{page}"' in operator.get("/domains/a.example")
    assert "Takes a.example away from worker w1" in operator.text(page)
    assert "a.example was taken away from its worker." in operator.send(page, "/workers/claims/release")
    assert (store.row("a.example")["claimed_by"], store.row("b.example")["claimed_by"]) == (None, "w1")
    assert "No worker holds a.example." in operator.text(page)
    assert f'href="{page}"' not in operator.get("/domains/a.example")
    assert_invariants(store.connection)


def test_expired_claims_are_released(operator: PageReader, at_work: Store) -> None:
    ids = at_work.connection.execute("SELECT min(id) FROM domains WHERE claimed_by IS NOT NULL GROUP BY claimed_by")
    at_work.expire(*(row[0] for row in ids.fetchall()))
    assert "1 expired" in operator.text("/workers")
    done = operator.send("/workers", "/workers/release-expired")
    assert "Released 2 claims." in done
    assert at_work.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 1
    assert "nothing was released" in operator.send("/workers", "/workers/release-expired")


def test_silent_runs_are_closed(operator: PageReader, at_work: Store) -> None:
    assert "1 run now, with 60 minutes." in operator.text("/workers")
    assert "No run is without a heartbeat for 600 minutes." in operator.send(
        "/workers", "/workers/close-silent-runs", minutes="600"
    )
    assert "Marked 1 run without a heartbeat for 60 minutes as failed." in operator.send(
        "/workers", "/workers/close-silent-runs"
    )
    assert at_work.value("SELECT status::text FROM crawl_runs WHERE worker = 'w-dead'") == "failed"
    for minutes in ("0", "soon", ""):
        assert "must be a whole number" in operator.refused("/workers", "/workers/close-silent-runs", minutes=minutes)


def test_a_user_may_look_and_release_nothing(viewer: PageReader, at_work: Store) -> None:
    assert "Upkeep" not in viewer.text("/workers")
    assert "Only an administrator may do this." in viewer.text("/workers/w-alive/release")
    assert '<form action="/workers' not in viewer.get("/workers/w-alive/release")
    fields = {"csrf": viewer.csrf(), "minutes": "1", "domain": "a.example"}
    for action in (
        "/workers/release-expired",
        "/workers/close-silent-runs",
        "/workers/claims/release",
        "/workers/w-alive/release",
    ):
        assert viewer.post(action, fields).status_code == 403, action
    assert at_work.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 3
