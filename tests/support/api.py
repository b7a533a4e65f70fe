"""The API as tests ask it: a real server on a real socket, in a thread, and clients of every kind."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.accounts.passwords import Argon2
from holdfast.accounts.service import AccountService
from holdfast.api import event_hub
from holdfast.api.app_services import AppServices
from holdfast.api.server import Server, listen, uvicorn_config
from holdfast.db.connection import Database
from holdfast.model.auth import SCOPES, Role, Scope
from holdfast.settings import Settings, Web

PASSWORD = "correct horse battery"
WEAK = Argon2(time_cost=1, memory_cost=8, parallelism=1)
"""Fast, for tests that are about something else."""
MANY = 1_000_000
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: each would load the certificates of all authorities, which takes longer than what it asks."""


@dataclass
class Api:
    """A server that runs, and whoever asks it."""

    url: str
    services: AppServices
    accounts: AccountService
    _open: list[httpx.Client] = field(default_factory=list)

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """Somebody with a key, or nobody."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        made = httpx.Client(
            base_url=self.url, headers=headers | more.pop("headers", {}), timeout=30, verify=PLAIN, **more
        )
        self._open.append(made)
        return made

    def user(self, name: str, role: Role = Role.USER) -> int:
        """A user, with PASSWORD; the id."""
        return self.accounts.add(name, role, PASSWORD, actor="test")[0].id

    def key(self, role: Role, *scopes: Scope) -> str:
        """The token of a new key of a new user in this role; without scopes: all that it may have."""
        number = len(self.accounts.keys(limit=500)) + 1
        user_id = self.user(f"{role}-{number}", role)
        return self.accounts.create_key(user_id, "test", scopes or SCOPES[role], None, actor="test")[1]

    def login(self, name: str, password: str = PASSWORD) -> httpx.Client:
        """Somebody with a session, who repeats what a session has to repeat."""
        client = self.client()
        answer = client.post("/api/auth/login", json={"name": name, "password": password})
        answer.raise_for_status()
        client.headers["X-CSRF-Token"] = answer.json()["csrf"]
        return client

    @property
    def admin(self) -> httpx.Client:
        """An admin's key."""
        return self.client(self.key(Role.ADMIN))

    @property
    def reader(self) -> httpx.Client:
        """A user's key."""
        return self.client(self.key(Role.USER))

    @property
    def anybody(self) -> httpx.Client:
        """Nobody in particular."""
        return self.client()

    def close(self) -> None:
        for client in self._open:
            client.close()


@dataclass(frozen=True)
class Shared:
    """A server that many tests ask, one after the other, each without changing anything."""

    admin: httpx.Client
    reader: httpx.Client
    anybody: httpx.Client
    database: Database
    connection: psycopg.Connection

    def value(self, query: str) -> Any:
        """The first column of the first row."""
        row = self.connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live events and figures come ten times as soon: whoever tests what comes, and not when, need not wait for it."""
    monkeypatch.setattr(event_hub, "LOG_POLL_INTERVAL", event_hub.LOG_POLL_INTERVAL / 10)
    monkeypatch.setattr(event_hub, "SNAPSHOT_INTERVAL", event_hub.SNAPSHOT_INTERVAL / 10)


def settings(data: Path, **web: Any) -> Settings:
    """Settings of a server whose limits nobody meets by accident."""
    limits = dict.fromkeys(("anonymous_limit", "user_limit", "admin_limit", "seed_limit"), MANY)
    return Settings(data=data, web=Web(**{"port": 0, "user_listeners": 1000, **limits, **web}))


@contextmanager
def serving(database: Database, given: Settings, *, no_auth: bool = False) -> Iterator[Api]:
    """A server on a free port, for as long as this lasts."""
    services = AppServices.open(given, database, no_auth=no_auth)
    services.accounts = AccountService(services.database, given.web, WEAK)
    server = Server(uvicorn_config(services), services)
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    api = Api(f"http://127.0.0.1:{listener.getsockname()[1]}", services, services.accounts)
    try:
        yield api
    finally:
        api.close()
        services.hub.close()
        server.should_exit = True
        thread.join(15)
        services.close()
        assert not thread.is_alive(), "the server did not end"
