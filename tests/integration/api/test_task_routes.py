"""Tasks over HTTP: asked for, listed, explained, restarted, paused, resumed, cancelled, hurried."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.model.auth import SCOPES, Role
from holdfast.model.cursor import encode_cursor
from holdfast.model.task import LIVE
from tests.support.accounts import deeds
from tests.support.api import Api, Shared
from tests.support.tasks import PAGE, S, Tasks

ADMIN = "admin-1 (key test)"
BEYOND = 2**63
LAST = 2**63 - 1


@pytest.fixture
def tasks(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def walked(client: httpx.Client, path: str) -> list[list[int]]:
    """The ids on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found.append([item["id"] for item in page["items"]])
        target = answer.links.get("next", {}).get("url", "")
        assert bool(target) == (page["next"] is not None)
    return found


def test_a_task_is_asked_for_once(api: Api, tasks: Tasks) -> None:
    client = api.admin
    wanted = {
        "url": "https://shop.example/offer",
        "priority": 2,
        "scheduled_at": "2031-12-24T19:00:00+01:00",
        "crawl_frequency": "PT6H",
        "max_retries": 7,
        "webhook_url": "https://receiver.example/hook",
        "parser_name": "product",
    }
    answer = client.post("/api/admin/tasks", json=wanted)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["Location"] == f"/api/tasks/{made['id']}"
    assert made["created"] is True
    assert made["status"] == "pending"
    assert made["domain"] == "shop.example"
    assert made["scheduled_at"] == "2031-12-24T18:00:00Z"
    assert made["crawl_frequency"] == "PT6H"
    kept = tasks.get(made["id"])
    assert (kept.url, kept.priority, kept.max_retries) == ("https://shop.example/offer", 2, 7)
    assert kept.crawl_frequency == timedelta(hours=6)
    assert kept.scheduled_at == datetime(2031, 12, 24, 18, tzinfo=UTC)
    assert (kept.webhook_url, kept.parser_name) == ("https://receiver.example/hook", "product")
    assert kept.created_by == ADMIN

    again = client.post("/api/admin/tasks", json={"url": "https://shop.example/offer", "priority": 9})
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["created"], again.json()["priority"]) == (made["id"], False, 2)
    assert deeds(tasks.connection)[2:] == [(ADMIN, "create", "task", str(made["id"]))]
    assert client.get(answer.headers["Location"]).json()["next"]["what"] == "its time comes"


def test_a_task_of_a_batch_behind_another(api: Api, tasks: Tasks) -> None:
    client = api.admin
    parent = tasks.one("a.example/parent")
    assert client.post("/api/admin/batches", json={"name": "x"}).status_code == 201
    body = {"url": "a.example/child", "batch": "x", "parent_task_id": parent, "is_recurring": False}
    made = client.post("/api/admin/tasks", json=body).json()
    assert made["parent_task_id"] == parent
    assert made["is_recurring"] is False
    story = client.get(f"/api/tasks/{made['id']}").json()
    assert story["batch"] == "x"
    assert story["next"] == {"what": f"it waits until task {parent} is completed, which is pending", "at": None}
    for missing in ({"batch": "y"}, {"parent_task_id": 815}):
        assert client.post("/api/admin/tasks", json={"url": "a.example/other", **missing}).status_code == 404
    assert tasks.value("SELECT count(*) FROM crawl_tasks") == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": ""},
        {"url": "ftp://a.example/"},
        {"url": "a.example", "colour": "red"},
        {"url": "a.example/\0"},
        {"url": "-bad-.com"},
        {"url": "a.example", "priority": 0},
        {"url": "a.example", "priority": 11},
        {"url": "a.example", "max_retries": BEYOND},
        {"url": "a.example", "parent_task_id": BEYOND},
        {"url": "a.example", "crawl_frequency": 0},
        {"url": "a.example", "crawl_frequency": "P99999D"},
        {"url": "a.example", "crawl_frequency": 1e300},
        {"url": "a.example", "scheduled_at": "2031-12-24T18:00:00"},
        {"url": "a.example", "scheduled_at": "9999-12-31T23:59:59-12:00"},
        {"url": "a.example", "webhook_url": "mailto:a@b.example"},
        {"url": "a.example", "webhook_url": "https://me:secret@b.example/"},
        {"url": "a.example", "parser_name": "a b"},
        {"url": "a.example", "batch": ""},
        [],
        None,
    ],
)
def test_a_task_that_cannot_be_meant(shared: Shared, body: Any) -> None:
    answer = shared.admin.post("/api/admin/tasks", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert shared.value("SELECT count(*) FROM crawl_tasks") == 0


def test_half_a_character_cannot_be_meant(shared: Shared) -> None:
    """JSON can write it, and PostgreSQL cannot store it."""
    body = rb'{"url": "a.example", "batch": "\ud800"}'
    answer = shared.admin.post("/api/admin/tasks", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "surrogates" in answer.text) == (422, True)


def test_bulk_reports_what_is_bad_and_makes_the_rest(api: Api, tasks: Tasks) -> None:
    client = api.admin
    tasks.one("a.example/1")
    urls = ["a.example/0", "a.example/1", "", "mailto:x@a.example", "a.example/2", "https://", "a.example/0"]
    answer = client.post("/api/admin/tasks/bulk", json={"urls": urls, "priority": 3})
    assert answer.status_code == 200, answer.text
    bulk = answer.json()
    assert {name: bulk[name] for name in ("seen", "created", "known", "bad")} == {
        "seen": 7,
        "created": 2,
        "known": 2,
        "bad": 3,
    }
    assert [bad["place"] for bad in bulk["bad_urls"]] == [3, 4, 6]
    assert all(bad["problem"] for bad in bulk["bad_urls"])
    rows = tasks.connection.execute("SELECT url, priority FROM crawl_tasks ORDER BY url").fetchall()
    assert rows == [("https://a.example/0", 3), ("https://a.example/1", 5), ("https://a.example/2", 3)]
    assert deeds(tasks.connection)[-1] == (ADMIN, "create", "task", "*")


def test_bulk_takes_ten_thousand_and_no_more(api: Api, tasks: Tasks) -> None:
    client = api.admin
    urls = [f"a.example/{number}" for number in range(10_000)]
    key = {"Idempotency-Key": "bulk-1"}
    for replayed in (None, "true"):
        answer = client.post("/api/admin/tasks/bulk", json={"urls": urls}, headers=key)
        assert answer.status_code == 200, answer.text
        assert answer.json()["created"] == 10_000
        assert answer.headers.get("Idempotent-Replayed") == replayed
    assert tasks.value("SELECT count(*) FROM crawl_tasks") == 10_000
    for refused in ([], [*urls, "a.example/more"], ["a.example/\0"], "a.example"):
        assert client.post("/api/admin/tasks/bulk", json={"urls": refused}).status_code == 422
    missing = client.post("/api/admin/tasks/bulk", json={"urls": ["a.example/new"], "batch": "none"})
    assert missing.status_code == 404


def test_the_list_goes_on_to_its_end(api: Api, tasks: Tasks) -> None:
    client = api.reader
    other = tasks.failed("b.example/x", priority=1)
    newest = [*sorted(tasks.add(*(f"a.example/{number}" for number in range(5))), reverse=True), other]
    assert walked(client, "/api/tasks?limit=2") == [newest[:2], newest[2:4], newest[4:]]
    assert walked(client, "/api/tasks?limit=2&order=oldest") == [newest[:3:-1], newest[3:1:-1], newest[1::-1]]
    assert walked(client, "/api/tasks?limit=4") == [newest[:4], newest[4:]]
    assert walked(client, "/api/tasks?limit=2&status=pending") == [newest[:2], newest[2:4], newest[4:5]]
    assert walked(client, "/api/tasks?domain=B.Example") == [[other]]
    assert walked(client, "/api/tasks?priority=1") == [[other]]
    assert walked(client, f"/api/tasks?parent_task_id={other}") == [[]]


def test_a_task_in_the_list(api: Api, tasks: Tasks) -> None:
    task_id = tasks.completed("a.example/x", webhook_url="https://r.example/")
    (row,) = api.reader.get("/api/tasks").json()["items"]
    kept = tasks.get(task_id)
    assert row["archive"] == {
        "segment": PAGE.segment,
        "offset": 10,
        "length": 200,
        "payload_digest": PAGE.payload_digest.hex(),
    }
    assert kept.completed_at is not None
    assert row["completed_at"] == kept.completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert (row["status"], row["http_status_code"], row["parsed_by"]) == ("completed", 200, "generic")
    assert "url_hash" not in row


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("domain=nobody.example", 404),
        ("batch=none", 404),
        ("batch=%F0%9F%90%88", 404),
        ("domain=not%20a%20domain", 422),
        ("domain=", 422),
        ("status=asleep", 422),
        ("priority=0", 422),
        (f"parent_task_id={BEYOND}", 422),
        ("limit=0", 422),
        ("limit=501", 422),
        ("cursor=x", 422),
        ("cursor=WyJhIl0", 422),
        ("cursor=W251bGxd", 422),
        ("order=id", 422),
        (f"domain={'a' * 256}", 422),
    ],
)
def test_filters_that_cannot_be_meant(shared: Shared, query: str, status: int) -> None:
    answer = shared.reader.get(f"/api/tasks?{query}")
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


def test_the_story_of_one(api: Api, tasks: Tasks) -> None:
    client = api.reader
    task_id = tasks.failed("a.example/x")
    story = client.get(f"/api/tasks/{task_id}").json()
    assert (story["status"], story["error_message"]) == ("failed", "gone")
    assert story["next"]["what"] == f"nothing by itself; `holdfast tasks restart {task_id}` tries it again"
    queued = tasks.one("a.example/y")
    tasks.bring(queued, S.QUEUED)
    assert client.get(f"/api/tasks/{queued}").json()["waits"] != []
    for missing in (815, LAST):
        assert client.get(f"/api/tasks/{missing}").status_code == 404
    for odd in ("0", "-1", str(BEYOND), "x", "1.5", "%F0%9F%90%88"):
        assert client.get(f"/api/tasks/{odd}").status_code == 422


def test_the_history_of_a_url(api: Api, tasks: Tasks) -> None:
    client = api.reader
    first = tasks.completed("a.example/x")
    tasks.recur(first)
    (second,) = tasks.spawn()
    items = client.get(f"/api/tasks/{second}/history").json()["items"]
    assert [item["task"]["id"] for item in items] == [second, first]
    steps = [(event["from_status"], event["to_status"]) for event in items[1]["events"]]
    assert steps[0] == ("pending", "queued")
    assert steps[-1] == ("parsing", "completed")
    assert {item["task"]["domain_id"] for item in items} == {1}
    page = client.get(f"/api/tasks/{first}/history?limit=1")
    assert [item["task"]["id"] for item in page.json()["items"]] == [second]
    page = client.get(page.links["next"]["url"])
    assert [item["task"]["id"] for item in page.json()["items"]] == [first]
    page = client.get(page.links["next"]["url"])
    assert page.json() == {"items": [], "next": None, "scanned": None}
    assert client.get("/api/tasks/815/history", params={"cursor": encode_cursor((9,))}).status_code == 404
    assert client.get("/api/tasks/815/history").status_code == 404
    assert client.get(f"/api/tasks/{first}/history?limit=501").status_code == 422


def test_restart(api: Api, tasks: Tasks) -> None:
    client = api.admin
    task_id = tasks.failed("a.example/x", max_retries=0)
    answer = client.post(
        f"/api/admin/tasks/{task_id}/restart",
        json={"reset_retry_count": True, "priority": 1, "scheduled_at": "2031-11-30T10:00:00Z"},
    )
    assert answer.status_code == 200, answer.text
    seed = {
        "task_id": task_id,
        "status": "pending",
        "scheduled_at": "2031-11-30T10:00:00Z",
        "retry_count": 0,
        "message": "Task restarted successfully",
    }
    assert {name: answer.json()[name] for name in seed} == seed
    kept = tasks.get(task_id)
    assert (kept.status, kept.priority, kept.error_message) == (S.PENDING, 1, None)
    assert deeds(tasks.connection)[-1] == (ADMIN, "restart", "task", str(task_id))
    count = len(deeds(tasks.connection))
    assert answer.json()["restarted"] is True
    twice = client.post(f"/api/admin/tasks/{task_id}/restart")
    assert (twice.status_code, twice.json()["restarted"]) == (200, False), "asking twice is no error"
    assert twice.json()["message"] == "Nothing was changed: the task is pending already"
    assert len(deeds(tasks.connection)) == count
    for body in ({"priority": 0}, {"scheduled_at": "soon"}, {"reset_retries": True}, [1], "x"):
        assert client.post(f"/api/admin/tasks/{task_id}/restart", json=body).status_code == 422
    tasks.bring(task_id, S.CANCELLED)
    twin = tasks.one("a.example/x")
    refused = client.post(f"/api/admin/tasks/{task_id}/restart")
    assert refused.status_code == 409
    assert f"Task {twin}" in refused.json()["detail"]


def test_restart_without_a_body_means_now(api: Api, tasks: Tasks) -> None:
    task_id = tasks.completed("a.example/x")
    before = tasks.value("SELECT clock_timestamp()")
    assert api.admin.post(f"/api/admin/tasks/{task_id}/restart").status_code == 200
    assert before <= tasks.get(task_id).scheduled_at <= tasks.value("SELECT clock_timestamp()")


def test_restart_of_parsing_needs_a_page(api: Api, tasks: Tasks) -> None:
    client = api.admin
    parsed, failed = tasks.completed("a.example/x"), tasks.failed("a.example/y")
    answer = client.post(f"/api/admin/tasks/{parsed}/restart-parsing", json={"reset_retry_count": False})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["task_id"]) == ("queued_parse", parsed)
    assert tasks.status(parsed) is S.QUEUED_PARSE
    refused = client.post(f"/api/admin/tasks/{failed}/restart-parsing")
    assert refused.status_code == 409
    assert "no page in the archive" in refused.json()["detail"]
    assert tasks.status(failed) is S.FAILED


def test_restart_of_what_failed(api: Api, tasks: Tasks) -> None:
    client = api.admin
    mine = [tasks.failed(f"a.example/{number}") for number in range(3)]
    other = tasks.failed("b.example/x")
    path = "/api/admin/tasks/restart-failed"
    late = {"failed_after": "2031-01-01T00:00:00Z"}
    assert client.post(path, json=late).json() == {"restarted": 0, "tasks": []}
    first = client.post(path, json={"domain": "www.a.example", "limit": 2}).json()
    assert first == {
        "restarted": 2,
        "tasks": [{"id": mine[0], "url": "https://a.example/0"}, {"id": mine[1], "url": "https://a.example/1"}],
    }
    assert [tasks.status(task_id) for task_id in mine] == [S.PENDING, S.PENDING, S.FAILED]
    domain_id = tasks.value("SELECT domain_id FROM crawl_tasks WHERE id = %s", mine[2])
    assert client.post(path, json={"domain": "b.example", "domain_id": domain_id}).status_code == 422
    assert client.post(path, json={"domain_id": 999_999}).status_code == 404
    by_id = client.post(path, json={"domain_id": domain_id}).json()
    assert [task["id"] for task in by_id["tasks"]] == [mine[2]]
    assert client.post(path, json={"failed_after": "2001-01-01T00:00:00Z"}).json()["restarted"] == 1
    assert tasks.status(other) is S.PENDING
    assert client.post(path).json() == {"restarted": 0, "tasks": []}
    assert deeds(tasks.connection)[-1] == (ADMIN, "restart_failed", "task", "*")
    for missing in ({"domain": "nobody.example"}, {"batch": "none"}):
        assert client.post(path, json=missing).status_code == 404
    for odd in ({"limit": 0}, {"limit": 10_001}, {"limit": BEYOND}, {"domain": "a b"}, {"failed_after": "x"}, [1]):
        assert client.post(path, json=odd).status_code == 422


def test_pause_resume_cancel(api: Api, tasks: Tasks) -> None:
    client = api.admin
    task_id = tasks.one("a.example/x")
    for verb, status in (("pause", S.PAUSED), ("resume", S.PENDING), ("cancel", S.CANCELLED)):
        for _ in range(2):  # asking twice is no error
            answer = client.post(f"/api/admin/tasks/{task_id}/{verb}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"] == status
        assert tasks.status(task_id) is status
        assert deeds(tasks.connection)[-1] == (ADMIN, verb, "task", str(task_id))
    for verb in ("pause", "resume"):
        refused = client.post(f"/api/admin/tasks/{task_id}/{verb}")
        assert refused.status_code == 409
        assert "is cancelled" in refused.json()["detail"]


def test_no_restart_of_what_is_under_way(api: Api, tasks: Tasks) -> None:
    admin = api.admin
    for status in sorted(LIVE - {S.PENDING, S.PAUSED}):
        task_id = tasks.one(f"a.example/{status}")
        tasks.bring(task_id, status)
        answer = admin.post(f"/api/admin/tasks/{task_id}/restart")
        assert answer.status_code == 409
        assert f"is {status}" in answer.json()["detail"]
        assert tasks.status(task_id) is status


def test_priority(api: Api, tasks: Tasks) -> None:
    client = api.admin
    task_id = tasks.one("a.example/x")
    path = f"/api/admin/tasks/{task_id}/priority"
    assert client.patch(path, json={"priority": 1}).json()["priority"] == 1
    assert tasks.get(task_id).priority == 1
    assert deeds(tasks.connection)[-1] == (ADMIN, "priority", "task", str(task_id))
    for odd in ({"priority": 0}, {"priority": 11}, {"priority": None}, {}, {"priority": BEYOND}):
        assert client.patch(path, json=odd).status_code == 422
    assert client.patch("/api/admin/tasks/815/priority", json={"priority": 1}).status_code == 404


@pytest.mark.parametrize("verb", ["restart", "restart-parsing", "pause", "resume", "cancel"])
def test_what_is_not_there(shared: Shared, verb: str) -> None:
    client = shared.admin
    for missing in (815, LAST):
        answer = client.post(f"/api/admin/tasks/{missing}/{verb}")
        assert (answer.status_code, answer.json()["detail"]) == (404, f"There is no task {missing}.")
    assert client.post(f"/api/admin/tasks/{BEYOND}/{verb}").status_code == 422
    assert shared.reader.post(f"/api/admin/tasks/815/{verb}").status_code == 403


def test_a_user_and_a_key_of_the_longest_names(api: Api, tasks: Tasks) -> None:
    user_id = api.user("u" * 64, Role.ADMIN)
    _, token = api.accounts.create_key(user_id, "k" * 64, SCOPES[Role.ADMIN], None, actor="test")
    answer = api.client(token).post("/api/admin/tasks", json={"url": "a.example/x"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["created_by"] == f"{'u' * 64} (key {'k' * 30}"


def test_failed_tasks_are_counted_before_they_are_restarted(api: Api, tasks: Tasks) -> None:
    client = api.reader
    nothing = client.get("/api/tasks/failed/count").json()
    assert nothing == {"tasks": 0, "exact": True}
    tasks.failed("a.example/1")
    tasks.failed("a.example/2")
    tasks.failed("b.example/1")
    made_up_for = tasks.failed("b.example/2")
    tasks.one("b.example/2")
    assert client.get("/api/tasks/failed/count").json() == {"tasks": 3, "exact": True}, f"not {made_up_for}"
    assert client.get("/api/tasks/failed/count?domain=a.example").json()["tasks"] == 2
    assert client.get("/api/tasks/failed/count?failed_after=2090-01-01T00:00:00Z").json()["tasks"] == 0
    assert client.get("/api/tasks/failed/count?domain=unknown.example").status_code == 404
    assert client.get("/api/tasks/failed/count?batch=unknown").status_code == 404
    assert api.admin.post("/api/admin/tasks/restart-failed").json()["restarted"] == 3
