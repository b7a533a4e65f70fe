"""Fixtures of the tests of imports."""

from pathlib import Path

import pytest

from holdfast.db.connection import Database
from tests.support.cli import Cli, only_ours


@pytest.fixture
def cli(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` on the test's database."""
    only_ours(monkeypatch, tmp_path, database)
    return Cli(tmp_path, monkeypatch, capsys)
