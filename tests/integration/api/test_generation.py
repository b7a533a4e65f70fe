"""A server that runs on while its store is restored: nothing that it has read of the old one is answered any more."""

from pathlib import Path

import httpx
import psycopg
import pytest

from holdfast.api.app_services import OF_ONE_GENERATION, AppServices
from holdfast.control.background_cache import BackgroundCache
from holdfast.db import generation
from holdfast.db.connection import Database
from holdfast.stats.service import Cached
from tests.integration.api.test_sse import listening
from tests.support.api import look_often, serving, settings
from tests.support.crawls import wait_for

JOB = {"name": "shop", "urls": ["https://a.example/"]}


def restore(connection: psycopg.Connection) -> None:
    """What a restore in place does to a server that goes on: no connection outlives it, and the generation is another."""
    generation.begin(connection, why="test", actor="test")
    end_connections(connection)


def end_connections(connection: psycopg.Connection) -> None:
    """After: all that the server had are gone; it makes new ones."""
    rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast api'").fetchall()
    pids = [pid for (pid,) in rows]
    connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", (pids,))
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
    wait_for(lambda: connection.execute(alive, (pids,)).fetchone() == (0,), "the end of the connections")


def measured(client: httpx.Client) -> object:
    return client.get("/api/storage").raise_for_status().json()["at"]


def test_answers_of_the_old_store_are_dropped(
    database: Database, connection: psycopg.Connection, tmp_path: Path
) -> None:
    with serving(database, settings(tmp_path)) as api:
        client = api.reader
        first = measured(client)
        end_connections(connection)
        assert measured(client) == first, "it is kept for a minute, and a connection that breaks is no restore"
        restore(connection)
        assert measured(client) != first


def test_live_events_begin_anew(
    database: Database, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_often(monkeypatch)
    with serving(database, settings(tmp_path)) as api:
        client = api.admin
        client.post("/api/jobs", json=JOB)
        with listening(client, "/api/events?kind=job") as stream:
            client.post("/api/jobs/shop/pause")
            last = stream.next()["id"]
            restore(connection)
            with pytest.raises(EOFError):
                stream.next()
        with listening(client, "/api/events?kind=job", last) as stream:
            client.post("/api/jobs/shop/resume")
            assert stream.next("job")["data"]["data"]["to"] == "pending"


def test_every_cache_is_dropped(database: Database, tmp_path: Path) -> None:
    """A service that keeps answers is named, so that it is dropped; those that are no store's are not."""
    services = AppServices.open(settings(tmp_path), database)
    try:
        names = [name for name in dir(AppServices) if not name.startswith("_")]
        made = {name: getattr(services, name) for name in names if name != "dashboard"}
        kept = {name for name, one in made.items() if isinstance(one, BackgroundCache | Cached) or keeps(one)}
        assert kept - {"parser_names"} == set(OF_ONE_GENERATION)
        services.forget()
        assert not set(OF_ONE_GENERATION) & set(vars(services))
    finally:
        services.close()


def keeps(service: object) -> bool:
    """Whether a service has a cache of its own."""
    return any(isinstance(one, Cached) for one in getattr(service, "__dict__", {}).values())
