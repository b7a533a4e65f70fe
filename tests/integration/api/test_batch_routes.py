"""Batches over HTTP: made, listed, looked at, restarted as long work."""

from urllib.parse import quote

import httpx
import psycopg
import pytest

from holdfast.operations.service import OperationService
from tests.support.accounts import deeds
from tests.support.api import Api, Shared
from tests.support.tasks import Tasks

ADMIN = "admin-1 (key test)"
ODD = ["black friday", "a/b", "a/restart", "100 %", "Größe 🐈", "?x=1#y", "'; DROP TABLE crawl_batches; --"]


@pytest.fixture
def tasks(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def walked(client: httpx.Client, path: str) -> list[list[str]]:
    """The names on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        found.append([item["name"] for item in answer.json()["items"]])
        target = answer.links.get("next", {}).get("url", "")
    return found


@pytest.mark.parametrize("name", ODD)
def test_a_batch_from_its_making_to_its_restart(api: Api, tasks: Tasks, name: str) -> None:
    client = api.admin
    answer = client.post("/api/admin/batches", json={"name": name})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["name"], made["created_by"], made["tasks"]) == (name, ADMIN, {})
    assert answer.headers["Location"] == f"/api/batches/{quote(name, safe='')}"
    tasks.completed("a.example/x", batch_id=made["id"])
    tasks.failed("a.example/y", batch_id=made["id"])
    tasks.failed("a.example/z", batch_id=made["id"])
    seen = client.get(answer.headers["Location"]).json()
    assert seen["tasks"] == {"completed": 1, "failed": 2}
    listed = client.get("/api/tasks", params={"batch": name}).json()["items"]
    assert [task["batch_id"] for task in listed] == [made["id"]] * 3

    asked = client.post(f"/api/admin/batches/{quote(name, safe='')}/restart")
    assert asked.status_code == 202, asked.text
    operation = asked.json()
    assert asked.headers["Location"] == f"/api/operations/{operation['id']}"
    kept = OperationService(api.services.database).show(operation["id"])
    assert (kept.kind, kept.arguments, kept.asked_by) == ("restart-batch", {"name": name}, ADMIN)
    assert deeds(tasks.connection)[-1] == (ADMIN, "restart-batch", "operation", str(operation["id"]))


def test_the_same_key_asks_for_one_operation(api: Api, tasks: Tasks) -> None:
    client = api.admin
    client.post("/api/admin/batches", json={"name": "x"})
    key = {"Idempotency-Key": "once"}
    first, second = (client.post("/api/admin/batches/x/restart", headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Location"] == first.headers["Location"]
    assert tasks.value("SELECT count(*) FROM operations") == 1


def test_the_list_goes_on_to_its_end(api: Api) -> None:
    client = api.admin
    for number in range(5):
        assert client.post("/api/admin/batches", json={"name": f"b{number}"}).status_code == 201
    reader = api.reader
    assert walked(reader, "/api/batches?limit=2") == [["b4", "b3"], ["b2", "b1"], ["b0"]]
    assert walked(reader, "/api/batches?limit=3&order=oldest") == [["b0", "b1", "b2"], ["b3", "b4"]]
    assert walked(reader, "/api/batches?prefix=b3") == [["b3"]]
    assert walked(reader, "/api/batches") == [["b4", "b3", "b2", "b1", "b0"]]
    for odd in ("limit=0", "cursor=%F0%9F%90%88", "cursor=WyIxIl0", "order=name", "prefix="):
        assert reader.get(f"/api/batches?{odd}").status_code == 422


def test_a_name_is_given_once(api: Api, tasks: Tasks) -> None:
    client = api.admin
    assert client.post("/api/admin/batches", json={"name": "x"}).status_code == 201
    again = client.post("/api/admin/batches", json={"name": "x"})
    assert again.status_code == 409
    assert again.json()["detail"] == "There is a batch called 'x' already."
    assert tasks.value("SELECT count(*) FROM crawl_batches") == 1


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "x" * 256, "\x7f", None, 7, ["x"]])
def test_a_name_that_cannot_be_one(shared: Shared, name: object) -> None:
    answer = shared.admin.post("/api/admin/batches", json={"name": name})
    assert answer.status_code == 422, answer.text
    assert shared.value("SELECT count(*) FROM crawl_batches") == 0


@pytest.mark.parametrize("name", ["none", "%20", "a%2Fb", "a/b", "%F0%9F%90%88", "%25", ""])
def test_a_batch_that_is_not_there(shared: Shared, name: str) -> None:
    client = shared.admin
    for answer in (client.get(f"/api/batches/{name}"), client.post(f"/api/admin/batches/{name}/restart")):
        assert answer.status_code == 404, answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert shared.value("SELECT count(*) FROM operations") == 0
    assert client.get(f"/api/batches/{'x' * 256}").status_code == 422
