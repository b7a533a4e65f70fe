"""A server, a browser, and people who use both."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser

from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.browser import chromium
from tests.browser.chromium import Visitor
from tests.conftest import MakeDatabase
from tests.support.api import PASSWORD, serving, settings
from tests.support.cli import only_ours
from tests.support.crawls import Crawls, Program, wait_for

MANY = 1_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; where there is none the tests are skipped, but never in continuous integration.

    Not for the whole session: Playwright runs an event loop in this thread, and other tests could not start theirs.
    """
    if chromium.program() is None:
        if os.environ.get("CI"):
            pytest.fail("There is no Chromium; .ci/run installs it.")
        pytest.skip("There is no Chromium; `apt-get install chromium` brings it.")
    with chromium.browser() as started:
        yield started


@pytest.fixture
def crawls(
    database: Database, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Crawls:
    """Crawls on the test's database."""
    only_ours(monkeypatch, tmp_path, database)
    made = Crawls(database, connection, tmp_path)
    made.set(
        web=dict.fromkeys(("anonymous_limit", "user_limit", "admin_limit", "seed_limit"), MANY),
        fetch={"allow_private": True},
        politeness={"circuit_failures": 1000},
    )
    return made


@dataclass
class Dashboard:
    """A server, and what is needed to use it as `admin`."""

    crawls: Crawls
    origin: str
    password: str


@dataclass
class ServedDashboard(Dashboard):
    """`holdfast serve` as a process."""

    program: Program


Serve = Callable[..., ServedDashboard]
MakeVisitor = Callable[..., Visitor]


@pytest.fixture(scope="module")
def dashboard(make_database: MakeDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A server in this process with a store that the tests of a file share: it is there at once, where a process takes seconds to start.

    In this process the server has a thread and an event loop of its own, as Playwright has.
    """
    folder = tmp_path_factory.mktemp("dashboard")
    with (
        make_database() as database,
        database.connect() as connection,
        serving(database, settings(folder / "data")) as api,
    ):
        api.user("admin", Role.ADMIN)
        yield Dashboard(Crawls(database, connection, folder), api.url, PASSWORD)


@pytest.fixture
def serve(crawls: Crawls) -> Iterator[Serve]:
    """Starts `holdfast serve` with these options; it ends with the test."""
    programs: list[Program] = []
    password = ""

    def start(*options: str, port: int = 0) -> ServedDashboard:
        nonlocal password
        program = crawls.start("serve", "--port", str(port), *options)
        program.__enter__()
        programs.append(program)
        wait_for(lambda: "Serving at" in program.said() or not program.lives, "the server")
        said = program.said()
        if found := re.search(r"Password: (\S+)", said):
            password = found[1]
        address = re.search(r"Serving at (\S+)", said)
        assert address is not None, said
        return ServedDashboard(crawls, address[1], password, program)

    yield start
    for program in programs:
        program.__exit__(None, None, None)


@pytest.fixture
def visitor(browser: Browser) -> Iterator[MakeVisitor]:
    """Makes people with browsers of their own; at the end nothing must have gone wrong on their pages."""
    made: list[Visitor] = []

    def make(origin: str, **options: object) -> Visitor:
        made.append(Visitor.at(browser, origin, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()
    for one in made:
        one.check()
