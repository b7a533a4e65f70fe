"""What a request meant, and nothing that came later: seeds that come with a commit, and a frontier that is cleared twice."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import factories
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.db.pool import PooledDatabase
from holdfast.frontier import queries as frontier_queries
from holdfast.frontier.service import FrontierService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.model.domain import Status
from holdfast.model.url import DEFAULT_RULES, url_key
from holdfast.operations import queries as operations
from holdfast.operations.handlers import CLEAR
from holdfast.operations.service import OperationRunner, OperationService
from tests.support.api import settings
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

WHO = "ann"


@pytest.fixture
def pooled(database: Database) -> Iterator[PooledDatabase]:
    made = PooledDatabase.from_database(database, size=2, statement_timeout=10)
    yield made
    made.close()


def desk_of(database: Database) -> FrontierService:
    return FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))


def waiting(store: Store) -> set[str]:
    return {row[0] for row in store.connection.execute("SELECT url FROM url_frontier WHERE state = 'waiting'")}


def link(store: Store, url: str, parent: str) -> None:
    """Found by a worker on a domain that somebody else holds."""
    with store.connection.transaction():
        store.insert_foreign(store.row("a.example")["id"], url)
        store.connection.execute(
            "UPDATE url_frontier SET parent_key = %s WHERE url_key = %s", (url_key(parent), url_key(url))
        )


def test_seeds_wake_a_domain_with_the_commit_of_the_request_and_not_before(
    pooled: PooledDatabase, database: Database, store: Store
) -> None:
    """The wake is folded in the same transaction as the URLs: nobody can come too early, and no sweep is needed afterwards."""
    store.seed("https://a.example/")
    store.connection.execute("DELETE FROM url_frontier")
    store.connection.execute("UPDATE job_domains SET state = 'done', ready = false, discovered = 0, waiting = 0")
    store.connection.execute("UPDATE domains SET pages_discovered = 0, frontier_size = 0")
    store.become("a.example", Status.EXHAUSTED)
    with database.connect() as outer:
        outer.execute("BEGIN")
        with pooled.bind(outer):
            desk_of(pooled).seed(["https://a.example/1", "https://b.example/"], actor=WHO)
        assert outer.execute("SELECT count(*) FROM domain_wakes").fetchone() == (0,), (
            "it is folded, not left to a sweep"
        )
        assert store.claim("w1", 2) == []
        assert (store.status("a.example"), store.work("a.example")["ready"]) == ("exhausted", False)
        outer.execute("COMMIT")
    assert store.status("a.example") == "pending"
    assert sorted(claim.domain for claim in store.claim("w1", 2)) == ["a.example", "b.example"]
    assert_invariants(store.connection)


def test_clearing_means_what_was_there_when_somebody_asked(database: Database, store: Store) -> None:
    """A crawl goes on finding links until its domain is taken away, and those go as well; what people add meanwhile stays."""
    store.seed("https://a.example/1", "https://a.example/2")
    asked = OperationService(database).ask(CLEAR, {"job": None, "domain": None}, actor=WHO)
    store.seed("https://a.example/later", "https://b.example/later")
    link(store, "https://a.example/link", "https://a.example/1")
    cleared = desk_of(database).clear(actor=WHO, asked_at=asked.asked_at).cleared
    assert cleared.forgotten == 3
    assert waiting(store) == {"https://a.example/later", "https://b.example/later"}
    assert_invariants(store.connection)
    assert len(store.claim("w1", 2)) == 2, "what stays is to be crawled"


def test_clearing_done_again_by_another_takes_nothing_that_came_meanwhile(
    database: Database, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_queries, "ROWS", 1)
    store.seed(*(f"https://a.example/{n}" for n in range(4)))
    asked = OperationService(database).ask(CLEAR, {"job": None, "domain": None}, actor=WHO)
    deed = factories.operation_handlers(settings(tmp_path), database).by_kind()[CLEAR]

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OperationRunner(database, {CLEAR: lambda arguments, actor, _: deed(arguments, actor, killed)}).work()
    assert len(waiting(store)) == 3, "it came as far as that"
    store.seed("https://a.example/seed")
    link(store, "https://a.example/link", "https://a.example/seed")
    store.connection.execute("UPDATE operations SET heartbeat_at = heartbeat_at - interval '1 hour'")
    assert OperationRunner(database, {CLEAR: deed}).work()
    done = operations.get(store.connection, asked.id)
    assert (done.state, done.attempts, done.result and done.result["forgotten"]) == ("done", 2, 3)
    assert waiting(store) == {"https://a.example/seed", "https://a.example/link"}
    assert_invariants(store.connection)


def test_who_takes_an_operation_hears_whether_it_was_begun_before(connection: psycopg.Connection) -> None:
    operations.ask(connection, "verify", {}, actor=WHO)
    first = operations.take(connection)
    assert first is not None
    assert not first.again
    operations.give_back(connection, first)
    second = operations.take(connection)
    assert second is not None
    assert (second.again, second.attempts) == (True, 1), "it was stopped in order, and may have done a part"
