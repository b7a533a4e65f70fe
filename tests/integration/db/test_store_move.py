"""A store moves to another database: the same there, closed here, and whole after a kill at any point."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.db import claims, embedded, migrate, move_target, own_tables, store_move
from holdfast.db.connection import Database
from holdfast.db.move_tables import Table
from holdfast.errors import Refused, SchemaMismatch, StoreError, StoreMoved
from tests.support.catalogue import catalogue
from tests.support.factories import Store
from tests.support.furnished import furnish
from tests.support.moving import events_of, mover, old_weeks, rows_of, sequences_of, to_database, yes


@pytest.fixture
def place(server: embedded.Server, admin: psycopg.Connection) -> Iterator[Database]:
    """An empty database to move to."""
    name = sql.Identifier("test_moved")
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
    yield Database(server.url("test_moved"))
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def without_casts(text: str) -> str:
    """PostgreSQL writes the casts of a condition in another way when it is read a second time, as after a dump."""
    return re.sub(r"::(text|character varying)(\[\])?|[()]", "", text)


def test_everything_moves_and_the_old_store_says_where_to(database: Database, place: Database) -> None:
    furnish(database)
    with database.session() as old:
        old_weeks(old)
        held = Store(old).claim_one()
        before, events, sequences, schema = rows_of(old), events_of(old), sequences_of(old), catalogue(old)
        epochs = dict(old.execute("SELECT id, claim_epoch FROM domains").fetchall())
    announced: list[float] = []
    result = mover(database, to_database(place)).run(confirm=announced.append)
    assert (len(announced), result.ahead_rows) == (1, 3000)
    assert result.generation > 1
    with place.session() as new, database.session() as old:
        migrate.check(new, place.address)
        assert rows_of(old) == before
        there = rows_of(new)
        assert {name for name in before if there[name] != before[name]} == {"public.stats_fresh"}, "the claim ended"
        assert there.keys() == before.keys()
        assert events
        assert events_of(new)[: len(events)] == events, "the run that was under way ended after them"
        assert sequences_of(new) == sequences
        assert without_casts(catalogue(new)) == without_casts(schema)
        assert new.execute("SELECT to_regnamespace('holdfast_move')").fetchone() == (None,)
        raised = new.execute("SELECT id, claim_epoch FROM domains").fetchall()
        assert all(epoch >= epochs[domain_id] + 1_000_000 for domain_id, epoch in raised)
        assert new.execute("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL").fetchone() == (0,)
        with pytest.raises(
            StoreMoved, match=r"was moved to db\.example:5432/holdfast at .* UTC.*: set HOLDFAST_DATABASE_URL"
        ):
            migrate.check(old, database.address)
        assert claims.fence(old, worker="w1", held=[(held.domain_id, held.epoch)]) == {held.domain_id}, (
            "it is still held here"
        )
        assert old.execute("SELECT count(*) FROM domains").fetchone() != (0,), "it can be read"
    with pytest.raises(StoreMoved, match="was moved to"), database.session() as old:
        Store(old).seed("late.example/")
    with pytest.raises(StoreMoved, match="was moved to"), database.session() as old:
        claims.renew(old, worker="w1", held=[(held.domain_id, held.epoch)], lease=timedelta(minutes=1))
    with pytest.raises(StoreMoved, match="was moved to"):
        migrate.downgrade(database, "base")
    with database.session() as old:
        assert rows_of(old) == before, "nothing was written"


def test_there_and_back_again(database: Database, place: Database) -> None:
    furnish(database)
    with database.session() as old:
        before = rows_of(old)
    moved = mover(database, to_database(place)).run(confirm=yes)
    with place.session() as new:
        assert rows_of(new) == before
        Store(new).seed("new.example/")
        before = rows_of(new)
    with pytest.raises(Refused, match="--replace"):
        mover(place, to_database(database, "home")).run(confirm=yes)
    assert mover(place, to_database(database, "home")).plan().replaces
    assert mover(place, to_database(database, "home")).run(confirm=yes, replace=True).generation > moved.generation
    with database.session() as home:
        assert rows_of(home) == before
        Store(home).seed("newer.example/")
    with pytest.raises(StoreMoved, match="was moved to home"), place.session() as new:
        Store(new).seed("newer.example/")


def test_what_must_not_be_overwritten_is_not(database: Database, place: Database) -> None:
    migrate.upgrade(place)
    with place.session() as new:
        Store(new).seed("other.example/")
    with pytest.raises(Refused, match="another Holdfast store"):
        mover(database, to_database(place)).run(confirm=yes, replace=True)
    with pytest.raises(Refused, match="already"):
        mover(database, to_database(database)).run(confirm=yes)
    with database.session() as old:
        assert store_move.read(old) is None
        Store(old).seed("a.example/")


def test_a_move_that_is_not_confirmed_changes_nothing(database: Database, place: Database) -> None:
    furnish(database)

    def no(_: float) -> None:
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        mover(database, to_database(place)).run(confirm=no)
    with database.session() as old:
        Store(old).seed("a.example/")
        before = rows_of(old)
    with pytest.raises(SchemaMismatch, match="is being filled"), place.session() as new:
        migrate.check(new, place.address)
    with pytest.raises(SchemaMismatch, match="is being filled"):
        migrate.upgrade(place)
    mover(database, to_database(place)).run(confirm=yes)
    with place.session() as new:
        assert rows_of(new) == before


def test_a_writer_that_does_not_end_is_named_and_the_store_stays_open(database: Database, place: Database) -> None:
    with database.with_application_name("psql of Ann").session() as writer:
        writer.execute("BEGIN")
        writer.execute("UPDATE duties SET mark = mark")
        with pytest.raises(Refused, match=r"psql of Ann \(process \d+\) has written to duties for 1 s"):
            mover(database, to_database(place)).run(confirm=yes)
        writer.execute("ROLLBACK")
        Store(writer).seed("a.example/")
    mover(database, to_database(place)).run(confirm=yes)


def test_a_table_that_differs_is_not_taken_for_the_same(
    database: Database, place: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a row was lost on the way, each time."""
    furnish(database)
    fill = move_target.fill

    def lossy(source: psycopg.Connection, target: psycopg.Connection, table: Table, **options: Any) -> int:
        rows = fill(source, target, table, **options)
        if table.name == "url_frontier":
            target.execute("DELETE FROM url_frontier WHERE url_key = (SELECT min(url_key) FROM url_frontier)")
        return rows

    said: list[str] = []
    with monkeypatch.context() as patch, database.session() as old:
        before = rows_of(old)
        patch.setattr(move_target, "fill", lossy)
        with pytest.raises(
            StoreError, match=r"url_frontier is not the same in both databases \(\d+ rows with the hash"
        ):
            mover(database, to_database(place), say=said.append).run(confirm=yes)
        assert said[-1].startswith("The old store is whole, and closed: the same command goes on")
        assert rows_of(old) == before
    mover(database, to_database(place)).run(confirm=yes)
    with place.session() as new:
        assert rows_of(new) == before


def test_rows_that_are_deleted_after_they_were_copied_are_deleted_there(database: Database, place: Database) -> None:
    with database.session() as old:
        old_weeks(old)

        def purge(_: float) -> None:
            old.execute("DELETE FROM crawl_log_20200104 WHERE crawled_at < '2020-04-01 05:00+00'")
            old.execute("DROP TABLE crawl_log_20200105")

        mover(database, to_database(place)).run(confirm=purge)
        with place.session() as new:
            assert rows_of(new) == rows_of(old)
            assert new.execute("SELECT count(*) FROM crawl_log WHERE crawled_at < '2021-01-01'").fetchone() == (1701,)


def test_tables_of_others_stay_as_they_are(database: Database, place: Database) -> None:
    furnish(database)
    for one in (database, place):
        with one.session() as connection:
            connection.execute("CREATE TABLE notes AS SELECT 'of ' || current_database() AS text")
    mover(database, to_database(place)).run(confirm=yes)
    for one in (database, place):
        with one.session() as connection:
            connection.execute("UPDATE notes SET text = text || '!'")
            assert connection.execute("SELECT text = 'of ' || current_database() || '!' FROM notes").fetchall() == [
                (True,)
            ]


def test_the_tables_of_the_schema_are_known(connection: psycopg.Connection) -> None:
    query = """
        SELECT c.relname FROM pg_class c
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace AND c.relname !~ '^crawl_log_(default|[0-9]+)$'
    """
    assert {name for (name,) in connection.execute(query)} == own_tables.names() - {"crawl_log_default"}


def test_numbers_of_transactions_do_not_move(connection: psycopg.Connection) -> None:
    """Where a column of them is added, the move must say what they become on another server."""
    query = """
        SELECT a.attrelid::regclass::text, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.atttypid = 'xid8'::regtype AND c.relkind IN ('r', 'p') AND a.attnum > 0 ORDER BY 1
    """
    found = connection.execute(query).fetchall()
    assert found == [("document_deletions", "changed"), ("documents", "changed"), ("events", "xid")]
