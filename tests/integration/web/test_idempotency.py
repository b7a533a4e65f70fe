"""Requests that are sent twice are done once."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.model.account import Role
from tests.support.api import Api

JOB = {"name": "shop", "urls": ["https://a.example/", "https://a.example/b"]}
KEY = {"Idempotency-Key": "4c2a5bd0-1"}


def _made(connection: psycopg.Connection) -> list[tuple[str, int]]:
    return connection.execute(
        "SELECT name, (SELECT count(*) FROM audit_log WHERE object_kind = 'job' AND object_id = j.id::text AND action = 'create')"
        " FROM crawl_jobs j WHERE name NOT IN ('default', 'tasks') ORDER BY id"
    ).fetchall()


def test_a_repeat_gets_the_first_answer(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    first, second = (client.post("/api/jobs", json=JOB, headers=KEY) for _ in range(2))
    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (201, None)
    assert (second.status_code, second.headers["Idempotent-Replayed"]) == (201, "true")
    assert second.json() == first.json()
    assert second.headers["Location"] == first.headers["Location"]
    assert second.headers["Content-Type"] == "application/json"
    assert _made(connection) == [("shop", 1)]
    assert client.get("/api/jobs/shop").json()["discovered"] == 2
    assert client.post("/api/jobs", json=JOB).status_code == 409, "without the key it is another request"


def test_a_key_is_for_one_request_of_one_user(api: Api, connection: psycopg.Connection) -> None:
    client, other = api.admin, api.admin
    assert client.post("/api/jobs", json=JOB, headers=KEY).status_code == 201
    changed = client.post("/api/jobs", json={**JOB, "name": "other"}, headers=KEY)
    assert changed.status_code == 422
    assert "another request" in changed.json()["detail"]
    elsewhere = client.post("/api/jobs/shop/pause", headers=KEY)
    assert elsewhere.status_code == 422
    assert other.post("/api/jobs", json={**JOB, "name": "other"}, headers=KEY).status_code == 201
    assert _made(connection) == [("shop", 1), ("other", 1)]


def test_many_at_once_do_it_once(api: Api, connection: psycopg.Connection) -> None:
    token = api.key(Role.ADMIN)

    def ask(_: int) -> tuple[int, str]:
        answer = api.client(token).post("/api/jobs", json=JOB, headers=KEY)
        return answer.status_code, answer.text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert {code for code, _ in answers} == {201}
    assert len({text for _, text in answers}) == 1
    assert _made(connection) == [("shop", 1)]


def test_what_failed_has_left_nothing_and_may_be_sent_again(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    bad = client.post("/api/jobs", json={**JOB, "schedule": "every now and then"}, headers=KEY)
    assert bad.status_code == 422
    missing = client.post("/api/jobs/shop/pause", headers={"Idempotency-Key": "p"})
    assert missing.status_code == 404
    assert _made(connection) == []
    assert connection.execute("SELECT count(*) FROM kept_answers").fetchone() == (0,)
    assert client.post("/api/jobs", json=JOB, headers=KEY).status_code == 201
    again = client.post("/api/jobs/shop/pause", headers={"Idempotency-Key": "p"})
    assert (again.status_code, again.json()["state"]) == (200, "paused")


@pytest.mark.parametrize("key", ["", "a b", "x" * 256], ids=["empty", "two words", "too long"])
def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    answer = api.admin.post("/api/jobs", json=JOB, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert "Idempotency-Key" in answer.json()["detail"]


def test_what_is_shown_once_is_not_kept(api: Api, connection: psycopg.Connection) -> None:
    api.user("ann", Role.ADMIN)
    client = api.login("ann")
    body = {"name": "k", "scopes": ["read"]}
    first, second = (client.post("/api/auth/keys", json=body, headers=KEY) for _ in range(2))
    token = first.json()["token"]
    assert token.startswith("hfk_")
    assert second.json() == {**first.json(), "token": None}
    body = {"name": "eve", "password": "a password of eve"}
    made = [client.post("/api/admin/users", json=body, headers={"Idempotency-Key": "u"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 409], "of a password nothing is kept, not even a hash"
    kept = json.dumps([str(bytes(row[0])) for row in connection.execute("SELECT body FROM kept_answers")])
    assert token not in kept
    assert connection.execute("SELECT count(*) FROM kept_answers").fetchone() == (1,)
    assert len(client.get("/api/auth/keys").json()["items"]) == 1
