"""Fixtures of tests of the dashboard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support.api import Api, serving, settings
from tests.support.browsing import Browser, log_in


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A server on the test's database."""
    with serving(database, settings(tmp_path)) as served:
        yield served


@pytest.fixture
def ada(api: Api) -> Browser:
    """An admin with a session."""
    return log_in(api, "ada", Role.ADMIN)


@pytest.fixture
def rita(api: Api) -> Browser:
    """A user with a session, who may only read."""
    return log_in(api, "rita", Role.USER)
