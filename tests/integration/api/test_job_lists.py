"""Domains of a job, its pace, actions on many jobs, and a job that is crawled again, through the API."""

import psycopg

from holdfast.db.connection import Database
from holdfast.model.job import JobState
from tests.support.api import Api
from tests.support.crawled import HOME, crawl_a_little
from tests.support.crawls import wait_for
from tests.support.factories import Store


def test_domains_of_a_job_by_state_in_pages(api: Api, store: Store) -> None:
    job = store.new_job("many")
    store.seed(*(f"https://site{number}.example/" for number in range(5)), job=job)
    store.seed("https://elsewhere.example/")
    store.connection.execute(
        "UPDATE job_domains SET state = 'done', ready = false, done = 1, waiting = 0 WHERE job_id = %s AND domain_id IN "
        "(SELECT id FROM domains WHERE domain IN ('site1.example', 'site3.example'))",
        (job,),
    )
    client = api.reader
    answer = client.get("/api/jobs/many/domains", params={"limit": 2}).json()
    rows = list(answer["items"])
    while answer["next"]:
        assert len(answer["items"]) <= 2
        answer = client.get("/api/jobs/many/domains", params={"limit": 2, "cursor": answer["next"]}).json()
        rows += answer["items"]
    assert [row["domain"] for row in rows] == [f"site{number}.example" for number in (0, 2, 4, 1, 3)]
    assert [row["state"] for row in rows] == ["open"] * 3 + ["done"] * 2
    assert {(row["discovered"], row["status"], row["claimed_by"]) for row in rows} == {(1, "pending", None)}
    done = client.get("/api/jobs/many/domains", params={"state": "done"}).json()
    assert [row["domain"] for row in done["items"]] == ["site1.example", "site3.example"]
    none = client.get("/api/jobs/many/domains", params={"state": "spent"}).json()
    assert (none["items"], none["next"]) == ([], None)
    assert client.get("/api/jobs/none/domains").status_code == 404
    assert client.get("/api/jobs/many/domains", params={"cursor": "nonsense"}).status_code == 422
    spent = client.get("/api/jobs/many/domains", params={"limit": 2, "state": "open"}).json()["next"]
    assert client.get("/api/jobs/many/domains", params={"state": "done", "cursor": spent}).status_code == 422


def test_the_pace_counts_the_last_minute_of_this_job_only(api: Api, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    store.connection.execute("UPDATE crawls SET started_at = started_at - interval '1 hour'")
    other = store.new_job("other")
    store.seed("https://other-job.example/", job=other)
    pace = api.reader.get(f"/api/jobs/{store.job}/pace").json()
    assert pace["seconds"] == 60.0
    assert pace["pages_per_second"] == round(3 / 60, 2)  # the home page, a, a/b
    assert pace["urls_per_second"] == round(5 / 60, 2)  # gone and slow, too
    assert pace["urls_left"] == 2  # slow, and the one on other.example
    assert round(pace["seconds_left"], 3) == 24.0
    assert "2 URLs wait. 0.1 URLs/s in the last 60 s." in pace["basis"]
    still = api.reader.get("/api/jobs/other/pace").json()
    assert (still["pages_per_second"], still["urls_left"], still["seconds_left"]) == (0, 1, None)
    assert "Nothing was fetched in the last 60 s" in still["basis"]
    store.connection.execute("UPDATE crawl_log SET crawled_at = crawled_at - interval '61 seconds'")
    assert api.reader.get(f"/api/jobs/{store.job}/pace").json()["pages_per_second"] == 0


def test_an_action_on_all_jobs_that_match(api: Api, store: Store) -> None:
    client = api.admin
    for name in ("news-a", "news-b", "shop"):
        made = client.post("/api/jobs", json={"name": name, "urls": [f"https://{name}.example/"]})
        assert made.status_code == 201
    client.post("/api/jobs/news-b/cancel")
    asked = {"action": "pause", "prefix": "news"}
    preview = client.post("/api/jobs/actions", json={**asked, "dry_run": True}).json()
    assert preview == {"action": "pause", "jobs": 1, "names": ["news-a"], "more": False}
    assert client.get("/api/jobs/news-a").json()["state"] == "pending"
    assert client.post("/api/jobs/actions", json=asked).json() == preview
    assert client.post("/api/jobs/actions", json=asked).json()["jobs"] == 0
    states = {job["name"]: job["state"] for job in client.get("/api/jobs").json()["items"]}
    assert (states["news-a"], states["news-b"], states["shop"]) == ("paused", "cancelled", "pending")
    assert (states["tasks"], states["default"]) == ("pending", "pending")
    audited = store.value("SELECT count(*) FROM audit_log WHERE action = 'pause' AND object_kind = 'job'")
    assert audited == 1
    assert client.post("/api/jobs/actions", json={"action": "resume", "state": "paused"}).json()["names"] == ["news-a"]
    assert store.work("news-a.example", int(str(store.value("SELECT id FROM crawl_jobs WHERE name = 'news-a'"))))[
        "ready"
    ]
    everything = client.post("/api/jobs/actions", json={"action": "cancel"}).json()
    assert everything["names"] == ["default", "news-a", "shop"]  # not the job of all tasks
    assert api.reader.post("/api/jobs/actions", json={"action": "pause"}).status_code == 403
    assert client.post("/api/jobs/actions", json={"action": "explode"}).status_code == 422


def test_a_job_is_crawled_again(api: Api, database: Database, store: Store, connection: psycopg.Connection) -> None:
    crawl_a_little(database, store)
    connection.execute("UPDATE crawl_jobs SET state = 'completed' WHERE id = %s", (store.job,))
    client = api.admin
    assert client.post(f"/api/jobs/{store.job}/again").status_code == 202
    # It follows after the answer.
    wait_for(lambda: store.value("SELECT state::text FROM url_frontier WHERE url = %s", HOME) == "waiting")
    assert client.get(f"/api/jobs/{store.job}").json()["state"] == JobState.PENDING
    assert store.value("SELECT count(*) FROM audit_log WHERE action = 'again'") == 1
    client.post(f"/api/jobs/{store.job}/pause")
    refused = client.post(f"/api/jobs/{store.job}/again")
    assert (refused.status_code, "resume it first" in refused.json()["detail"]) == (409, True)
    assert client.post("/api/jobs/tasks/again").status_code == 409
    assert api.reader.post(f"/api/jobs/{store.job}/again").status_code == 403
