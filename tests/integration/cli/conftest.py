"""Fixtures of the command line's tests."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.db import embedded
from holdfast.db.connection import Database
from tests.support.cli import Cli, only_ours
from tests.support.factories import Store


@pytest.fixture
def cli(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` on the test's database."""
    only_ours(monkeypatch, tmp_path, database)
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def shared_store(server: embedded.Server, template: str) -> Iterator[Store]:
    """A database for a whole module, where a test of its own for each would cost more than the test."""
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE shared TEMPLATE {template} OWNER holdfast STRATEGY file_copy")
        with Database(server.url("shared")).connect() as connection:
            yield Store(connection)
        admin.execute("DROP DATABASE shared WITH (FORCE)")


@pytest.fixture
def shared_cli(
    shared_store: Store,
    server: embedded.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    """`holdfast` on the module's database."""
    only_ours(monkeypatch, tmp_path, Database(server.url("shared")))
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def bare_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` where no database may be needed: one that is asked for all the same does not answer."""
    only_ours(monkeypatch, tmp_path, None)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    return Cli(tmp_path, monkeypatch, capsys)
