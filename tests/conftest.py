"""Fixtures for all tests: one embedded server a session, one database a test."""

import gc
import itertools
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import hypothesis
import psycopg
import pytest
from psycopg import sql

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database

pytest.register_assert_rewrite("tests.support.factories", "tests.support.invariants")  # so that they say what differs

from tests.support.factories import Store  # noqa: E402
from tests.support.servers import data_in_memory  # noqa: E402

# How long an example takes depends on what else the machine does, so it decides nothing.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

MakeDatabase = Callable[[], AbstractContextManager[Database]]
_TEMPLATE = "holdfast_template"
_FIGURE = "figure"
_LONGEST = ("tests/crash/", "tests/simulation/", "tests/integration/crawler/", "tests/integration/cli/")
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Let processes that tests start hear Ctrl-C: a shell ignores SIGINT in what runs in its background, and children inherit that.

    The garbage collector is off while tests are collected: modules and tests stay, and there is a million objects of them.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders with the longest files go first and the quick unit tests stay last, so that the processes end at about the same time."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_collection_finish() -> None:
    """Let the garbage collector search only what tests create."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """Undo what a command that ran in this process did to logging, so that later tests do not print its lines."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    level, raising = ours.level, logging.raiseExceptions
    yield
    for handler in [handler for handler in root.handlers if type(handler).__module__.startswith("holdfast.")]:
        root.removeHandler(handler)
        handler.close()
    ours.setLevel(level)
    logging.raiseExceptions = raising


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says a figure that a reader of the test run wants to see; it is printed at the end, passed or not."""
    return lambda text: record_property(_FIGURE, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    figures = [str(text) for report in reports for name, text in report.user_properties if name == _FIGURE]
    if figures:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.line(text)


@pytest.fixture(scope="session")
def data_folder() -> Iterator[Path]:
    """Where the session's server lives."""
    with data_in_memory() as data:
        yield data


@pytest.fixture(scope="session")
def server(data_folder: Path) -> embedded.Server:
    """The bundled PostgreSQL, as the product starts it but for fsync and its memory: no test here cuts the power, a database per test
    means many files, and to make one or to drop it looks at every buffer."""
    less = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}
    return embedded.ensure_running(data_folder, extra_settings=less)


@pytest.fixture(scope="session")
def admin(server: embedded.Server) -> Iterator[psycopg.Connection]:
    """Makes databases and drops them. One for all tests: to connect costs half as much as to copy the template."""
    with psycopg.connect(server.admin_url(), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def template(server: embedded.Server, admin: psycopg.Connection) -> str:
    """A database with the schema, from which each test's database is copied."""
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(sql.Identifier(_TEMPLATE)))
    migrate.upgrade(Database(server.url(_TEMPLATE)))
    return _TEMPLATE


@pytest.fixture(scope="session")
def make_database(server: embedded.Server, admin: psycopg.Connection, template: str) -> MakeDatabase:
    """Makes databases with the schema and nothing in it, each closed at the end of its `with`.

    It is dropped when the next one has been made: PostgreSQL looks only ten times a second whether the last connection has gone, and by
    then it has. The last database goes with the server.
    """
    closed: list[sql.Identifier] = []

    @contextmanager
    def make() -> Iterator[Database]:
        number = f"test_{next(_numbers)}"
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER holdfast STRATEGY file_copy")
        admin.execute(copy.format(sql.Identifier(number), sql.Identifier(template)))
        while closed:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(closed.pop()))
        try:
            yield Database(server.url(number))
        finally:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (number,))
            closed.append(sql.Identifier(number))

    return make


@pytest.fixture
def database(make_database: MakeDatabase) -> Iterator[Database]:
    """A database of the test's own, with the schema and nothing in it."""
    with make_database() as made:
        yield made


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    """A connection to the test's database."""
    with database.connect() as connection:
        yield connection


@pytest.fixture
def store(connection: psycopg.Connection) -> Store:
    """Short ways to put things into the test's database."""
    return Store(connection)
