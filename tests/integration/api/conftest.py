"""Fixtures of tests that ask the API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db.connection import Database
from tests.conftest import MakeDatabase
from tests.support.api import Api, Shared, serving, settings


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A server on the test's database."""
    with serving(database, settings(tmp_path)) as served:
        yield served


@pytest.fixture(scope="module")
def stage(make_database: MakeDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A server on a database of the file's own. Whoever puts something into it does so once, for all tests of the file."""
    with (
        make_database() as database,
        serving(database, settings(tmp_path_factory.mktemp("stage"))) as api,
        database.connect() as connection,
    ):
        yield Shared(api.admin, api.reader, api.anybody, database, connection)


@pytest.fixture
def shared(stage: Shared) -> Iterator[Shared]:
    """The same server for all tests of a file that are about what is refused: a hundred refusals need no hundred databases."""
    done = "SELECT count(*) FROM audit_log"
    before = stage.value(done)
    yield stage
    assert stage.value(done) == before, "somebody did something; who shares a server must not"
