"""Fixtures for tests of the bundled server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db import embedded
from tests.support.servers import open_folder


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A data folder whose server may be stopped and killed, but is not damaged. Its name is all that shells hate."""
    with open_folder() as folder:
        yield folder / 'it\'s a "$HOME" `id` \\ of data'


@pytest.fixture
def data(shared: Path) -> Path:
    """That folder, its server running."""
    embedded.ensure_running(shared)
    return shared


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own that every user may pass through."""
    with open_folder() as made:
        yield made
