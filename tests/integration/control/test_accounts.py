"""Users: the first admin, names and passwords, roles, the last admin, and what ends with a change."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from holdfast.accounts.passwords import Argon2
from holdfast.accounts.service import AccountService
from holdfast.db.connection import Database
from holdfast.errors import Changed, NotFound, Refused, Unauthenticated, UsageError
from holdfast.model.auth import Role, Scope
from holdfast.settings.web import Web
from tests.support.accounts import RIGHT, add, all_at_once, come_in, deeds, desk, dump, kept, refusal


@pytest.fixture
def database(database: Database) -> Iterator[Database]:
    with kept(database) as made:
        yield made


@pytest.fixture
def accounts(database: Database) -> AccountService:
    return desk(database)


# The first one --------------------------------------------------------------------------------------------------------


def test_the_first_start_makes_an_admin_whose_password_is_told_once(
    database: Database, connection: psycopg.Connection
) -> None:
    """With the parameters that the product has."""
    accounts = AccountService(database, Web())
    password = accounts.ensure_admin()
    assert password is not None
    assert len(password) >= 16
    assert accounts.ensure_admin() is None
    assert [(user.name, user.role) for user in accounts.users()] == [("admin", Role.ADMIN)]
    assert come_in(accounts, "admin", password).user.role is Role.ADMIN
    assert deeds(connection)[0] == ("holdfast", "add", "user", "1")
    assert password not in dump(connection)


def test_of_servers_that_start_at_once_one_makes_the_admin(database: Database, accounts: AccountService) -> None:
    made: list[str | None] = []
    assert all_at_once([lambda: made.append(accounts.ensure_admin())] * 8) == [None] * 8
    (password,) = filter(None, made)
    assert len(accounts.users()) == 1
    assert come_in(accounts, "admin", password)


def test_where_there_is_somebody_no_admin_is_made(accounts: AccountService) -> None:
    add(accounts, "ann")
    assert accounts.ensure_admin() is None
    assert len(accounts.users()) == 1


# Making them ----------------------------------------------------------------------------------------------------------


def test_users_are_added_listed_and_found(accounts: AccountService) -> None:
    ann, made = accounts.add("Ann", Role.ADMIN, RIGHT, actor="test:me")
    bob, random = accounts.add("bob", Role.USER, None, actor="test:me")
    assert (made, ann.version, ann.last_login_at, ann.disabled_at) == (None, 1, None, None)
    assert random is not None
    assert come_in(accounts, "bob", random).user.id == bob.id
    assert accounts.show("aNN") == accounts.show(ann.id) == accounts.show(str(ann.id)) == ann
    assert [user.name for user in accounts.users(limit=1)] == ["Ann"]
    assert [user.name for user in accounts.users(after=ann.id)] == ["bob"]
    for nobody in ("eve", 99, "99", "", "a b", "\0"):
        with pytest.raises(NotFound, match="There is no user"):
            accounts.show(nobody)


def test_a_name_is_taken_whatever_its_case(accounts: AccountService) -> None:
    add(accounts, "ann")
    with pytest.raises(Refused, match="There is a user ANN already"):
        accounts.add("ANN", Role.USER, RIGHT, actor="test:me")
    told = all_at_once([lambda: accounts.add("bob", Role.USER, RIGHT, actor="test:me")] * 6)
    assert sorted(str(one) for one in told) == ["None"] + ["There is a user bob already."] * 5


def test_what_cannot_be_meant(accounts: AccountService, connection: psycopg.Connection) -> None:
    deeds_ = [
        lambda: accounts.add("a b", Role.USER, RIGHT, actor="me"),
        lambda: accounts.add("ann", Role.ANONYMOUS, RIGHT, actor="me"),
        lambda: accounts.add("ann", Role.USER, "x" * 11, actor="me"),
        lambda: accounts.add("ann", Role.USER, "x" * 1025, actor="me"),
        lambda: accounts.add("ann", Role.USER, "x" * 12 + "\0", actor="me"),
        lambda: accounts.set_password("ann", "short", actor="me"),
        lambda: accounts.set_role("ann", Role.ANONYMOUS, actor="me"),
        lambda: accounts.users(limit=501),
        lambda: accounts.users(limit=0),
        lambda: accounts.users(after=2**63),
        lambda: accounts.sessions(-1),
        lambda: accounts.revoke_key(2**63, actor="me"),
    ]
    assert [type(refusal(deed)) for deed in deeds_] == [UsageError] * len(deeds_)
    assert dump(connection) == ""


def test_the_store_itself_refuses_names_and_hashes_that_are_none(connection: psycopg.Connection) -> None:
    for name, hashed in (("7", "$argon2id$x"), ("a b", "$argon2id$x"), ("", "$argon2id$x"), ("ann", "plain")):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("INSERT INTO users (name, password_hash) VALUES (%s, %s)", (name, hashed))


# Changing them --------------------------------------------------------------------------------------------------------


def test_another_password_ends_all_sessions(accounts: AccountService) -> None:
    user_id = add(accounts)
    other = add(accounts, "bob")
    tokens = [come_in(accounts).token for _ in range(3)]
    kept = come_in(accounts, "bob").token
    done = accounts.set_password("ann", "another horse battery", actor="test:me")
    assert (done.user.id, done.password, done.sessions, done.user.version) == (user_id, None, 3, 2)
    assert [accounts.session(token) for token in tokens] == [None] * 3
    assert accounts.sessions(user_id) == []
    assert (accounts.session(kept) is not None, len(accounts.sessions(other))) == (True, 1)
    with pytest.raises(Unauthenticated):
        come_in(accounts)
    assert come_in(accounts, password="another horse battery")
    made = accounts.set_password(user_id, None, actor="test:me")
    assert made.password is not None
    assert made.sessions == 1
    assert come_in(accounts, password=made.password)


def test_another_role_ends_all_sessions(accounts: AccountService) -> None:
    add(accounts)
    token = come_in(accounts).token
    same = accounts.set_role("ann", Role.USER, actor="test:me")
    assert (same.version, accounts.session(token) is not None) == (1, True), "it is the same"
    assert accounts.set_role("ann", Role.ADMIN, actor="test:me").role is Role.ADMIN
    assert accounts.session(token) is None
    principal = accounts.session(come_in(accounts).token)
    assert principal is not None
    assert principal.role is Role.ADMIN


def test_who_is_disabled_is_out_at_once(accounts: AccountService) -> None:
    user_id = add(accounts)
    token = come_in(accounts).token
    _, key = accounts.create_key(user_id, "ci", [Scope.READ], None, actor="test:me")
    assert accounts.disable("ann", actor="test:me").changed
    assert (accounts.session(token), accounts.key(key)) == (None, None)
    with pytest.raises(Unauthenticated):
        come_in(accounts)
    assert not accounts.disable("ann", actor="test:me").changed
    with pytest.raises(Refused, match="ann is disabled; a key would be refused"):
        accounts.create_key(user_id, "two", [Scope.READ], None, actor="test:me")
    assert accounts.enable("ann", actor="test:me").changed
    assert not accounts.enable("ann", actor="test:me").changed
    assert accounts.session(token) is None, "a session that has ended stays so"
    assert accounts.key(key) is not None
    assert come_in(accounts)


def test_who_is_removed_leaves_nothing_that_opens(accounts: AccountService, connection: psycopg.Connection) -> None:
    user_id = add(accounts)
    token = come_in(accounts).token
    _, key = accounts.create_key(user_id, "ci", [Scope.READ], None, actor="test:me")
    assert accounts.remove("ann", actor="test:me").id == user_id
    assert (accounts.session(token), accounts.key(key)) == (None, None)
    assert dump(connection, "users", "sessions", "api_keys") == ""
    with pytest.raises(NotFound):
        accounts.show(user_id)


def test_an_edit_of_what_has_changed_meanwhile_is_refused(accounts: AccountService) -> None:
    add(accounts)
    accounts.set_role("ann", Role.ADMIN, actor="test:me", version=1)
    edits: list[Callable[[], object]] = [
        lambda: accounts.set_password("ann", RIGHT, actor="test:me", version=1),
        lambda: accounts.set_role("ann", Role.USER, actor="test:me", version=1),
        lambda: accounts.disable("ann", actor="test:me", version=1),
        lambda: accounts.enable("ann", actor="test:me", version=1),
        lambda: accounts.remove("ann", actor="test:me", version=1),
    ]
    for edit in edits:
        with pytest.raises(Changed, match=r"User ann was changed meanwhile \(version 2, not 1\); look again"):
            edit()
    come_in(accounts)
    assert accounts.show("ann").version == 2, "a login is no edit"
    told = all_at_once([lambda: accounts.set_password("ann", RIGHT, actor="test:me", version=2)] * 4)
    assert sorted(type(one).__name__ for one in told) == ["Changed"] * 3 + ["NoneType"]


# The last admin -------------------------------------------------------------------------------------------------------

Deed = Callable[[AccountService, str], object]
AWAY: dict[str, Deed] = {
    "disable": lambda accounts, name: accounts.disable(name, actor="test:me"),
    "demote": lambda accounts, name: accounts.set_role(name, Role.USER, actor="test:me"),
    "remove": lambda accounts, name: accounts.remove(name, actor="test:me"),
}
BECOMES = {"disable": "is disabled", "demote": "becomes a user", "remove": "is removed"}


@pytest.mark.parametrize("how", AWAY)
def test_the_last_admin_stays(accounts: AccountService, how: str) -> None:
    add(accounts, "ann", Role.ADMIN)
    add(accounts, "bob")
    add(accounts, "off", Role.ADMIN)
    accounts.disable("off", actor="test:me")
    before = accounts.show("ann")
    with pytest.raises(Refused) as told:
        AWAY[how](accounts, "ann")
    assert str(told.value) == f"ann is the only enabled admin; add another one before ann {BECOMES[how]}."
    assert accounts.show("ann") == before
    AWAY[how](accounts, "off")
    accounts.set_role("bob", Role.ADMIN, actor="test:me")
    AWAY[how](accounts, "ann")


@pytest.mark.parametrize(("one", "other"), [(one, other) for one in AWAY for other in AWAY])
def test_of_two_who_take_the_last_two_admins_away_one_is_refused(
    accounts: AccountService, connection: psycopg.Connection, one: str, other: str
) -> None:
    left = "SELECT count(*) FROM users WHERE role = 'admin' AND disabled_at IS NULL"
    for _ in range(5):
        connection.execute("DELETE FROM users")
        for name in ("ann", "bob"):
            add(accounts, name, Role.ADMIN)
        told = all_at_once([lambda: AWAY[one](accounts, "ann"), lambda: AWAY[other](accounts, "bob")])
        assert sorted(type(problem).__name__ for problem in told) == ["NoneType", "Refused"]
        assert connection.execute(left).fetchone() == (1,)


def test_parameters_of_the_product_are_the_default(database: Database) -> None:
    assert AccountService(database, Web()).hasher == Argon2(time_cost=3, memory_cost=65_536, parallelism=4)
