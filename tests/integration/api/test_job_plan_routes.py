"""Plan, retry, depths, log and the list by reason through the API and its client, with what they do in the store."""

import pytest

from holdfast.db.connection import Database
from holdfast.jobs.records import PagesFrom
from tests.support.api import Api
from tests.support.crawled import crawl_a_little
from tests.support.crawls import wait_for
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def crawled(api: Api, database: Database, store: Store) -> Api:
    crawl_a_little(database, store)
    return api


def test_a_job_is_planned_before_it_is_made(api: Api, store: Store) -> None:
    body = {"urls": ["https://a.example/", "nonsense://x"], "spec": {"max_pages_per_domain": 60, "delay": 2}}
    answer = api.admin.post("/api/jobs/plan", json=body)
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["pages"], plan["seconds"], plan["bad_seeds"][0]["line"], plan["existing"]) == (60, 120.0, 2, False)
    assert plan["listed"][0]["pages_from"] == PagesFrom.LIMIT
    assert store.value("SELECT count(*) FROM crawl_jobs WHERE name NOT IN ('default', 'tasks')") == 0
    assert api.admin.post("/api/jobs/plan", json={**body, "name": "default"}).status_code == 409
    assert api.admin.post("/api/jobs/plan", json={"urls": ["nonsense://x"]}).status_code == 422
    assert api.admin.post("/api/jobs/plan", json={"urls": []}).status_code == 422


def test_an_existing_job_is_planned(crawled: Api) -> None:
    left = crawled.admin.get("/api/jobs/default/plan").json()
    whole = crawled.admin.get("/api/jobs/default/plan", params={"again": True}).json()
    assert (left["existing"], left["pages"] < whole["pages"]) == (True, True)
    assert crawled.admin.get("/api/jobs/nothing/plan").status_code == 404


def test_urls_of_a_reason_are_listed_and_retried(crawled: Api, store: Store) -> None:
    client = crawled.admin
    counts = {left["reason"]: left["count"] for left in client.get("/api/jobs/default/summary").json()["not_crawled"]}
    for reason, count in counts.items():
        listed = client.get("/api/frontier/urls", params={"job": "default", "reason": reason}).json()["items"]
        assert len(listed) == count, reason
    assert client.get("/api/frontier/urls", params={"reason": "nothing"}).status_code == 422
    tried = client.post("/api/jobs/default/retry", json={"reason": "not_found", "dry_run": True}).json()
    assert (tried["urls"], tried["dry_run"], tried["by_reason"]) == (1, True, {"not_found": 1})
    assert store.value("SELECT state::text FROM url_frontier WHERE url LIKE '%%/gone'") == "done"
    done = client.post("/api/jobs/default/retry", json={"reason": "not_found"}).json()
    assert (done["urls"], done["dry_run"], done["finished"]) == (1, False, True)
    assert store.value("SELECT state::text FROM url_frontier WHERE url LIKE '%%/gone'") == "waiting"
    refused = client.post("/api/jobs/default/retry", json={"reason": "out_of_scope"})
    assert (refused.status_code, "holdfast jobs set default scope=" in refused.json()["detail"]) == (409, True)
    by_name = client.post("/api/jobs/default/retry", json={"urls": ["https://example.com/private/x"]}).json()
    assert by_name["by_reason"] == {"robots_denied": 1}
    assert client.post("/api/jobs/default/retry", json={"urls": ["x"] * 1_001}).status_code == 422
    assert_invariants(store.connection)


def test_many_urls_are_retried_after_the_answer(crawled: Api, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.frontier.service.RETRIED_AT_ONCE", 0)
    done = crawled.admin.post("/api/jobs/default/retry", json={"reason": "not_found"}).json()
    assert (done["urls"], done["finished"]) == (1, False)
    wait_for(lambda: store.value("SELECT state = 'waiting' FROM url_frontier WHERE url LIKE '%%/gone'"), "the rest")


def test_depths_and_log_of_a_job(crawled: Api) -> None:
    client = crawled.admin
    depths = client.get("/api/jobs/default/depths").json()
    assert (depths["estimated"], sum(one["pages"] for one in depths["depths"])) == (False, 3)
    client.post("/api/jobs/default/pause")
    client.post("/api/jobs/default/resume")
    first = client.get("/api/jobs/default/log", params={"limit": 1})
    assert [one["text"] for one in first.json()["items"]] == ["resumed"]
    second = client.get(first.links["next"]["url"]).json()
    assert [one["text"] for one in second["items"]] == ["paused"]
    assert client.get("/api/jobs/default/log", params={"cursor": "bm8"}).status_code == 422
    for path in ("depths", "log"):
        assert client.get(f"/api/jobs/nothing/{path}").status_code == 404
