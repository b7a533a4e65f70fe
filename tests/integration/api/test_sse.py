"""Live events: as they happen, from where one was, for many at the price of one."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.api import sse
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support.api import Api, look_often, serving, settings
from tests.support.crawls import wait_for

JOB = {"name": "shop", "urls": ["https://a.example/"]}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)


class Stream:
    """Events of one connection, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self, *names: str) -> dict[str, Any]:
        """The next event with one of these names: its name, id and data."""
        event: dict[str, Any] = {"id": None}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                event["id"] = value
            elif name == "event":
                event["event"] = value
            elif name == "data":
                event["data"] = json.loads(value)
            elif not line and "event" in event:
                if not names or event["event"] in names:
                    return event
                event = {"id": None}
        raise EOFError


@contextmanager
def listening(client: httpx.Client, path: str, last: str | None = None) -> Iterator[Stream]:
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Stream(answer)


@pytest.mark.usefixtures("quick")
def test_a_job_from_its_beginning_to_its_end(api: Api) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    with listening(client, "/api/jobs/shop/events") as stream:
        assert stream.next("progress")["data"]["state"] == "pending"
        client.post("/api/jobs/shop/pause")
        seen = [stream.next() for _ in range(2)]
        assert {event["event"] for event in seen} == {"job", "progress"}
        by_name = {event["event"]: event for event in seen}
        assert by_name["progress"]["data"]["state"] == "paused"
        assert by_name["job"]["data"]["data"]["to"] == "paused"
        client.delete("/api/jobs/shop")
        assert stream.next("gone")["data"] == {}
        with pytest.raises(EOFError):
            stream.next()


@pytest.mark.usefixtures("quick")
def test_who_was_away_goes_on_behind_the_last_event(api: Api) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    with listening(client, "/api/events?kind=job") as stream:
        client.post("/api/jobs/shop/pause")
        first = stream.next()
        client.post("/api/jobs/shop/resume")
        second = stream.next()
    client.post("/api/jobs/shop/pause")
    client.post("/api/jobs/shop/cancel")
    with listening(client, "/api/events?kind=job", first["id"]) as stream:
        again = [stream.next() for _ in range(3)]
    assert again[0] == second
    assert [event["data"]["data"]["to"] for event in again] == ["pending", "paused", "cancelled"]
    with listening(client, "/api/events?kind=job", again[-1]["id"]) as stream:
        client.delete("/api/jobs/shop")
        assert stream.next()["data"]["kind"] == "job"


@pytest.mark.usefixtures("quick")
def test_what_is_forgotten_is_said(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    with listening(client, "/api/events") as stream:
        client.post("/api/jobs/shop/pause")
        place = stream.next()["id"]
    future = f"{int(place.split('-')[0]) + 10**9}-1"
    with listening(client, "/api/events", future) as stream:
        assert stream.next()["event"] == "reset"
        client.post("/api/jobs/shop/cancel")
        assert stream.next("job")["data"]["data"]["to"] == "cancelled", "what happens from now on is heard"
    for nonsense in ("x", "1", "1-2-3", "-1-1", "9" * 30 + "-1"):
        assert client.get("/api/events", headers={"Last-Event-ID": nonsense}).status_code == 422


def test_many_listeners_do_not_cost_many_queries(api: Api, connection: psycopg.Connection) -> None:
    """What the database is asked while 60 listen, beside what it is asked while one does."""
    client = api.admin
    client.post("/api/jobs", json=JOB)
    reads = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"

    def asked(listeners: int) -> int:
        with ExitStack() as stack:
            streams = [stack.enter_context(listening(client, "/api/jobs/shop/events")) for _ in range(listeners)]
            for stream in streams:
                stream.next("progress")
            threading.Event().wait(1.2)  # what was asked before is counted up to a second later
            before = _figure(connection, reads)
            threading.Event().wait(2.2)
            return _figure(connection, reads) - before

    client = api.client(api.key(Role.ADMIN), limits=httpx.Limits(max_connections=200))
    one, many = asked(1), asked(60)
    assert many < one + 30, (one, many)


def _figure(connection: psycopg.Connection, query: str) -> int:
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_places_for_listeners_end(database: Database, tmp_path: Path) -> None:
    with serving(database, settings(tmp_path, listeners=2)) as api:
        client = api.reader
        with listening(client, "/api/events"), listening(client, "/api/stats/events") as stream:
            assert stream.next()["data"]["pages_total"] == 0
            refused = client.get("/api/events")
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")


def test_one_user_cannot_take_all_places(database: Database, tmp_path: Path) -> None:
    with serving(database, settings(tmp_path, listeners=4, user_listeners=2)) as api:
        api.user("bob")
        client, other = api.login("bob"), api.login("bob")
        with listening(client, "/api/events"), listening(other, "/api/stats/events"):
            refused = client.get("/api/events")
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
            assert refused.json()["detail"].startswith("You have 2 listeners connected")
            assert client.get("/api/jobs/none/events").status_code == 404, "who gets none has taken none"
            with listening(api.reader, "/api/events"), listening(api.reader, "/api/events"):
                assert "4 listeners are connected" in api.reader.get("/api/events").json()["detail"]
        hub = api.services.hub
        wait_for(lambda: not hub._slots_by_user, what="those who hung up have given their places back")
        with listening(client, "/api/events"), listening(other, "/api/events"):
            assert hub._slots_by_user.total() == 2


@pytest.mark.usefixtures("quick")
def test_who_may_no_longer_listen_is_sent_home(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEPALIVE", 0.2)
    token = api.key(Role.USER)
    with listening(api.client(token), "/api/events") as stream:
        api.accounts.revoke_key(api.accounts.keys()[0].id, actor="test")
        with pytest.raises(EOFError):
            stream.next()


def test_a_server_that_stops_sends_listeners_home(database: Database, tmp_path: Path) -> None:
    with ExitStack() as stack:
        with serving(database, settings(tmp_path)) as api:
            stream = stack.enter_context(listening(api.reader, "/api/events"))
            api._open.clear()  # they would hang up first
        with pytest.raises(EOFError):
            stream.next()


@pytest.mark.usefixtures("quick")
def test_nothing_from_the_web_can_end_an_event(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    with listening(client, "/api/events") as stream:
        connection.execute(
            "INSERT INTO events (kind, domain, data) VALUES ('domain', 'a.example', %s)",
            (json.dumps({"reason": "x\n\nevent: alert\ndata: {}\r\n\u2028"}),),
        )
        event = stream.next()
    assert (event["event"], event["data"]["data"]["reason"]) == ("domain", "x\n\nevent: alert\ndata: {}\r\n\u2028")
