"""Fixtures of tests of the client: a real server, and clients of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Client
from holdfast.client import retry
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support.api import Api, look_often, serving, settings


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither side takes its time."""
    look_often(monkeypatch)
    monkeypatch.setattr(retry, "_FIRST_BACKOFF", retry._FIRST_BACKOFF / 10)


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A server on the test's database."""
    with serving(database, settings(tmp_path)) as served:
        yield served


@pytest.fixture
def key(api: Api) -> str:
    """An admin's key."""
    return api.key(Role.ADMIN)


@pytest.fixture
def client(api: Api, key: str) -> Iterator[Client]:
    """An admin's client."""
    with Client(api.url, key=key) as made:
        yield made
