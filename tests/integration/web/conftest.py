"""Fixtures of tests that ask the API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.connect import Database
from tests.support.api import Api, serving, settings


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A server on the test's database."""
    with serving(database, settings(tmp_path)) as served:
        yield served
