"""A store moves from the bundled server to a shared one, of PostgreSQL 15 or 18, and back: every table is the same."""

from pathlib import Path

import pytest

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database, redact
from holdfast.errors import StoreMoved
from tests.support.factories import Store
from tests.support.furnished import furnish
from tests.support.moving import mover, old_weeks, rows_of, sequences_of, to_database, yes
from tests.support.shared_server import PASSWORD, debian, started


@pytest.mark.parametrize("major", [15, 18])
def test_from_the_bundled_server_to_a_shared_one_and_back(
    database: Database, server: embedded.Server, major: int
) -> None:
    """The role there owns its database and nothing else, so it may not switch off triggers or references of others."""
    programs: Path | None = server.bin if major == 18 else debian(major)
    if programs is None:
        pytest.skip(f"Debian's package postgresql-{major} is not installed")
    furnish(database)
    with database.session() as old:
        old_weeks(old)
        old.execute(
            "INSERT INTO page_texts SELECT 1, 1, decode(md5(n::text), 'hex'), decode(repeat(md5(n::text), 60000), 'hex') "
            "FROM generate_series(1, 3) n"
        )
        before, sequences = rows_of(old), sequences_of(old)
    with started(programs) as shared:
        assert shared.major == major
        there = Database(shared.url)
        assert redact(shared.url) == shared.name
        mover(database, to_database(there, redact(shared.url))).run(confirm=yes)
        with there.session() as new, database.session() as old:
            migrate.check(new, there.address)
            assert rows_of(new) == before
            assert sequences_of(new) == sequences
            with pytest.raises(StoreMoved, match=shared.name):
                migrate.check(old, database.address)
            marks = old.execute("SELECT to_jsonb(m)::text FROM store_move m").fetchall()
            assert PASSWORD not in str(marks)
            Store(new).seed("new.example/")
            before = rows_of(new)
        mover(there, to_database(database, "home")).run(confirm=yes, replace=True)
        with database.session() as home:
            assert rows_of(home) == before
            Store(home).seed("newer.example/")
        with pytest.raises(StoreMoved, match="was moved to home"), there.session() as new:
            Store(new).seed("newer.example/")
