"""Requests that are sent twice are done once."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.api import idempotency
from holdfast.db import idempotency_keys
from holdfast.db.connection import Database
from holdfast.errors import RolledBack
from holdfast.model.auth import Role, Scope
from holdfast.tasks.service import TaskService
from tests.support.api import Api
from tests.support.crawls import wait_for

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


def test_a_key_that_is_none_is_refused(api: Api) -> None:
    admin = api.admin
    for key in ["", "a b", "x" * 256]:
        answer = admin.post("/api/jobs", json=JOB, headers={"Idempotency-Key": key})
        assert answer.status_code == 422, key
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


def test_who_repeats_it_while_it_is_being_done_is_told_when_to_ask_again(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_WAIT_TIMEOUT", timedelta(milliseconds=50))
    owner = api.user("ann", Role.ADMIN)
    client = api.client(api.accounts.create_key(owner, "test", list(Scope), None, actor="test")[1])
    with connection.transaction(force_rollback=True):  # as a request that has come as far as that, and dies
        idempotency_keys.reserve(
            connection,
            owner=str(owner),
            key=KEY["Idempotency-Key"],
            fingerprint=b"f",
            ttl=timedelta(days=1),
            timeout=timedelta(seconds=1),
        )
        refused = client.post("/api/jobs", json=JOB, headers=KEY)
        assert (refused.status_code, refused.headers["Retry-After"]) == (409, "2")
        assert refused.json()["type"] == "urn:holdfast:problem:under-way"
        assert refused.json()["retry_after"] == 2
    assert client.post("/api/jobs", json=JOB, headers=KEY).status_code == 201
    plain = client.post("/api/jobs", json=JOB)
    assert (plain.status_code, plain.json()["type"]) == (409, "urn:holdfast:problem:refused")
    assert "Retry-After" not in plain.headers


def _batches(connection: psycopg.Connection) -> tuple[int, ...]:
    """How many batches there are, lines of the audit log about them, and kept answers."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM crawl_batches), (SELECT count(*) FROM audit_log WHERE object_kind = 'batch'),"
        " (SELECT count(*) FROM kept_answers)"
    ).fetchone()
    assert row is not None
    return row


def test_who_meets_somebody_in_a_deadlock_is_served_all_the_same(
    api: Api, database: Database, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database rolls the request back, as it waits for longer; with its key it is done again, from its beginning."""
    client, make = api.admin, TaskService.create_batch
    tries: list[str] = []

    def behind_a_lock(desk: TaskService, name: str, **named: Any) -> Any:
        tries.append(name)
        with desk.database.session() as ours:
            ours.execute("SELECT pg_advisory_xact_lock(1)")
        return make(desk, name, **named)

    monkeypatch.setattr(TaskService, "create_batch", behind_a_lock)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'crawl_batches'::regclass"
    for number in range(
        1, 6
    ):  # of two that wait for each other, the one that waits for longer is rolled back: as a rule the request
        with database.connect() as other, ThreadPoolExecutor(1) as thread:
            with suppress(psycopg.errors.DeadlockDetected), other.transaction():
                other.execute("LOCK TABLE crawl_batches IN ACCESS EXCLUSIVE MODE")
                key = {"Idempotency-Key": f"{number}"}
                asked = thread.submit(client.post, "/api/admin/batches", json={"name": f"{number}"}, headers=key)
                wait_for(lambda: connection.execute(waits).fetchone() == (1,), what="it has one lock and wants ours")
                other.execute("SELECT pg_advisory_xact_lock(1)")
            answer = asked.result(30)
        assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (201, None), answer.text
        assert _batches(connection) == (number, number, number)
        if tries.count(f"{number}") == 2:
            return
    raise AssertionError(f"nobody was rolled back: {tries}")


def test_who_is_always_in_the_way_of_others_is_told_that_nothing_was_done(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, make = api.admin, TaskService.create_batch
    tries: list[Any] = []

    def fails_at_the_end(desk: TaskService, *given: Any, **named: Any) -> Any:
        tries.append(make(desk, *given, **named))
        raise RolledBack("Others changed the same things in the same moment; try again.")

    with monkeypatch.context() as patch:
        patch.setattr(TaskService, "create_batch", fails_at_the_end)
        refused = client.post("/api/admin/batches", json={"name": "x"}, headers=KEY)
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:holdfast:problem:rolled-back")
    assert len(tries) > 2, "it was tried again, and not forever"
    assert _batches(connection) == (0, 0, 0)
    assert client.post("/api/admin/batches", json={"name": "x"}, headers=KEY).status_code == 201
    assert _batches(connection) == (1, 1, 1)
