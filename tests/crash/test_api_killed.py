"""The API's server is killed between request and answer, and told to stop while it is busy; `make prove` kills it hundreds of times."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from holdfast.cli.command_context import EXIT_INTERRUPTED
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture.process import is_alive
from tests.crash.conftest import new_database
from tests.prove.api_kills import Clients, at_points, at_random, judged
from tests.prove.api_server import PATIENCE, Door, Served, wait_for
from tests.prove.sandbox import ExternalSandbox
from tests.support.api import PLAIN

KILLS = 1
_BUSY = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'crawl_batches'::regclass"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_BACKGROUNDS = "SELECT count(*) FROM procrastinate.procrastinate_workers"

Figure = Callable[[str], None]


class Listener:
    """Somebody who listens to live events, in a thread of his own."""

    def __init__(self, url: str, path: str, headers: dict[str, str]) -> None:
        self._url, self._headers = f"{url}{path}", headers
        self.begun = threading.Event()
        self.problem: Exception | None = None
        """The connection broke, instead of the stream coming to its end."""
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        try:
            with httpx.stream("GET", self._url, headers=self._headers, timeout=PATIENCE, verify=PLAIN) as answer:
                answer.raise_for_status()
                for _ in answer.iter_bytes():
                    self.begun.set()
        except httpx.HTTPError as problem:
            self.problem = problem
        finally:
            self.begun.set()


@pytest.fixture(scope="module")
def stage(
    server: embedded.Server, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ExternalSandbox, Served, Clients]]:
    """`holdfast serve` with a worker, on a web of one site, and clients of it. Starting it is what these tests spend their time with."""
    with (
        new_database(server, template, "api_killed") as database,
        WebProcess(Web(1, 1, Site(5, 2, 500))) as web,
        ExternalSandbox(tmp_path_factory.mktemp("serve"), database) as sandbox,
        Served(sandbox, "--workers", "1") as served,
    ):
        yield sandbox, served, Clients(served.url, sandbox, web.url())


@contextmanager
def _locked(database: Database) -> Iterator[None]:
    """Nobody gets at batches before the end of this."""
    with database.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE crawl_batches IN ACCESS EXCLUSIVE MODE")
        yield


def _value(database: Database, query: str) -> int:
    with database.session() as connection:
        row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0


def test_killed_before_the_commit_nothing_is_there_and_after_it_once(sandbox: ExternalSandbox, figure: Figure) -> None:
    with sandbox, Door(sandbox) as door:
        died, violations = at_points(sandbox, ["job"], door, print)
    assert violations == []
    assert died == 2
    figure(f"a request with an Idempotency-Key, its server killed on both sides of the commit: {died} kills, done once")


def test_killed_at_any_moment_every_request_is_done_once(
    stage: tuple[ExternalSandbox, Served, Clients], figure: Figure
) -> None:
    sandbox, served, clients = stage
    before = served.fronts()
    entry = at_random(5, KILLS, sandbox, served, clients, print)
    assert len(before) == len(served.fronts()) == 1
    assert served.fronts() != before, "another process has its place"
    assert entry["violations"] == []
    assert entry["landed"] == KILLS
    requests, cut, replayed = (entry[what] for what in ("requests", "repeats", "replayed"))
    figure(
        f"{KILLS} kills of the API: {requests} requests, {cut} cut off, {replayed} of them answered with a stored response"
    )
    with sandbox.database().session() as connection:  # what would be wrong is seen to be
        connection.execute("INSERT INTO crawl_batches (name, created_by) VALUES ('proof-twice', 'proof')")
        connection.execute(
            "DELETE FROM audit_log WHERE id = (SELECT max(id) FROM audit_log WHERE starts_with(actor, 'proof'))"
        )
        connection.execute("UPDATE kept_answers SET status = NULL WHERE key = (SELECT min(key) FROM kept_answers)")
    faults = {fault.split(":")[0] for fault in judged(sandbox, clients)}
    assert {"batch in the store", "lines in the audit log", "stored responses"} <= faults


def test_told_to_stop_it_ends_in_order(stage: tuple[ExternalSandbox, Served, Clients]) -> None:
    sandbox, served, clients = stage
    database, headers = sandbox.database(), clients.key_headers()
    with clients.connected() as client:
        assert client.get("/api/auth/me", headers=headers).json()["role"] == "admin"
    listeners = [
        Listener(served.url, path, headers) for path in ("/api/events", "/api/stats/events", "/api/events?kind=job")
    ]
    for listener in listeners:
        assert listener.begun.wait(PATIENCE)
    request, everybody, backgrounds = clients.new("batch"), served.everybody(), _value(database, _BACKGROUNDS)

    def ask() -> None:
        with clients.connected() as client:
            clients.send(client, request)

    asking = threading.Thread(target=ask)
    with _locked(database):
        asking.start()
        wait_for(lambda: _value(database, _BUSY), "the request does not come to where it has to wait")
        served.terminate()
        for listener in listeners:  # they are sent home while it waits
            listener.thread.join(PATIENCE)
        wait_for(lambda: "Stopping" in served.said(), "it does not hear that it is to stop")
    asking.join(PATIENCE)
    assert served.end() == EXIT_INTERRUPTED
    assert [listener.problem for listener in listeners] == [None] * 3
    assert request.answer is not None, "what it had begun is answered"
    assert request.answer.status_code == 201
    assert [pid for pid in everybody if is_alive(pid)] == []
    assert _value(database, _OTHERS) == 0
    assert _value(database, "SELECT count(*) FROM crawl_runs WHERE status = 'running'") == 0
    assert _value(database, _BACKGROUNDS) == backgrounds - 1, (
        "the background said goodbye; those that were killed could not"
    )
