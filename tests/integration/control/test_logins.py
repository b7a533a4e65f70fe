"""Coming in: one computation whoever is named, limits that hold for attempts at the same time, and addresses that are known."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from holdfast.accounts.passwords import Argon2
from holdfast.accounts.service import AccountService
from holdfast.db.connection import Database
from holdfast.errors import TooMany, Unauthenticated
from tests.conftest import MakeDatabase
from tests.support.accounts import (
    HOME,
    RIGHT,
    WEAK,
    WRONG,
    Counting,
    add,
    come_in,
    deeds,
    desk,
    dump,
    kept,
    refusal,
)

AWAY = "198.51.100.9"
SENTENCE = "The name or the password is wrong."
WINDOW = timedelta(minutes=15)


@pytest.fixture
def database(database: Database) -> Iterator[Database]:
    with kept(database) as made:
        yield made


@pytest.fixture
def hasher() -> Counting:
    return Counting()


@pytest.fixture
def accounts(database: Database, hasher: Counting) -> AccountService:
    """With the limits of the product, and a user ann."""
    made = desk(database, hasher)
    add(made)
    hasher.hashed = 0
    return made


@pytest.fixture(scope="module")
def door(make_database: MakeDatabase) -> Iterator[tuple[Database, psycopg.Connection]]:
    """A store with ann, and somebody who is disabled, for all tests of those who stay outside."""
    with make_database() as made, kept(made) as database, database.connect() as connection:
        accounts = desk(database)
        add(accounts)
        add(accounts, "off")
        accounts.disable("off", actor="test:me")
        yield database, connection


def fail(accounts: AccountService, times: int = 1, name: str = "ann", address: str = AWAY) -> None:
    for _ in range(times):
        with pytest.raises(Unauthenticated):
            come_in(accounts, name, WRONG, address)


def later(connection: psycopg.Connection, by: timedelta) -> None:
    """Let time pass for what has failed."""
    connection.execute("UPDATE login_failures SET at = at - %s", (by,))


# One computation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", WRONG),
        ("ann", ""),
        ("ann", "x" * 100_000),
        ("ann", "\0"),
        ("ann", "\udce4" * 12),
        ("nobody", RIGHT),
        ("off", RIGHT),
        ("off", WRONG),
        ("", ""),
        ("1", RIGHT),
        ("no name", RIGHT),
        ("\0", RIGHT),
        ("\udce4", RIGHT),
        ("x" * 100_000, RIGHT),
        ("ann' OR true --", RIGHT),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_whoever_fails_is_told_the_same_after_one_computation(
    door: tuple[Database, psycopg.Connection], name: str, password: str
) -> None:
    database, connection = door
    connection.execute("DELETE FROM login_failures")
    hasher = Counting()
    with pytest.raises(Unauthenticated) as told:
        come_in(desk(database, hasher), name, password)
    assert str(told.value) == SENTENCE
    assert (hasher.verified, hasher.hashed) == (1, 0)
    failed = connection.execute("SELECT pending, origin, octet_length(account) FROM login_failures").fetchall()
    assert failed == [(False, HOME, 32)]


def test_a_known_and_an_unknown_user_take_as_long(database: Database, figure: Callable[[str], None]) -> None:
    """With the parameters of the product. The means are for people; that there is one computation each is asserted."""
    counting = Counting(Argon2())
    accounts = desk(database, counting, login_failures=1000, login_failures_address=1000)
    add(accounts)
    took: dict[str, list[float]] = {"ann": [], "nobody": []}
    rounds = 3
    for _ in range(rounds):
        for name, times in took.items():
            began = time.perf_counter()
            fail(accounts, name=name)
            times.append((time.perf_counter() - began) * 1000)
    assert counting.verified == 2 * rounds
    known, unknown = (sum(times) / rounds for times in took.values())
    figure(f"a login that fails: known user {known:.0f} ms, unknown user {unknown:.0f} ms (means of {rounds})")


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_login_is_a_new_session(accounts: AccountService, hasher: Counting) -> None:
    first, second = come_in(accounts), come_in(accounts, "ANN")
    assert first.token != second.token
    assert first.csrf != second.csrf
    assert (hasher.verified, hasher.hashed) == (2, 0)
    principal = accounts.session(first.token)
    assert principal is not None
    assert (principal.name, principal.user_id, principal.via) == ("ann", first.user.id, "session")
    assert (principal.csrf, principal.grant_id, principal.scopes) == (first.csrf, first.session_id, None)
    assert first.user.last_login_at is not None
    assert timedelta(hours=23, minutes=59) < first.expires_at - first.user.last_login_at <= timedelta(days=1, seconds=1)
    assert first.token not in repr(first)


def test_the_session_before_is_over_and_never_taken_up(accounts: AccountService) -> None:
    add(accounts, "eve")
    planted = come_in(accounts, "eve").token
    mine = come_in(accounts, previous=planted)
    assert mine.token != planted
    assert accounts.session(planted) is None
    bystander = come_in(accounts).token
    again = come_in(accounts, previous=mine.token)
    assert accounts.session(mine.token) is None
    assert accounts.session(bystander) is not None
    for nonsense in ("", "hfs_nonsense", "\0", mine.token, again.token.replace("hfs_", "hfk_")):
        assert come_in(accounts, previous=nonsense).token != nonsense
    assert accounts.session(again.token) is not None
    with pytest.raises(Unauthenticated):
        come_in(accounts, password=WRONG, previous=again.token)
    assert accounts.session(again.token) is not None, "only who comes in gives the old one up"


def test_who_is_disabled_or_has_another_password_meanwhile_does_not_come_in(
    accounts: AccountService, hasher: Counting, connection: psycopg.Connection
) -> None:
    changes: list[Callable[[], object]] = [
        lambda: accounts.disable("ann", actor="test:me"),
        lambda: accounts.set_password("ann", "another horse battery", actor="test:me"),
        lambda: accounts.remove("ann", actor="test:me"),
    ]
    for change in changes:
        hasher.meanwhile = change
        with pytest.raises(Unauthenticated, match=SENTENCE):
            come_in(accounts)
        assert dump(connection, "sessions") == ""
        hasher.meanwhile = lambda: None
        if change is not changes[-1]:
            accounts.enable("ann", actor="test:me")
            accounts.set_password("ann", RIGHT, actor="test:me")


def test_a_hash_is_made_anew_when_the_parameters_change(
    accounts: AccountService, database: Database, connection: psycopg.Connection
) -> None:
    def stored() -> str:
        row = connection.execute("SELECT password_hash FROM users").fetchone()
        assert row
        return str(row[0])

    counting = Counting(Argon2(time_cost=2, memory_cost=16, parallelism=1))
    stronger = desk(database, counting)
    before = stored()
    fail(stronger)
    assert stored() == before, "only the right password can be hashed anew"
    assert come_in(stronger).user.version == 1
    assert (stored().startswith("$argon2id$v=19$m=16,t=2,p=1$"), counting.hashed) == (True, 1)
    come_in(stronger)
    assert (counting.hashed, come_in(accounts).user.name) == (1, "ann")
    accounts.disable("ann", actor="test:me")
    assert refusal(lambda: come_in(stronger)) is not None
    assert counting.hashed == 1, "whoever may not come in does not learn by it that the password was right"


def test_a_password_is_checked_without_a_session(accounts: AccountService, connection: psycopg.Connection) -> None:
    assert accounts.check_password("ann", RIGHT, address=HOME).name == "ann"
    assert dump(connection, "sessions", "login_failures") == ""
    told = [refusal(lambda: accounts.check_password("ann", WRONG, address=HOME)) for _ in range(6)]
    assert [type(one) for one in told] == [Unauthenticated] * 5 + [TooMany]


# Limits ---------------------------------------------------------------------------------------------------------------


def test_an_account_has_to_wait_after_five(
    accounts: AccountService, hasher: Counting, connection: psycopg.Connection
) -> None:
    fail(accounts, 5)
    with pytest.raises(TooMany, match=r"Too many logins have failed; wait 1[45]m[0-9s]* and try again\.") as told:
        come_in(accounts, address=AWAY)
    assert 0 < told.value.retry_after <= WINDOW.total_seconds()
    assert isinstance(refusal(lambda: come_in(accounts, address="203.0.113.1")), TooMany), "from anywhere"
    assert hasher.verified == 5, "nobody looked at the password"
    later(connection, timedelta(minutes=14, seconds=30))
    again = refusal(lambda: come_in(accounts, address=AWAY))
    assert isinstance(again, TooMany)
    assert again.retry_after <= 30
    later(connection, timedelta(seconds=30))
    assert come_in(accounts, address=AWAY)


def test_the_window_slides(accounts: AccountService, connection: psycopg.Connection) -> None:
    fail(accounts, 2)
    later(connection, timedelta(minutes=10))
    fail(accounts, 3)
    assert isinstance(refusal(lambda: come_in(accounts)), TooMany)
    later(connection, timedelta(minutes=5))
    fail(accounts, 2)
    last = refusal(lambda: come_in(accounts))
    assert isinstance(last, TooMany)
    assert timedelta(minutes=9).total_seconds() < last.retry_after <= timedelta(minutes=10).total_seconds()


def test_unknown_names_are_limited_as_known_ones_are(accounts: AccountService, hasher: Counting) -> None:
    for name in ("nobody", "no name", "\0"):
        fail(accounts, 5, name)
        assert isinstance(refusal(partial(come_in, accounts, name.upper())), TooMany)
    assert hasher.verified == 15


def test_an_address_has_to_wait_after_twenty(accounts: AccountService, hasher: Counting) -> None:
    for number in range(20):
        fail(accounts, name=f"name{number}")
    assert isinstance(refusal(lambda: come_in(accounts, address=AWAY)), TooMany)
    assert hasher.verified == 20
    assert come_in(accounts, address=HOME)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:198.51.100.9", AWAY, True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("198.51.100.8", AWAY, False),
        ("somewhere", "somewhere", True),
        ("some\0where", "some\nwhere", True),
    ],
)
def test_what_counts_as_one_address(
    door: tuple[Database, psycopg.Connection], one: str, other: str, same: bool
) -> None:
    database, connection = door
    connection.execute("DELETE FROM login_failures")
    few = desk(database, WEAK, login_failures_address=2)
    fail(few, 2, "nobody", one)
    assert isinstance(refusal(lambda: come_in(few, address=other)), TooMany) is same


def test_a_success_clears_the_account_and_not_the_address(
    accounts: AccountService, connection: psycopg.Connection
) -> None:
    for _ in range(4):
        fail(accounts, 4)
        assert come_in(accounts, address=AWAY)
    assert connection.execute("SELECT count(*), count(account) FROM login_failures").fetchone() == (16, 0)
    fail(accounts, 4, "nobody")
    assert isinstance(refusal(lambda: come_in(accounts, address=AWAY)), TooMany), "20 have failed from there"
    for _ in range(30):
        come_in(accounts)


# Who is locked out on purpose -----------------------------------------------------------------------------------------


def test_who_comes_from_a_known_address_is_not_locked_out_by_others(accounts: AccountService, hasher: Counting) -> None:
    come_in(accounts, address=HOME)
    fail(accounts, 5)
    hasher.verified = 0
    assert isinstance(refusal(lambda: come_in(accounts, address="203.0.113.1")), TooMany)
    assert isinstance(refusal(lambda: come_in(accounts, address=AWAY)), TooMany)
    assert hasher.verified == 0
    assert come_in(accounts, address=HOME)
    fail(accounts, 5, address=AWAY)
    fail(accounts, 5, address=HOME)
    assert isinstance(refusal(lambda: come_in(accounts, address=HOME)), TooMany), "it has a limit of its own"


def test_an_address_is_known_for_an_account_a_password_and_a_while(
    accounts: AccountService, connection: psycopg.Connection
) -> None:
    add(accounts, "bob")
    come_in(accounts, address=HOME)
    come_in(accounts, "bob", address="203.0.113.1")
    fail(accounts, 5)
    assert isinstance(refusal(lambda: come_in(accounts, address="203.0.113.1")), TooMany), "known for bob"
    ended = "UPDATE sessions SET expires_at = clock_timestamp() - %s WHERE origin = %s"
    connection.execute(ended, (timedelta(days=6, hours=23), HOME))
    assert come_in(accounts, address=HOME)
    fail(accounts, 5)
    connection.execute(ended, (timedelta(days=7, seconds=1), HOME))
    assert isinstance(refusal(lambda: come_in(accounts, address=HOME)), TooMany), "too long ago"
    accounts.set_password("ann", RIGHT, actor="test:me")
    come_in(accounts, address=HOME)
    accounts.set_password("ann", RIGHT, actor="test:me")
    fail(accounts, 5)
    assert isinstance(refusal(lambda: come_in(accounts, address=HOME)), TooMany), "known by another password"


def test_a_person_can_let_the_account_in_again(accounts: AccountService, connection: psycopg.Connection) -> None:
    fail(accounts, 5)
    done = accounts.enable("ANN", actor="test:me")
    assert (done.changed, done.forgotten) == (False, 5)
    assert come_in(accounts)
    assert ("test:me", "forget logins", "user", "1") in deeds(connection)
    fail(accounts, 5)
    accounts.set_password("ann", RIGHT, actor="test:me")
    assert come_in(accounts)
