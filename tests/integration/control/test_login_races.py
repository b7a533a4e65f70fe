"""Logins at the same time: no number of them gets more passwords looked at than the limits allow."""

import threading
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from holdfast.accounts import passwords
from holdfast.accounts.queries import login_attempts
from holdfast.accounts.service import AccountService
from holdfast.db.connection import Database
from holdfast.errors import HoldfastError, TooMany, Unauthenticated, UsageError
from tests.support.accounts import WRONG, Counting, add, all_at_once, come_in, desk, dump, refusal
from tests.support.servers import wait_until

AWAY = "198.51.100.9"
MANY = 50


@pytest.fixture
def hasher() -> Counting:
    return Counting()


@pytest.fixture
def accounts(database: Database, hasher: Counting, monkeypatch: pytest.MonkeyPatch) -> AccountService:
    """With the limits of the product, and a user ann. The line of this process is long, so that only the store limits."""
    monkeypatch.setattr(passwords, "_admitted", threading.BoundedSemaphore(1000))
    made = desk(database, hasher)
    add(made)
    return made


class Crowd:
    """Many who come with a wrong password; nobody's attempt ends before all others are refused, or looked at, too."""

    def __init__(self, hasher: Counting) -> None:
        self.hasher = hasher
        self.refused = 0
        self.lock = threading.Lock()
        hasher.meanwhile = lambda: wait_until(lambda: self.refused + hasher.verified == MANY, 60)

    def come(self, accounts: AccountService, name: str, address: str) -> None:
        try:
            come_in(accounts, name, WRONG, address)
        except TooMany:
            with self.lock:
                self.refused += 1
            raise


def counted(told: list[HoldfastError | None]) -> dict[str, int]:
    return {kind.__name__: sum(type(one) is kind for one in told) for kind in (Unauthenticated, TooMany, type(None))}


@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_of_fifty_at_once_five_passwords_are_looked_at(
    accounts: AccountService, hasher: Counting, connection: psycopg.Connection, name: str
) -> None:
    """Each from an address of its own."""
    crowd = Crowd(hasher)
    told = all_at_once([partial(crowd.come, accounts, name, f"198.51.100.{n}") for n in range(MANY)])
    assert counted(told) == {"Unauthenticated": 5, "TooMany": MANY - 5, "NoneType": 0}
    assert hasher.verified == 5
    assert connection.execute("SELECT count(*) FROM login_failures WHERE NOT pending").fetchone() == (5,)


def test_of_fifty_names_at_once_from_one_address_twenty_are_looked_at(
    accounts: AccountService, hasher: Counting
) -> None:
    crowd = Crowd(hasher)
    told = all_at_once([partial(crowd.come, accounts, f"name{n}", AWAY) for n in range(MANY)])
    assert counted(told) == {"Unauthenticated": 20, "TooMany": MANY - 20, "NoneType": 0}
    assert hasher.verified == 20


def test_two_servers_count_as_one(accounts: AccountService, database: Database, hasher: Counting) -> None:
    crowd, servers = Crowd(hasher), (accounts, desk(Database(database.url), hasher))
    told = all_at_once([partial(crowd.come, servers[n % 2], "ann", AWAY) for n in range(MANY)])
    assert (counted(told)["Unauthenticated"], hasher.verified) == (5, 5)


def test_right_passwords_at_once_come_in_and_leave_no_failure(
    accounts: AccountService, connection: psycopg.Connection
) -> None:
    assert all_at_once([lambda: come_in(accounts)] * 5) == [None] * 5
    assert dump(connection, "login_failures") == ""
    assert len(accounts.sessions(1)) == 5


def test_who_is_only_in_the_way_for_a_moment(accounts: AccountService, hasher: Counting) -> None:
    """While one is being looked at, the next is told to come again in a second, not in a quarter of an hour."""
    few = desk(accounts.database, hasher, login_failures=1)
    told: list[HoldfastError | None] = []
    hasher.meanwhile = lambda: told.append(refusal(lambda: come_in(few)))
    assert come_in(few).user.name == "ann"
    (problem,) = told
    assert isinstance(problem, TooMany)
    assert problem.retry_after == 1.0


def test_a_server_that_dies_in_between_leaves_a_failure(
    accounts: AccountService, hasher: Counting, connection: psycopg.Connection
) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    hasher.meanwhile = die
    for _ in range(5):
        with pytest.raises(Killed):
            come_in(accounts, address=AWAY)
    hasher.meanwhile = lambda: None
    assert connection.execute("SELECT count(*) FROM login_failures WHERE pending").fetchone() == (5,)
    connection.execute("UPDATE login_failures SET at = at - interval '1 minute'")
    told = refusal(lambda: come_in(accounts, address=AWAY))
    assert isinstance(told, TooMany)
    assert told.retry_after > timedelta(minutes=13).total_seconds(), "nobody will say how they ended"


def test_a_login_cannot_be_part_of_another_transaction(
    accounts: AccountService, connection: psycopg.Connection
) -> None:
    """It would be rolled back with the request that failed, and nothing would be counted."""
    asked = login_attempts.LoginRequest("ann", b"x" * 32, AWAY)
    limits = login_attempts.Limits(timedelta(minutes=15), 5, 20)
    with pytest.raises(UsageError, match="A login stands alone"), connection.transaction():
        login_attempts.reserve(connection, asked, limits)
    assert login_attempts.reserve(connection, asked, limits).user_id == 1


def test_a_long_line_is_no_failure(
    accounts: AccountService, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_admitted", threading.BoundedSemaphore(1))
    with passwords.verification_slot():
        told = refusal(lambda: come_in(accounts))
    assert isinstance(told, TooMany)
    assert told.retry_after == 1.0
    assert dump(connection, "login_failures") == ""
    assert come_in(accounts)
