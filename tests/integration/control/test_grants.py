"""Sessions and API keys: what they open, when they end, how they are looked up, and that nothing secret is kept in clear."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from holdfast.accounts import tokens
from holdfast.accounts.queries import login_attempts, sessions
from holdfast.accounts.service import AccountService
from holdfast.db import request_auth
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.auth import Role, Scope
from tests.support.accounts import HOME, RIGHT, WRONG, add, all_at_once, come_in, deeds, desk, dump, kept, refusal
from tests.support.factories import Store


@pytest.fixture
def database(database: Database) -> Iterator[Database]:
    with kept(database) as made:
        yield made


@pytest.fixture
def accounts(database: Database) -> AccountService:
    """With an admin ann, whose id is 1."""
    made = desk(database)
    add(made, "ann", Role.ADMIN)
    return made


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is executed on any connection."""
    seen: list[str] = []
    original = psycopg.Connection.execute

    def execute(connection: psycopg.Connection, query: str, *arguments: object, **more: object) -> object:
        seen.append(query)
        return original(connection, query, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(psycopg.Connection, "execute", execute)
    return seen


def fail(accounts: AccountService, name: str, address: str = HOME) -> None:
    assert refusal(lambda: come_in(accounts, name, WRONG, address)) is not None


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_session_ends_when_it_expires(accounts: AccountService, connection: psycopg.Connection) -> None:
    token = come_in(accounts).token
    connection.execute("UPDATE sessions SET expires_at = clock_timestamp() + interval '1 minute'")
    assert accounts.session(token) is not None
    connection.execute("UPDATE sessions SET expires_at = clock_timestamp()")
    assert accounts.session(token) is None
    assert accounts.sessions(1) == []
    assert not accounts.logout(token)


def test_who_may_not_come_in_has_no_session(accounts: AccountService, connection: psycopg.Connection) -> None:
    """Also where it has not ended: somebody has changed the row by hand."""
    token = come_in(accounts).token
    connection.execute("UPDATE users SET disabled_at = clock_timestamp()")
    assert accounts.session(token) is None


def test_how_long_a_session_lasts_is_a_setting(database: Database, accounts: AccountService) -> None:
    login = come_in(desk(database, session="5m"))
    assert login.user.last_login_at is not None
    assert (
        timedelta(minutes=4, seconds=59) < login.expires_at - login.user.last_login_at < timedelta(minutes=5, seconds=9)
    )


def test_who_logs_out_is_out(accounts: AccountService) -> None:
    token, other = come_in(accounts).token, come_in(accounts).token
    assert accounts.logout(token)
    assert not accounts.logout(token)
    assert (accounts.session(token), accounts.session(other) is not None) == (None, True)
    for nonsense in ("", "x", "\0", tokens.generate(tokens.Kind.SESSION), tokens.generate(tokens.Kind.KEY)):
        assert not accounts.logout(nonsense)
        assert accounts.session(nonsense) is None


def test_sessions_are_listed_and_revoked(accounts: AccountService) -> None:
    bob = add(accounts, "bob")
    logins_ = [come_in(accounts) for _ in range(3)]
    stranger = come_in(accounts, "bob")
    found = accounts.sessions(1)
    assert [one.id for one in found] == [login.session_id for login in reversed(logins_)]
    assert (found[0].address, found[0].user_agent, found[0].revoked_at) == (HOME, "test", None)
    assert [one.id for one in accounts.sessions(1, before=found[0].id, limit=1)] == [found[1].id]
    assert accounts.revoke_session(logins_[0].session_id, actor="test:me")
    assert not accounts.revoke_session(logins_[0].session_id, actor="test:me")
    assert accounts.session(logins_[0].token) is None
    with pytest.raises(NotFound, match=f"There is no session {stranger.session_id}"):
        accounts.revoke_session(stranger.session_id, actor="ann", user_id=1)
    assert accounts.revoke_session(stranger.session_id, actor="bob", user_id=bob)
    assert (accounts.revoke_sessions("ann", actor="test:me"), accounts.revoke_sessions(1, actor="test:me")) == (2, 0)
    assert [accounts.session(login.token) for login in logins_] == [None] * 3
    for nobody in (lambda: accounts.sessions(99), lambda: accounts.revoke_session(99, actor="test:me")):
        with pytest.raises(NotFound):
            nobody()


def test_what_a_client_says_of_itself_is_cut_and_cleaned(accounts: AccountService) -> None:
    accounts.login("ann", RIGHT, address="some\nwhere" * 50, user_agent="evil\x1b[2J\0\u202e\udce4" + "x" * 500)
    (found,) = accounts.sessions(1)
    assert found.user_agent == "evil?[2J???" + "x" * 244
    assert (len(found.address), found.address[:10]) == (64, "some?where")


def test_a_look_is_one_statement_that_writes_once_a_minute(
    accounts: AccountService, connection: psycopg.Connection, statements: list[str]
) -> None:
    token = come_in(accounts).token
    _, key = accounts.create_key(1, "ci", [Scope.READ], None, actor="test:me")
    looks = {"sessions": partial(accounts.session, token), "api_keys": partial(accounts.key, key)}
    for table, look in looks.items():
        version = f"SELECT xmin::text, last_used_at FROM {table}"
        assert look() is not None
        written = connection.execute(version).fetchone()
        statements.clear()
        assert look() is not None
        assert len(statements) == 1
        assert connection.execute(version).fetchone() == written, "it was used within the minute"
        connection.execute(f"UPDATE {table} SET last_used_at = last_used_at - interval '61 seconds'")
        stale = connection.execute(version).fetchone()
        assert look() is not None
        fresh = connection.execute(version).fetchone()
        assert fresh != stale
        assert stale is not None
        assert fresh is not None
        assert fresh[1] > stale[1] + timedelta(seconds=60)


def test_a_look_waits_for_nobody(accounts: AccountService, database: Database, connection: psycopg.Connection) -> None:
    """Another request is writing down that the session was used, in a transaction that takes its time."""
    token = come_in(accounts).token
    connection.execute("UPDATE sessions SET last_used_at = last_used_at - interval '1 hour'")
    quick = desk(Database(database.url, statement_timeout=5))
    with connection.transaction():
        connection.execute("UPDATE sessions SET last_used_at = clock_timestamp()")
        assert quick.session(token) is not None


MANY = """
INSERT INTO users (name, password_hash) SELECT 'u' || n, '$argon2id$' FROM generate_series(1, 5000) n;
INSERT INTO sessions (user_id, token_hash, expires_at, address, origin, user_agent)
SELECT id, sha256(name::bytea), clock_timestamp() + interval '1 day', '', '', '' FROM users;
INSERT INTO api_keys (user_id, name, prefix, token_hash, scopes) SELECT id, 'ci', '', sha256(name::bytea), '{read}' FROM users;
ANALYZE users, sessions, api_keys;
"""


def test_a_look_uses_indexes_only(connection: psycopg.Connection) -> None:
    connection.execute(MANY)
    for query, index in (
        (request_auth._FIND_SESSION, "sessions_token_hash_key"),
        (request_auth._FIND_KEY, "api_keys_token_hash_key"),
    ):
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {query}", {"hash": b"x" * 32}))
        assert f"using {index}" in plan
        assert "Seq Scan" not in plan


# Keys -----------------------------------------------------------------------------------------------------------------


def test_a_key_narrows_what_its_owner_may(accounts: AccountService) -> None:
    made, token = accounts.create_key(
        "ann", "nightly run", [Scope.CRAWL, Scope.READ, Scope.READ], None, actor="test:me"
    )
    assert (made.user_name, made.scopes, made.expires_at, made.last_used_at) == (
        "ann",
        (Scope.READ, Scope.CRAWL),
        None,
        None,
    )
    assert token.startswith(made.prefix)
    principal = accounts.key(token)
    assert principal is not None
    assert (principal.name, principal.role, principal.user_id) == ("ann (key nightly run)", Role.ADMIN, 1)
    assert (principal.scopes, principal.via) == (frozenset({Scope.READ, Scope.CRAWL}), "key")
    assert (principal.grant_id, principal.csrf) == (made.id, None)
    assert accounts.session(token) is None, "a key is no session"
    add(accounts, "bob", Role.ADMIN)
    accounts.set_role("ann", Role.USER, actor="test:me")
    narrowed = accounts.key(token)
    assert narrowed is not None
    assert (narrowed.role, narrowed.scopes) == (Role.USER, frozenset({Scope.READ}))


def test_keys_of_a_user_are_for_reading(accounts: AccountService) -> None:
    bob = add(accounts, "bob")
    for scope in Scope:
        told = refusal(partial(accounts.create_key, bob, scope, [scope, Scope.READ], None, actor="test:me"))
        if scope in {Scope.READ, Scope.METRICS}:
            assert told is None, scope
        else:
            assert isinstance(told, UsageError)
            assert str(told) == f"bob is a user and may have no key for: {scope}."
    assert sorted(set().union(*(key.scopes for key in accounts.keys(bob)))) == [Scope.METRICS, Scope.READ]


def test_a_key_ends(accounts: AccountService, connection: psycopg.Connection) -> None:
    made, token = accounts.create_key(1, "ci", [Scope.READ], timedelta(days=90), actor="test:me")
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == pytest.approx(timedelta(days=90), abs=timedelta(seconds=5))
    assert accounts.key(token) is not None
    connection.execute("UPDATE api_keys SET expires_at = clock_timestamp()")
    assert accounts.key(token) is None
    other, second = accounts.create_key(1, "two", list(Scope), None, actor="test:me")
    assert accounts.revoke_key(other.id, actor="test:me")
    assert not accounts.revoke_key(other.id, actor="test:me")
    assert accounts.key(second) is None
    assert accounts.keys(1)[-1].version == 2


def test_keys_are_listed(accounts: AccountService) -> None:
    bob = add(accounts, "bob")
    ids = [accounts.create_key(owner, "ci", [Scope.READ], None, actor="test:me")[0].id for owner in (1, bob)]
    accounts.revoke_key(ids[0], actor="test:me")
    assert [key.id for key in accounts.keys(None)] == ids
    assert [key.id for key in accounts.keys(after=ids[0], limit=1)] == [ids[1]]
    assert [key.user_name for key in accounts.keys(bob)] == ["bob"]
    for nobody in (
        lambda: accounts.keys(99),
        lambda: accounts.revoke_key(ids[1], actor="ann", user_id=1),
        lambda: accounts.revoke_key(99, actor="test:me"),
        lambda: accounts.create_key("eve", "ci", [Scope.READ], None, actor="test:me"),
    ):
        with pytest.raises(NotFound):
            nobody()


def test_a_name_of_a_key_is_used_once_by_its_owner_at_a_time(accounts: AccountService) -> None:
    told = all_at_once([lambda: accounts.create_key(1, "ci", [Scope.READ], None, actor="test:me")] * 4)
    assert sorted(type(one).__name__ for one in told) == ["NoneType"] + ["Refused"] * 3
    with pytest.raises(Refused, match="There is a key ci of this user already; revoke it, or choose another name"):
        accounts.create_key(1, "ci", [Scope.READ], None, actor="test:me")
    accounts.revoke_key(accounts.keys(1)[0].id, actor="test:me")
    accounts.create_key(1, "ci", [Scope.READ], None, actor="test:me")


def test_a_key_that_cannot_be_meant(accounts: AccountService) -> None:
    for span in [timedelta(0), timedelta(seconds=59), timedelta(days=-1), timedelta(days=3651)]:
        with pytest.raises(UsageError, match="A key expires after 1m to 3650d, or never"):
            accounts.create_key(1, "ci", [Scope.READ], span, actor="test:me")
        with pytest.raises(UsageError, match="Say what the key is for: read, metrics, crawl"):
            accounts.create_key(1, "ci", [], None, actor="test:me")


# What is kept ---------------------------------------------------------------------------------------------------------


def test_nothing_secret_is_kept_in_clear(accounts: AccountService, connection: psycopg.Connection) -> None:
    add(accounts, "bob")
    typed = "a-password-typed-as-a-name"
    secrets = {RIGHT, WRONG, typed}
    for number in range(7):
        fail(accounts, typed if number % 2 else "bob")
    logged_in = [come_in(accounts) for _ in range(3)]
    secrets |= {one for login in logged_in for one in (login.token, login.csrf)}
    replaced = come_in(accounts, previous=logged_in[0].token)
    secrets |= {replaced.token, replaced.csrf}
    accounts.logout(logged_in[1].token)
    secrets |= {accounts.create_key(1, f"k{n}", [Scope.READ], None, actor="ann")[1] for n in range(3)}
    made, new = accounts.add("eve", Role.USER, None, actor="ann")[1], accounts.set_password("bob", None, actor="ann")
    assert made is not None
    assert new.password is not None
    secrets |= {made, new.password}
    assert len(secrets) == 3 + 8 + 3 + 2
    everything = dump(connection)
    assert everything.count("$argon2id$") == 3
    for secret in secrets:
        for shape in (secret, secret.encode().hex(), secret.removeprefix("hfs_").removeprefix("hfk_")):
            assert shape not in everything
    halves = {secret[14:34] for secret in secrets if secret.startswith("hf")}
    assert not [half for half in halves if half in everything], "not even a part that is worth guessing from"


def test_every_change_is_in_the_audit_log(accounts: AccountService, connection: psycopg.Connection) -> None:
    bob, eve = add(accounts, "bob"), add(accounts, "eve")
    first = come_in(accounts, "bob")
    second = come_in(accounts, "bob", previous=first.token)
    accounts.logout(second.token)
    third = come_in(accounts, "bob")
    accounts.revoke_session(third.session_id, actor="ann")
    come_in(accounts, "bob")
    accounts.revoke_sessions("bob", actor="ann")
    key, _ = accounts.create_key(bob, "ci", [Scope.READ], None, actor="ann")
    accounts.revoke_key(key.id, actor="ann")
    accounts.set_password("bob", RIGHT, actor="ann")
    accounts.set_role("bob", Role.ADMIN, actor="ann")
    accounts.disable("bob", actor="ann")
    accounts.enable("bob", actor="ann")
    accounts.remove("eve", actor="ann")
    told = deeds(connection)
    for again in (
        lambda: accounts.set_role("bob", Role.ADMIN, actor="ann"),
        lambda: accounts.enable("bob", actor="ann"),
        lambda: accounts.revoke_key(key.id, actor="ann"),
        lambda: accounts.revoke_sessions("bob", actor="ann"),
        lambda: accounts.logout(second.token),
    ):
        again()
    assert deeds(connection) == told, "what changes nothing leaves no row"
    assert told[1:] == [
        ("test:me", "add", "user", str(bob)),
        ("test:me", "add", "user", str(eve)),
        ("bob", "login", "session", str(first.session_id)),
        ("bob", "login", "session", str(second.session_id)),
        ("bob", "logout", "session", str(second.session_id)),
        ("bob", "login", "session", str(third.session_id)),
        ("ann", "revoke", "session", str(third.session_id)),
        ("bob", "login", "session", str(third.session_id + 1)),
        ("ann", "revoke", "session", "*"),
        ("ann", "add", "key", str(key.id)),
        ("ann", "revoke", "key", str(key.id)),
        ("ann", "set password", "user", str(bob)),
        ("ann", "set role", "user", str(bob)),
        ("ann", "disable", "user", str(bob)),
        ("ann", "enable", "user", str(bob)),
        ("ann", "remove", "user", str(eve)),
    ]


def limits_told(connection: psycopg.Connection) -> list[tuple[str, str, str, str]]:
    return [deed for deed in deeds(connection) if deed[1] == "login limit"]


def test_failed_logins_leave_a_row_when_a_limit_begins(
    accounts: AccountService, connection: psycopg.Connection
) -> None:
    for _ in range(4):
        fail(accounts, "ann")
    assert limits_told(connection) == []
    for _ in range(20):
        fail(accounts, "ann")
    assert limits_told(connection) == [("anonymous", "login limit", "user", "1")]
    connection.execute("UPDATE login_failures SET at = at - interval '10 minutes'")
    connection.execute(
        "UPDATE login_failures SET at = at - interval '10 minutes' WHERE id = (SELECT min(id) FROM login_failures)"
    )
    fail(accounts, "ann")
    assert len(limits_told(connection)) == 1, "the same siege"
    for number in range(30):
        fail(accounts, f"name{number}")
    assert limits_told(connection)[1:] == [("anonymous", "login limit", "address", HOME)], "and none of unknown names"
    connection.execute("DELETE FROM login_failures")
    for _ in range(6):
        fail(accounts, "ann", "203.0.113.1")
    assert len(limits_told(connection)) == 3


def test_many_addresses_do_not_fill_the_audit_log(
    accounts: AccountService, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr(login_attempts, "MOST_TOLD", 3)
    strict = desk(database, login_failures_address=1)
    for number in range(10):
        fail(strict, f"name{number}", f"198.51.100.{number}")
    assert len(limits_told(connection)) == 3
    connection.execute("UPDATE login_failures SET at = at - interval '16 minutes'")
    fail(strict, "another", "203.0.113.1")
    assert len(limits_told(connection)) == 4


def test_failures_do_not_pile_up_even_if_nobody_tidies(
    accounts: AccountService, connection: psycopg.Connection, store: Store
) -> None:
    for number in range(15):
        fail(accounts, f"name{number}")
    connection.execute("UPDATE login_failures SET at = at - interval '16 minutes'")
    fail(accounts, "ann")
    assert store.value("SELECT count(*) FROM login_failures") == 6, "ten went, one came"
    fail(accounts, "ann")
    assert store.value("SELECT count(*) FROM login_failures") == 2


def test_tidying_takes_what_ended_long_ago(accounts: AccountService, connection: psycopg.Connection) -> None:
    live, fresh, expired, revoked = (come_in(accounts) for _ in range(4))
    accounts.logout(fresh.token)
    accounts.logout(revoked.token)
    old = "UPDATE sessions SET {} = clock_timestamp() - interval '7 days 1 second' WHERE id = %s"
    connection.execute(old.format("expires_at").encode(), (expired.session_id,))
    connection.execute(old.format("revoked_at").encode(), (revoked.session_id,))
    fail(accounts, "ann")
    connection.execute("UPDATE login_failures SET at = at - interval '15 minutes 1 second'")
    connection.execute("INSERT INTO login_failures (origin) VALUES ('recent')")
    window = accounts.settings.login_window
    deleted = [
        sessions.tidy(connection, chunk=1) + login_attempts.tidy(connection, window=window, chunk=1) for _ in range(3)
    ]
    assert deleted == [2, 1, 0]
    assert accounts.session(live.token) is not None
    left = connection.execute("SELECT id FROM sessions ORDER BY id").fetchall()
    assert left == [(live.session_id,), (fresh.session_id,)]
    assert connection.execute("SELECT origin FROM login_failures").fetchall() == [("recent",)]
