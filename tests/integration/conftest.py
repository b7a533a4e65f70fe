"""Fixtures of tests that crawl."""

from pathlib import Path

import psycopg
import pytest

from holdfast.db.connection import Database
from tests.support.cli import only_ours
from tests.support.crawls import Crawls


@pytest.fixture
def crawls(
    database: Database, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Crawls:
    """Crawls on the test's database."""
    only_ours(monkeypatch, tmp_path, database)
    return Crawls(database, connection, tmp_path)
