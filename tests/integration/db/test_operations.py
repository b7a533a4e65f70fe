"""Long work: asked for, taken by one, taken over from the dead, ended once."""

import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.errors import NotFound
from holdfast.operations import queries as operations


def test_each_is_taken_by_one_in_their_order(connection: psycopg.Connection, database: Database) -> None:
    first = operations.ask(connection, "verify", {"archive": True}, actor="ann")
    second = operations.ask(connection, "verify", {}, actor="ann")
    with database.session() as other:
        taken = [operations.take(connection), operations.take(other), operations.take(other)]
    assert [one and one.id for one in taken] == [first.id, second.id, None]
    assert taken[0] is not None
    assert (taken[0].state, taken[0].attempts, taken[0].arguments) == ("running", 1, {"archive": True})


def test_the_silent_are_replaced_and_cannot_end_it(connection: psycopg.Connection) -> None:
    asked = operations.ask(connection, "verify", {}, actor="ann")
    dead = operations.take(connection)
    assert dead is not None
    assert operations.take(connection) is None
    connection.execute("UPDATE operations SET heartbeat_at = heartbeat_at - interval '1 minute'")
    alive = operations.take(connection)
    assert alive is not None
    assert (alive.id, alive.attempts) == (asked.id, 2)
    assert not operations.beat(connection, dead, {"checks": 3})
    assert not operations.end(connection, dead, result={"ok": False}, problem=None)
    assert operations.beat(connection, alive, {"checks": 5})
    assert operations.get(connection, asked.id).progress == {"checks": 5}
    assert operations.end(connection, alive, result={"ok": True}, problem=None)
    assert not operations.end(connection, alive, result=None, problem="again")
    ended = operations.get(connection, asked.id)
    assert (ended.state, ended.result, ended.problem) == ("done", {"ok": True}, None)


def test_listing_and_forgetting(connection: psycopg.Connection) -> None:
    ids = [operations.ask(connection, "verify", {}, actor="ann").id for _ in range(3)]
    for _ in range(2):
        taken = operations.take(connection)
        assert taken is not None
        operations.end(connection, taken, result=None, problem="it broke")
    assert [one.id for one in operations.listing(connection, limit=2)] == [ids[2], ids[1]]
    assert [one.id for one in operations.listing(connection, before=ids[1])] == [ids[0]]
    assert [one.id for one in operations.listing(connection, state="failed")] == [ids[1], ids[0]]
    connection.execute("UPDATE operations SET ended_at = ended_at - interval '8 days' WHERE id = %s", (ids[0],))
    assert operations.tidy(connection) == 1
    with pytest.raises(NotFound, match="7 days"):
        operations.get(connection, ids[0])
