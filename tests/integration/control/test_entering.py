"""Coming in with a key or a session: who it is and how often they came, in one statement that says what the two of them would."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from holdfast.accounts.service import AccountService
from holdfast.accounts.tokens import Kind
from holdfast.db import rate_limits
from holdfast.db.connection import Database
from holdfast.db.request_auth import RateLimits
from holdfast.model.auth import Role, Scope
from tests.support.accounts import HOME, add, come_in, desk, kept

LIMITS = RateLimits(seconds=60, anonymous=2, user=3, admin=4)
NONE = {Kind.KEY: "hfk_" + "x" * 43, Kind.SESSION: "hfs_" + "x" * 43}


@pytest.fixture
def database(database: Database) -> Iterator[Database]:
    with kept(database) as made:
        yield made


@pytest.fixture
def accounts(database: Database) -> AccountService:
    made = desk(database)
    add(made, "ann", Role.ADMIN)
    add(made, "bob", Role.USER)
    return made


def _token(accounts: AccountService, kind: Kind, name: str) -> str:
    if kind is Kind.SESSION:
        return come_in(accounts, name).token
    return accounts.create_key(accounts.show(name).id, "k", {Scope.READ}, None, actor="test")[1]


def _count(connection: psycopg.Connection, tier: str, name: str, most: int) -> int:
    key = rate_limits.key(tier, name, most, LIMITS.seconds)
    return rate_limits.hit(connection, key, limit=most, window=timedelta(seconds=60), amount=0).used


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("name", "most"), [("ann", 4), ("bob", 3)])
def test_the_same_as_looking_up_and_counting(
    accounts: AccountService, connection: psycopg.Connection, kind: Kind, name: str, most: int
) -> None:
    token = _token(accounts, kind, name)
    found = [accounts.authenticate(kind, token, LIMITS, HOME) for _ in range(most + 2)]
    expected = accounts.key(token) if kind is Kind.KEY else accounts.session(token)
    assert expected is not None
    assert [one[0] for one in found if one] == [expected] * (most + 2)
    assert [one[1].allowed for one in found if one] == [True] * most + [False] * 2
    assert [one[1].used for one in found if one] == [*range(1, most + 1), most, most]
    tier = "admin" if name == "ann" else "user"
    assert _count(connection, tier, f"user {expected.user_id}", most) == most, "under the key that others count it by"
    assert _count(connection, "anonymous", f"address {HOME}", 2) == 0


@pytest.mark.parametrize("kind", Kind)
def test_who_is_not_found_is_counted_by_the_address(
    accounts: AccountService, connection: psycopg.Connection, kind: Kind
) -> None:
    found = [accounts.authenticate(kind, NONE[kind], LIMITS, HOME) for _ in range(3)]
    assert [one and (one[0], one[1].allowed) for one in found] == [(None, True), (None, True), (None, False)]
    elsewhere = accounts.authenticate(kind, NONE[kind], LIMITS, "192.0.2.8")
    assert elsewhere is not None
    assert elsewhere[1].allowed
    assert _count(connection, "anonymous", f"address {HOME}", 2) == 2


@pytest.mark.parametrize("kind", Kind)
def test_what_is_no_token_is_not_looked_for(
    accounts: AccountService, connection: psycopg.Connection, kind: Kind
) -> None:
    assert accounts.authenticate(kind, "x", LIMITS, HOME) is None
    assert _count(connection, "anonymous", f"address {HOME}", 2) == 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE users SET disabled_at = clock_timestamp()",
        "UPDATE api_keys SET revoked_at = clock_timestamp(); UPDATE sessions SET revoked_at = clock_timestamp()",
        "UPDATE api_keys SET expires_at = clock_timestamp(); UPDATE sessions SET expires_at = clock_timestamp()",
        "DELETE FROM api_keys; DELETE FROM sessions",
    ],
)
@pytest.mark.parametrize("kind", Kind)
def test_what_has_ended_opens_nothing_from_the_next_request_on(
    accounts: AccountService, connection: psycopg.Connection, kind: Kind, change: str
) -> None:
    token = _token(accounts, kind, "bob")
    before = accounts.authenticate(kind, token, LIMITS, HOME)
    assert before is not None
    assert before[0] is not None
    connection.execute(change)
    after = accounts.authenticate(kind, token, LIMITS, HOME)
    assert after is not None
    assert after[0] is None
    assert _count(connection, "anonymous", f"address {HOME}", 2) == 1


@pytest.mark.parametrize("kind", Kind)
def test_it_is_written_down_once_a_minute_that_it_was_used(
    accounts: AccountService, connection: psycopg.Connection, kind: Kind
) -> None:
    token = _token(accounts, kind, "bob")
    table = "api_keys" if kind is Kind.KEY else "sessions"
    connection.execute(f"UPDATE {table} SET last_used_at = clock_timestamp() - interval '2 minutes'")
    used = []
    for _ in range(2):
        accounts.authenticate(kind, token, LIMITS, HOME)
        row = connection.execute(f"SELECT last_used_at, clock_timestamp() FROM {table}").fetchone()
        assert row is not None
        used.append(row[0])
        assert row[1] - row[0] < timedelta(seconds=30)
    assert used[0] == used[1]
