"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest
from tests.support.cli import Cli, only_ours

from holdfast.store.connect import Database


@pytest.fixture
def cli(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` on the test's database."""
    only_ours(monkeypatch, tmp_path, database)
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def bare_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` where no database may be needed: one that is asked for all the same does not answer."""
    only_ours(monkeypatch, tmp_path, None)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    return Cli(tmp_path, monkeypatch, capsys)
