"""Connections: what goes wrong is said in one sentence, without a secret."""

import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.db import connection as connect
from holdfast.db.connection import Database, KeptConnection
from holdfast.errors import StoreError, StoreUnavailable

SECRET = "correct horse"
ENCODED = "correct%20horse"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def refusing() -> Iterator[int]:
    """A server that refuses every password, as PostgreSQL words it; its port."""
    fields = b'SFATAL\0C28P01\0Mpassword authentication failed for user "crawler"\0\0'
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1000)
                client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

        thread = threading.Thread(target=answer)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def test_an_address_where_nothing_answers() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable) as problem:
        Database(f"postgresql://crawler:{ENCODED}@127.0.0.1:{port}/crawls").connect()
    text = str(problem.value)
    assert text.startswith(f"The database at 127.0.0.1:{port}/crawls does not answer: ")
    assert "Connection refused" in text
    assert text.endswith("Check that it runs and that HOLDFAST_DATABASE_URL is right.")
    assert SECRET not in text
    assert "\n" not in text


def test_a_database_that_does_not_exist(database: Database) -> None:
    wrong = Database(database.url.replace("/test_", "/no_test_"))
    with pytest.raises(StoreUnavailable, match=r'database "no_test_.*" does not exist'), wrong.session():
        pass


def test_a_password_that_is_refused_is_not_repeated(refusing: int) -> None:
    options = "sslmode=disable&gssencmode=disable"
    database = Database(f"postgresql://crawler:{ENCODED}@127.0.0.1:{refusing}/crawls?{options}")
    with pytest.raises(StoreUnavailable, match='password authentication failed for user "crawler"') as problem:
        database.connect()
    for text in (str(problem.value), repr(database), database.address):
        assert SECRET not in text
        assert ENCODED not in text


@pytest.mark.parametrize(
    "url",
    [
        "crawler:secret@127.0.0.1:1/crawls",  # no scheme
        "postgresql://crawler:se%cret@127.0.0.1:1/crawls",  # a % that is not encoded
        "postgresql://crawler:half@secret@127.0.0.1:1/crawls",  # an @
        "postgresql://crawler:1/secret@127.0.0.1:1/crawls",  # a /
        "postgresql://crawler:secret@[::1/crawls",
        "host=127.0.0.1 port=1 password='secret",
        "postgresql://127.0.0.1:1/crawls?password=secret&pasword=secret",
    ],
)
def test_an_address_that_cannot_be_read_is_not_shown_because_its_password_may_be_anywhere(url: str) -> None:
    database = Database(url, connect_timeout=1)
    with pytest.raises(StoreError, match=r"cannot be read.*postgresql://user:password@host:port/database") as problem:
        database.connect()
    for text in (str(problem.value), repr(database), database.address):
        assert "cret" not in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@db.example:6432/crawls", "db.example:6432/crawls"),
        ("postgresql://me:pw@db.example", "db.example/me"),
        ("host=/run/pg dbname=crawls password=pw", "/run/pg/crawls"),
        ("postgresql:///crawls", "the default host/crawls"),
        ("postgresql://me:p%40w@db.example/crawls?sslmode=require", "db.example/crawls"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert Database(url).address == shown
    assert repr(Database(url)) == f"Database({shown!r})"


def test_a_server_that_is_too_old(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "OLDEST_SERVER", 99)
    with pytest.raises(StoreError, match=r"is PostgreSQL \d+; Holdfast needs 99 or newer"):
        database.connect()


def test_a_connection_commits_by_itself_in_utc_under_its_name_with_a_limit(database: Database) -> None:
    with Database(database.url, statement_timeout=1.5).with_application_name("holdfast test").session() as connection:
        assert connection.autocommit
        settings = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("timezone", "statement_timeout", "application_name")
        ]
    assert settings == [("UTC",), ("1500ms",), ("holdfast test",)]
    assert connection.closed


def test_what_postgresql_refuses_in_a_session_ends_as_a_store_error(database: Database) -> None:
    sentence = f"The database at {database.address} refused: division by zero"
    with pytest.raises(StoreError, match=sentence) as problem, database.session() as connection:
        connection.execute("SELECT 1 / 0")
    assert not isinstance(problem.value, StoreUnavailable)
    assert isinstance(problem.value.__cause__, psycopg.errors.DivisionByZero)
    assert connection.closed


def test_a_session_that_breaks_ends_as_unavailable(database: Database) -> None:
    sentence = f"The connection to {database.address} broke: "
    with pytest.raises(StoreUnavailable, match=sentence), database.session() as connection:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert connection.closed


def test_other_exceptions_leave_a_session_as_they_are(database: Database) -> None:
    with pytest.raises(KeyError), database.session() as connection:
        raise KeyError
    assert connection.closed


def test_a_kept_connection_is_the_same_in_each_session_until_an_error(database: Database) -> None:
    with KeptConnection(database) as kept:
        with kept.session() as connection:
            connection.execute("SELECT 1")
        with kept.session() as again:
            assert again is connection
        with pytest.raises(StoreError, match="refused: division by zero"), kept.session() as connection:
            connection.execute("SELECT 1 / 0")
        assert connection.closed
        with kept.session() as another:
            assert another.execute("SELECT 2").fetchone() == (2,)
    assert another.closed


def test_a_kept_connection_that_broke_meanwhile_is_replaced(database: Database) -> None:
    with KeptConnection(database) as kept:
        with kept.session() as connection:
            backend = connection.info.backend_pid
        with database.session() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))
        with kept.session() as another:
            assert another.info.backend_pid != backend
            assert another.execute("SELECT 2").fetchone() == (2,)
        assert connection.closed


def test_a_kept_connection_that_breaks_in_a_session_is_replaced(database: Database) -> None:
    with KeptConnection(database) as kept:
        with pytest.raises(StoreUnavailable, match="broke: "), kept.session() as connection:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        with kept.session() as another:
            assert another is not connection
            assert another.execute("SELECT 2").fetchone() == (2,)


def test_a_kept_connection_prepares_nothing(database: Database) -> None:
    with KeptConnection(database) as kept:
        for number in range(10):
            with kept.session() as connection:
                assert connection.execute("SELECT %s + 1", (number,)).fetchone() == (number + 1,)
        with kept.session() as connection:
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
