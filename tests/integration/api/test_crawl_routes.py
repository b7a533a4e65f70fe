"""Jobs, the frontier, pages, domains and operations through the API, with what they do in the store."""

import csv
import io
import json
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest

from holdfast import factories
from holdfast.api import exports
from holdfast.db.connection import Database
from holdfast.model.domain import Status
from holdfast.operations.service import OperationRunner
from tests.support.api import Api, Shared
from tests.support.crawls import wait_for
from tests.support.factories import Store
from tests.support.furnished import furnish
from tests.support.invariants import assert_invariants

JOB = {"name": "shop", "urls": ["https://a.example/", "https://a.example/b", "nonsense://x"]}


def _operate(api: Api, database: Database) -> None:
    """Do what waits to be done, as a background would."""
    operator = OperationRunner(database, factories.operation_handlers(api.services.settings, database).by_kind())
    while operator.work():
        pass


def test_a_job_that_is_called_like_the_id_of_another_is_not_in_its_way(
    api: Api, connection: psycopg.Connection
) -> None:
    client = api.admin
    job = client.post("/api/jobs", json=JOB).json()["job"]
    refused = client.post("/api/jobs", json={**JOB, "name": str(job["id"])})
    assert (refused.status_code, "also named by their ids" in refused.json()["detail"]) == (422, True)
    client.post("/api/jobs", json={**JOB, "name": "other"})
    connection.execute("UPDATE crawl_jobs SET name = %s WHERE name = 'other'", (str(job["id"]),))  # from earlier times
    assert client.get(f"/api/jobs/{job['id']}").json()["name"] == "shop"
    assert client.delete(f"/api/jobs/{job['id']}").status_code == 204
    assert client.get("/api/jobs/shop").status_code == 404


def test_a_job_is_made_paused_resumed_cancelled_and_deleted(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    made = client.post("/api/jobs", json={**JOB, "spec": {"max_pages": 10, "exclude": ["/private"]}, "schedule": "6h"})
    assert made.status_code == 201, made.text
    assert made.headers["Location"] == f"/api/jobs/{made.json()['job']['id']}"
    assert (made.json()["seeds"], made.json()["bad"]) == (2, 1)
    assert made.json()["bad_seeds"][0]["line"] == 3
    job = client.get("/api/jobs/shop").json()
    assert (job["state"], job["discovered"], job["schedule"]) == ("pending", 2, "6h")
    assert (job["spec"]["max_pages"], job["spec"]["exclude"]) == (10, ["/private"])
    assert client.post("/api/jobs", json=JOB).status_code == 409
    states = [client.post(f"/api/jobs/shop/{deed}").json()["state"] for deed in ("pause", "pause", "resume", "cancel")]
    assert states == ["paused", "paused", "pending", "cancelled"]
    refused = client.post("/api/jobs/shop/resume")
    assert (refused.status_code, "cancelled" in refused.json()["detail"]) == (409, True)
    assert client.delete("/api/jobs/shop/schedule").json()["schedule"] is None
    assert client.put("/api/jobs/shop/schedule", json={"schedule": "0 3 * * *"}).json()["next_run_at"] is not None
    assert client.put("/api/jobs/shop/schedule", json={"schedule": "now and then"}).status_code == 422
    assert client.delete("/api/jobs/shop").status_code == 204
    assert client.get("/api/jobs/shop").status_code == 404
    assert client.delete("/api/jobs/default").status_code == 409
    while connection.execute("SELECT EXISTS (SELECT FROM url_frontier)").fetchone() == (True,):
        time.sleep(0.02)  # what it had goes after the answer
    deeds = connection.execute("SELECT action FROM audit_log WHERE object_kind = 'job' ORDER BY id").fetchall()
    assert [deed for (deed,) in deeds] == [
        "create", "schedule", "pause", "resume", "cancel", "schedule", "schedule", "delete",
    ]  # fmt: skip
    assert_invariants(connection)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x", "urls": []},
        {"name": "x", "urls": ["nonsense://x"]},
        {"name": "a/b", "urls": ["https://a.example/"]},
        {"name": ".", "urls": ["https://a.example/"]},
        {"name": "..", "urls": ["https://a.example/"]},
        {"name": "x ", "urls": ["https://a.example/"]},
        {"name": "12", "urls": ["https://a.example/"]},
        {"name": "x", "urls": ["https://a.example/"], "spec": {"include": ["("]}},
        {"name": "x", "urls": ["https://a.example/"], "spec": {"max_pages": 0}},
        {"name": "x", "urls": ["https://a.example/"], "typo": 1},
        {"name": "x\0", "urls": ["https://a.example/"]},
        {"name": "x", "urls": ["-bad-.com"]},
    ],
    ids=[
        "nothing",
        "no seeds",
        "only bad seeds",
        "a slash",
        "a dot",
        "two dots",
        "a space",
        "an id",
        "no pattern",
        "no pages",
        "a typo",
        "nul",
        "a hyphen outside",
    ],
)
def test_a_job_that_cannot_be_meant_is_not_made(shared: Shared, body: dict[str, object]) -> None:
    assert shared.admin.post("/api/jobs", json=body).status_code == 422
    assert shared.value("SELECT count(*) FROM crawl_jobs WHERE name NOT IN ('default', 'tasks')") == 0


def test_urls_are_added_and_cleared(api: Api, database: Database, connection: psycopg.Connection) -> None:
    client = api.admin
    sown = client.post("/api/frontier/seed", json={"urls": ["a.example", "b.example/x", "::"]}).json()
    assert (sown["seen"], sown["urls"], sown["domains"], sown["bad"]) == (3, 2, 2, 1)
    more = client.post("/api/frontier/add", json={"urls": ["https://a.example/later"], "priority": "low"}).json()
    assert (more["urls"], more["domains"]) == (1, 0)
    stats = client.get("/api/frontier/stats").json()
    assert (stats["waiting"], stats["domains"]) == (3, 2)
    assert client.get("/api/frontier/urls?priority=1").json()["items"][0]["url"] == "https://a.example/later"
    assert client.post("/api/frontier/add", json={"urls": ["a.example"], "job": "none"}).status_code == 404
    assert client.post("/api/frontier/add", json={"urls": ["a.example"], "job": "tasks"}).status_code == 409
    assert client.post("/api/frontier/recover").json()["claims"] == 0
    assert client.delete("/api/frontier").status_code == 422, "it must be said that all of it is meant"
    asked = client.delete("/api/frontier?domain=a.example")
    assert asked.status_code == 202
    assert client.get(asked.headers["Location"]).json()["state"] == "waiting"
    _operate(api, database)
    done = client.get(asked.headers["Location"]).json()
    assert done["problem"] is None
    assert done["result"]["forgotten"] == 2
    assert [item["domain"] for item in client.get("/api/frontier/urls").json()["items"]] == ["b.example"]
    assert_invariants(connection)


@pytest.mark.parametrize("path", ["/api/frontier", "/api/admin/pages"])
def test_all_of_it_goes_when_that_is_confirmed(
    api: Api, database: Database, connection: psycopg.Connection, store: Store, path: str
) -> None:
    furnish(database)
    store.domains(30)
    held = store.claim_one()
    waiting = "SELECT count(*) FROM url_frontier f JOIN crawl_jobs j ON j.id = f.job_id WHERE f.state = 'waiting' AND j.kind = 'crawl'"
    before = store.value(waiting)
    client = api.admin
    refused = client.delete(path)
    assert (refused.status_code, "?confirm=all" in refused.json()["detail"]) == (422, True)
    assert client.delete(f"{path}?confirm=yes").status_code == 422
    assert api.reader.delete(f"{path}?confirm=all").status_code == 403
    asked = client.delete(f"{path}?confirm=all")
    assert asked.status_code == 202, asked.text
    _operate(api, database)
    done = client.get(asked.headers["Location"]).json()
    assert (done["state"], done["problem"]) == ("done", None)
    if path == "/api/frontier":
        assert (store.value(waiting), done["result"]["taken_away"]) == (0, 1), "its holder lost the domain"
        assert store.value("SELECT claimed_by FROM domains WHERE id = " + str(held.domain_id)) is None
    else:
        assert (store.value("SELECT count(*) FROM crawled_pages"), done["result"]["pages"] > 0) == (0, True)
        assert store.value(waiting) == before, "URLs that wait are no pages"
    logged = client.get("/api/admin/audit").json()["items"]
    assert {"clear-frontier" if path == "/api/frontier" else "purge-pages"} <= {one["action"] for one in logged}
    assert_invariants(connection)


def test_expired_claims_are_set_free(api: Api, store: Store) -> None:
    client = api.admin
    store.seed("a.example/")
    claim = store.claim_one()
    assert client.get("/api/claims").json()["items"][0]["worker"] == "w1"
    assert client.get("/api/claims/summary").json()["workers"][0]["claims"] == 1
    assert client.post("/api/admin/claims/release").json() == {"claims": 0}
    assert client.post("/api/admin/claims/release", json={"all_active": True}).status_code == 422
    store.expire(claim.domain_id)
    assert client.post("/api/admin/claims/release").json() == {"claims": 1}
    store.claim_one()
    forced = client.post("/api/admin/claims/release", json={"force": True, "worker": "w1"})
    assert forced.json() == {"claims": 1}


def test_pages_are_read_and_forgotten(api: Api, database: Database, connection: psycopg.Connection) -> None:
    furnish(database)
    client = api.admin
    pages = client.get("/api/pages?domain=example.com").json()["items"]
    (page,) = [item for item in pages if item["url"] == "https://example.com/"]
    facts = client.get("/api/pages/page", params={"url": page["url"]}).json()
    assert (facts[0]["url"], facts[0]["title"], facts[0]["has_text"]) == (page["url"], page["title"], True)
    assert client.get("/api/pages/page", params={"url": "https://example.com/nowhere"}).status_code == 404
    told = client.get("/api/explain", params={"subject": page["url"]}).json()
    assert (told["kind"], told["told"]["domain"]) == ("url", "example.com")
    assert client.get("/api/explain", params={"subject": "example.com"}).json()["told"]["status"]
    assert client.delete("/api/admin/pages").status_code == 422
    asked = client.delete("/api/admin/pages?domain=example.com")
    assert asked.status_code == 202
    _operate(api, database)
    assert client.get(asked.headers["Location"]).json()["result"]["pages"] >= 1
    assert client.get("/api/pages?domain=example.com").json()["items"] == []
    assert_invariants(connection)


def test_slow_readers_keep_no_export_from_others(
    api: Api, database: Database, store: Store, connection: psycopg.Connection
) -> None:
    """Four of one user held all places."""
    store.domains(1)
    url = f"https://d0.example/{'x' * 2000}/"
    connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, state, priority, depth) "
        "SELECT 1, %s, decode(md5(n::text), 'hex'), %s || n, 'waiting', 2, 1 FROM generate_series(1, 10000) n",
        (store.job, url),
    )
    slow, other = api.reader, api.reader
    with ExitStack() as readers:
        begun = [readers.enter_context(slow.stream("GET", "/api/exports/urls")) for _ in range(4)]
        assert [answer.status_code for answer in begun] == [200, 200, 200, 429]
        assert "You have 3 exports running" in begun[-1].read().decode()
        assert other.get("/api/exports/items").status_code == 200, "others are served"
    wait_for(lambda: not exports._slots._slots_by_user, what="their places are free again")
    assert slow.get("/api/exports/items").status_code == 200


def test_exports_are_files(api: Api, database: Database, tmp_path: Path) -> None:
    furnish(database)
    client = api.reader
    lines = client.get("/api/exports/urls?format=jsonl")
    assert lines.headers["Content-Type"] == "application/x-ndjson"
    rows = [json.loads(line) for line in lines.text.splitlines()]
    table = list(csv.DictReader(io.StringIO(client.get("/api/exports/urls?format=csv").text)))
    file = tmp_path / "urls.parquet"
    answer = client.get("/api/exports/urls?format=parquet")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="urls.parquet"'
    file.write_bytes(answer.content)
    assert [row["url"] for row in rows] == [row["url"] for row in table] == pq.read_table(file)["url"].to_pylist()
    assert len(rows) >= 5
    with_text = client.get("/api/exports/pages?text=true&domain=example.com").text
    assert any(json.loads(line).get("text") for line in with_text.splitlines())
    assert client.get("/api/exports/urls?text=true").status_code == 422
    assert client.get("/api/exports/pages?job=nothing").status_code == 404
    assert client.get("/api/exports/nothing").status_code == 422


def _what_is_read_can_be_written(client: httpx.Client, path: str) -> None:
    """Names in writes are the names in reads; a short form that says something else is refused."""
    wanted = {
        "crawl_delay_seconds": 3.5, "max_concurrent_requests": 2, "parser_name": "product", "user_agent": "X/1", "is_active": True,
        "max_pages_per_run": 70, "default_crawl_frequency": 7200.0, "maintenance_window": "22:00-06:00", "strip_params": ["sid"],
        "proxy_use": "pool", "proxy_direct": True, "proxy_resolves": False, "proxy_country": "DE", "proxy_sticky": 60.0,
        "base_url": "http://www.shop.example",
    }  # fmt: skip
    answer = client.patch(path, json=wanted)
    assert answer.status_code == 200, answer.text
    facts = answer.json()["facts"]
    assert {name: facts[name] for name in wanted} == wanted
    assert (facts["delay_in_force_seconds"], facts["delay_source"]) == (3.5, "domain")
    again = client.patch(path, json={name: facts[name] for name in wanted})
    assert {name: again.json()["facts"][name] for name in wanted} == wanted, "as it was read"
    twice = client.patch(path, json={"delay": 1, "crawl_delay_seconds": 2})
    assert (twice.status_code, "delay and crawl_delay_seconds are the same setting" in twice.text) == (422, True)
    assert client.patch(path, json={"delay": 2.5, "crawl_delay_seconds": 2.5}).status_code == 200
    for base_url in ("https://other.example", "https://shop.example:8443", "ftp://shop.example", "shop.example", None):
        assert client.patch(path, json={"base_url": base_url}).status_code == 422, base_url
    assert client.get("/api/domains?name=shop").json()["items"][0]["base_url"] == wanted["base_url"]
    schema = client.get("/api/openapi.json").json()["components"]["schemas"]["DomainChange"]["properties"]
    assert set(wanted) <= set(schema)


def test_a_domain_is_made_configured_started_over_and_forgotten(
    api: Api, database: Database, connection: psycopg.Connection
) -> None:
    client = api.admin
    made = client.post("/api/admin/domains", json={"domain": "Shop.Example", "delay": 2.5, "active": False})
    assert (made.status_code, made.headers["Location"]) == (201, "/api/domains/shop.example"), made.text
    facts = made.json()["facts"]
    assert (facts["crawl_delay_seconds"], facts["is_active"]) == (2.5, False)
    assert client.post("/api/admin/domains", json={"domain": "shop.example", "delay": 9}).status_code == 200
    shown = client.get("/api/domains/shop.example")
    assert shown.json()["facts"]["crawl_delay_seconds"] == 2.5, "one that is known stays as it is"
    tag = {"If-Match": shown.headers["ETag"]}
    path = "/api/admin/domains/shop.example"
    changed = client.patch(path, json={"active": True, "budget": None, "frequency": "PT6H"}, headers=tag)
    assert changed.status_code == 200, changed.text
    assert (changed.json()["facts"]["is_active"], changed.json()["facts"]["default_crawl_frequency"]) == (True, 21600.0)
    assert changed.headers["ETag"] != shown.headers["ETag"]
    stale = client.patch(path, json={"active": False}, headers=tag)
    assert (stale.status_code, client.get("/api/domains/shop.example").json()["facts"]["is_active"]) == (412, True)
    assert client.patch(path, json={}).status_code == 422
    assert client.patch(path, json={"delay": -1}).status_code == 422
    assert client.patch(path, json={"parser": "two words"}).status_code == 422
    unknown = client.patch(path, json={"parser": "nope"})
    assert (unknown.status_code, "nope" in unknown.text) == (422, True), "refused like `crawl --parser nope`"
    assert client.post("/api/admin/domains", json={"domain": "new.example", "parser": "nope"}).status_code == 422
    assert client.patch(path, json={"active": True}, headers={"If-Match": "nonsense"}).status_code == 422
    _what_is_read_can_be_written(client, path)
    window = client.put(f"{path}/maintenance-window", json={"window": "22:00-06:00 Europe/Berlin"})
    assert window.status_code == 200, window.text
    assert client.get("/api/maintenance-windows").json()["items"][0]["domain"] == "shop.example"
    assert client.put(f"{path}/maintenance-window", json={"window": "at night"}).status_code == 422
    assert client.delete(f"{path}/maintenance-window").json()["facts"]["maintenance_window"] is None
    refused = client.post(f"{path}/unblock")
    assert (refused.status_code, "is pending, not blocked" in refused.json()["detail"]) == (409, True)
    connection.execute("UPDATE domains SET status = 'blocked' WHERE domain = 'shop.example'")
    unblocked = client.post(f"{path}/unblock", json={"reason": "let in"})
    assert (unblocked.status_code, unblocked.json()["was"]) == (200, "blocked")
    reset = client.post(f"{path}/reset", json={"reason": "moved"})
    assert (reset.status_code, reset.json()["was"]) == (200, "pending")
    assert client.get("/api/domains/shop.example/robots").json() == []
    assert client.delete(path).status_code == 204
    for gone in (client.get("/api/domains/shop.example"), client.delete(path), client.post(f"{path}/reset")):
        assert gone.status_code == 404
    actions = connection.execute("SELECT action FROM audit_log WHERE object_kind = 'domain' ORDER BY id").fetchall()
    assert len(actions) >= 6
    assert_invariants(connection)


def test_a_domain_that_somebody_holds_is_not_forgotten(api: Api, store: Store) -> None:
    store.seed("a.example/")
    store.claim_one()
    refused = api.admin.delete("/api/admin/domains/a.example")
    assert (refused.status_code, "w1" in refused.json()["detail"]) == (409, True)


def test_long_work_is_done_by_a_background(api: Api, database: Database) -> None:
    furnish(database)
    client = api.admin
    asked = [
        client.post("/api/admin/verify", json={"archive": False}),
        client.post("/api/admin/priorities"),
        client.post("/api/admin/rebuild/counters", json={"dry_run": True}),
        client.post("/api/admin/replay", json={"mode": "fetch", "since": "2000-01-01T00:00:00Z", "dry_run": True}),
    ]
    assert [answer.status_code for answer in asked] == [202] * 4
    assert client.post("/api/admin/replay", json={"mode": "fetch", "job": "no such job"}).status_code == 404
    assert client.post("/api/admin/replay", json={"mode": "lost", "parser": "shop"}).status_code == 422
    assert client.get("/api/archive/machines").json() == []
    _operate(api, database)
    verified, scored, rebuilt, replayed = (client.get(answer.headers["Location"]).json() for answer in asked)
    assert (rebuilt["state"], rebuilt["result"]["changed"]) == ("done", 0)
    assert (replayed["state"], replayed["result"]["pages"] > 0, replayed["result"]["dry_run"]) == ("done", True, True)
    wrong = [check for check in verified["result"]["checks"] if check["faults"]]
    assert (verified["state"], verified["result"]["ok"], wrong) == ("done", True, [])
    assert len(verified["result"]["checks"]) > 20
    assert (scored["state"], scored["result"]["domains"] >= 4) == ("done", True)
    assert client.get("/api/operations/999999").status_code == 404


def test_all_domains_that_match_are_changed_by_a_background(api: Api, database: Database, store: Store) -> None:
    store.seed("a.example/", "b.example/", "c.example/")
    store.become("a.example", Status.BLOCKED)
    store.become("b.example", Status.BLOCKED)
    client = api.admin
    body = {"action": "unblock", "name": "a"}
    counted = client.post("/api/admin/domains/bulk/count", json=body)
    assert counted.json() == {"action": "unblock", "domains": 1, "held": 0, "exact": True}
    asked = client.post("/api/admin/domains/bulk", json={**body, "reason": "let in"})
    assert (asked.status_code, asked.json()["kind"]) == (202, "change-domains")
    _operate(api, database)
    done = client.get(asked.headers["Location"]).json()
    assert (done["state"], done["result"]) == ("done", {"domains": 1, "skipped": 0})
    assert (store.status("a.example"), store.status("b.example")) == (Status.PENDING, Status.BLOCKED)
    for status, changed in (("pending", 2), ("blocked", 1)):
        client.post("/api/admin/domains/bulk", json={"action": "switch-off", "status": status})
        _operate(api, database)
        assert client.get("/api/operations").json()["items"][0]["result"]["domains"] == changed
    everything = client.post("/api/admin/domains/bulk", json={"action": "reset"})
    assert (everything.status_code, "`all_domains` applies it to all" in everything.json()["detail"]) == (422, True)
    assert client.post("/api/admin/domains/bulk/count", json={"action": "reset", "all_domains": True}).json()[
        "domains"
    ] == 3  # fmt: skip
    assert api.reader.post("/api/admin/domains/bulk", json=body).status_code == 403


def test_a_worker_is_shown_by_its_name(api: Api, database: Database) -> None:
    furnish(database)
    found = api.reader.get("/api/workers/w1")
    assert (found.status_code, found.json()["name"], found.json()["status"]) == (200, "w1", "idle")
    unknown = api.reader.get("/api/workers/w9")
    assert (unknown.status_code, "no worker called 'w9'" in unknown.json()["detail"]) == (404, True)


def test_figures(api: Api, database: Database) -> None:
    furnish(database)
    client = api.reader
    stats = api.anybody.get("/api/stats").json()
    assert (stats["pages_total"], stats["domains"]["blocked"]) == (client.get("/api/stats").json()["pages_total"], 1)
    assert stats["pages_total"] >= 1
    series = client.get("/api/stats/timeseries?step=5m").json()
    assert series["step"] == "PT5M"
    assert sum(point["pages"] for point in series["points"]) == stats["pages_total"]
    by_status = {row["status"]: row["tasks"] for row in client.get("/api/stats/tasks").json()}
    assert (by_status["failed"], len(by_status)) == (1, 10)
    text = client.get("/metrics")
    assert text.headers["Content-Type"].startswith("text/plain")
    assert f"\ncrawler_pages_fetched_total {float(stats['pages_total'])}" in text.text
    assert client.get("/api/stats/timeseries?step=7").status_code == 422
    assert client.get("/api/stats/timeseries?since=2031-01-01T00:00:00Z").status_code == 422
    assert client.get("/api/stats/timeseries?since=2031-01-01T00:00:00").status_code == 422
