"""`holdfast users` and `holdfast keys`: passwords by a pipe or a person, random ones shown once, refusals in one sentence."""

import os
import pty
import re
import select
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.accounts.passwords import Argon2
from holdfast.accounts.service import AccountService
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.settings.web import Web
from tests.support.accounts import RIGHT, WEAK, add, come_in, desk, dump, refusal
from tests.support.cli import Cli, command
from tests.support.factories import Store


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of these tests are cheap, but for one."""
    monkeypatch.setattr(AccountService.__init__, "__defaults__", (WEAK,))


@pytest.fixture
def accounts(database: Database, cli: Cli, cheap: None) -> AccountService:
    """The accounts that the commands change."""
    made = AccountService(database, Web())
    assert made.hasher == WEAK
    return made


@pytest.fixture(scope="module")
def two_users(server: embedded.Server, shared_store: Store) -> Store:
    """ann, an admin, and bob, in a store that all refusals leave as it is."""
    accounts = desk(Database(server.url("shared")))
    add(accounts, "ann", Role.ADMIN)
    add(accounts, "bob")
    return shared_store


def rows(text: str) -> list[list[str]]:
    """A table without its head."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[2:]]


def test_a_password_comes_by_a_pipe_or_from_a_person(cli: Cli, accounts: AccountService) -> None:
    piped = cli("users", "add", "ann", "--role", "admin", "--password-stdin", stdin=f"{RIGHT}\n".encode())
    assert (piped.code, piped.out, piped.err) == (0, "ann is added, as an admin.\n", "")
    typed = cli("users", "add", "bob", stdin=f"{RIGHT}\n{RIGHT}\n")
    assert (typed.code, typed.out) == (0, "bob is added, as a user.\n")
    asked = "Password (it is not shown; a random one is generated if it is empty): \nThe same again: \n"
    assert typed.err == asked
    for name in ("ann", "bob"):
        assert come_in(accounts, name)


def test_what_is_typed_twice_is_the_same(cli: Cli, accounts: AccountService) -> None:
    answer = cli("users", "add", "ann", stdin=f"{RIGHT}\nanother horse battery\n")
    assert answer.code == 2
    assert answer.err.endswith("Error: The two passwords differ; nothing was changed.\n")
    assert accounts.users() == []


def test_a_random_password_is_shown_once(cli: Cli, accounts: AccountService, store: Store) -> None:
    piped = cli("users", "add", "ann")
    assert piped.err == "It is not shown again.\n"
    random = re.fullmatch(r"ann is added, as a user\.\nPassword: (\w{20})\n", piped.out)
    assert random
    assert come_in(accounts, "ann", random[1])
    empty = cli("users", "add", "bob", stdin="\n")
    assert re.search(r"Password: \w{20}\n", empty.out)
    told = cli("users", "add", "eve", "--json").json
    assert (told["user"]["name"], told["user"]["role"]) == ("eve", "user")
    assert come_in(accounts, "eve", told["password"])
    shown = [cli(*words) for words in (["users", "list"], ["users", "list", "--json"], ["audit"], ["audit", "--json"])]
    for secret in (random[1], told["password"]):
        assert not [answer for answer in shown if secret in answer.out + answer.err]
        assert secret not in dump(store.connection)


def test_the_real_hash(cli: Cli, store: Store) -> None:
    assert cli("users", "add", "ann", "--password-stdin", stdin=f"{RIGHT}\n".encode()).code == 0
    assert Argon2().verify(str(store.value("SELECT password_hash FROM users")), RIGHT)
    assert not Argon2().is_outdated(str(store.value("SELECT password_hash FROM users")))


@pytest.mark.parametrize(
    ("words", "stdin", "code", "sentence"),
    [
        (
            ["users", "add", "a b"],
            b"",
            2,
            "The name of a user is 1 to 64 letters of ASCII, digits and any of . _ - @, ",
        ),
        (
            ["users", "add", "local"],
            b"",
            2,
            "local is reserved in the audit log; choose another name.",
        ),
        (["users", "add", "eve", "--password-stdin"], b"short\n", 2, "A password has at least 12 characters."),
        (["users", "add", "eve", "--password-stdin"], b"x" * 2000, 2, "A password has at most 1024 bytes."),
        (["users", "add", "eve", "--password-stdin"], b"x" * 20 + b"\0\n", 2, "A password is text, without control "),
        (["users", "add", "eve", "--password-stdin"], b"", 2, "There is no password on standard input."),
        (
            ["users", "add", "eve", "--role", "anonymous"],
            b"",
            2,
            "Invalid value for '--role': 'anonymous' is not one of",
        ),
        (["users", "add", "ANN"], b"", 5, "There is a user ANN already."),
        (["users", "passwd", "eve"], b"", 4, "There is no user eve."),
        (["users", "passwd", "\x1b[2J"], b"", 4, "There is no user '\\x1b[2J'."),
        (
            ["users", "disable", "ann"],
            b"",
            5,
            "ann is the only enabled admin; add another one before ann is dis",
        ),
        (
            ["users", "role", "ann", "user"],
            b"",
            5,
            "ann is the only enabled admin; add another one before ann be",
        ),
        (
            ["users", "remove", "ann", "--yes"],
            b"",
            5,
            "ann is the only enabled admin; add another one before ann",
        ),
        (["users", "remove", "ann"], b"", 5, "Nothing was removed. There is no terminal to ask on; --yes confirms."),
        (["users", "sessions", "99"], b"", 4, "There is no user 99."),
        (
            ["keys", "add", "ann", "ci"],
            b"",
            2,
            "Say what the key is for, with --scope: read, metrics, crawl, domains, ",
        ),
        (
            ["keys", "add", "ann", "c(i", "--scope", "read"],
            b"",
            2,
            "The name of a key is 1 to 64 letters of ASCII, digits",
        ),
        (["keys", "add", "ann", "ci", "--scope", "all"], b"", 2, "Invalid value for '--scope': 'all' is not one of "),
        (
            ["keys", "add", "ann", "ci", "--scope", "read", "--expires", "1s"],
            b"",
            2,
            "A key expires after 1m to 3650d, ",
        ),
        (
            ["keys", "add", "ann", "ci", "--scope", "read", "--expires", "soon"],
            b"",
            2,
            "--expires must be a duration: ",
        ),
        (["keys", "add", "bob", "ci", "--scope", "crawl"], b"", 2, "bob is a user and may have no key for: crawl."),
        (["keys", "add", "eve", "ci", "--scope", "read"], b"", 4, "There is no user eve."),
        (["keys", "list", "--user", "eve"], b"", 4, "There is no user eve."),
        (["keys", "revoke", "99"], b"", 4, "There is no key 99."),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_what_is_refused(
    shared_cli: Cli, two_users: Store, cheap: None, words: list[str], stdin: bytes, code: int, sentence: str
) -> None:
    before = dump(two_users.connection)
    assert shared_cli(*words, stdin=stdin).refused(code).startswith(sentence)
    assert dump(two_users.connection) == before


def test_users_are_listed(cli: Cli, accounts: AccountService) -> None:
    assert cli("users", "list").err.startswith("There are no users; `holdfast users add NAME` adds one")
    cli("users", "add", "ann", "--role", "admin", "--password-stdin", stdin=f"{RIGHT}\n".encode())
    cli("users", "add", "bob")
    cli("users", "disable", "bob")
    come_in(accounts)
    today = datetime.now(UTC).strftime("%Y-%m-")
    first, second = rows(cli("users", "list").out)
    assert first[:4] == ["1", "ann", "admin", "active"]
    assert (first[4].startswith(today), second[1:5]) == (True, ["bob", "user", "disabled", "-"])
    page = cli("users", "list", "--limit", "1")
    assert (len(rows(page.out)), page.err) == (1, "More rows: --after 1.\n")
    assert [user["name"] for user in cli("users", "list", "--after", "1", "--json").json] == ["bob"]
    assert "password_hash" not in cli("users", "list", "--json").out


def test_another_password_role_or_state(cli: Cli, accounts: AccountService) -> None:
    cli("users", "add", "ann", "--role", "admin")
    cli("users", "add", "bob", "--password-stdin", stdin=f"{RIGHT}\n".encode())
    token = come_in(accounts, "bob").token
    answer = cli("users", "passwd", "BOB", "--password-stdin", stdin=b"another horse battery\n")
    assert answer.out == "bob has another password; 1 session ended.\n"
    assert accounts.session(token) is None
    told = cli("users", "passwd", "bob", "--json").json
    assert (told["sessions"], come_in(accounts, "bob", told["password"]).user.name) == (0, "bob")
    assert cli("users", "role", "bob", "admin").out == "bob is an admin.\n"
    assert cli("users", "disable", "bob").out == "bob is disabled.\n"
    assert cli("users", "disable", "bob").out == "bob was disabled already.\n"
    assert refusal(lambda: come_in(accounts, "bob", told["password"])) is not None
    assert cli("users", "enable", "bob").out == "bob is enabled; 1 failed login forgotten.\n"
    assert cli("users", "enable", "bob").out == "bob was enabled already.\n"
    assert cli("users", "enable", "bob", "--json").json["changed"] is False
    assert cli("users", "remove", "bob", stdin="n\n").code == 5
    assert cli("users", "remove", "bob", stdin="y\n").out == "bob is deleted.\n"
    assert cli("users", "remove", "bob", "--yes").refused(4) == "There is no user bob."


def test_sessions_are_listed_and_ended(cli: Cli, accounts: AccountService) -> None:
    cli("users", "add", "ann", "--password-stdin", stdin=f"{RIGHT}\n".encode())
    assert cli("users", "sessions", "ann").err == "ann has no session.\n"
    tokens = [come_in(accounts).token for _ in range(2)]
    listed = rows(cli("users", "sessions", "ann").out)
    assert [(row[0], row[-2:]) for row in listed] == [("2", ["192.0.2.7", "test"]), ("1", ["192.0.2.7", "test"])]
    shown = cli("users", "sessions", "ann", "--json", "--limit", "1")
    assert [one["id"] for one in shown.json] == [2]
    assert [one["id"] for one in cli("users", "sessions", "ann", "--json", "--before", "2").json] == [1]
    assert not any(token in shown.out for token in tokens)
    assert cli("users", "sessions", "ann", "--revoke").out == "2 sessions of ann ended.\n"
    assert [accounts.session(token) for token in tokens] == [None, None]
    assert cli("users", "sessions", "ann", "--revoke", "--json").json["sessions"] == 0


def test_keys_are_made_listed_and_revoked(cli: Cli, accounts: AccountService, store: Store) -> None:
    assert cli("keys", "list").err.startswith("There is no such key; `holdfast keys add USER NAME --scope read` adds")
    cli("users", "add", "ann", "--role", "admin")
    made = cli("keys", "add", "ann", "nightly", "--scope", "crawl", "--scope", "read", "--expires", "90d")
    until = (datetime.now(UTC) + timedelta(days=90)).strftime("%Y-%m-%d")
    (token,) = made.out.splitlines()
    said = rf"Key 1 of ann is for read, crawl, until {until} \d\d:\d\d UTC\. It is not shown again:\n"
    assert re.fullmatch(said, made.err)
    assert accounts.key(token) is not None
    told = cli("keys", "add", "1", "prometheus", "--scope", "metrics", "--json").json
    assert (told["key"]["scopes"], told["key"]["expires_at"]) == (["metrics"], None)
    assert accounts.key(told["token"]) is not None
    listed = cli("keys", "list")
    assert [row[1:6] for row in rows(listed.out)] == [
        ["ann", "nightly", f"{token[:12]}…", "active", "read, crawl"],
        ["ann", "prometheus", f"{told['token'][:12]}…", "active", "metrics"],
    ]
    assert cli("keys", "revoke", "1").out == "Key 1 is revoked.\n"
    assert cli("keys", "revoke", "1").out == "Key 1 was revoked already.\n"
    assert cli("keys", "revoke", "1", "--json").json == {"id": 1, "changed": False}
    assert accounts.key(token) is None
    store.connection.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = 2")
    assert [row[4] for row in rows(cli("keys", "list", "--user", "ann").out)] == ["revoked", "expired"]
    outputs = [listed.out, cli("keys", "list", "--json").out, cli("audit", "--json").out, dump(store.connection)]
    assert not [out for out in outputs if token in out or told["token"] in out]


def test_who_did_it_is_in_the_audit_log(cli: Cli, accounts: AccountService) -> None:
    cli("users", "add", "ann")
    (entry,) = cli("audit", "--kind", "user", "--json").json["entries"]
    assert (entry["action"], entry["object_id"], entry["details"]) == ("add", "1", {"name": "ann", "role": "user"})
    assert entry["actor"].startswith("cli:")


def test_what_is_typed_is_not_shown(cli: Cli, database: Database) -> None:
    """On a real terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("users", "add", "ann"), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = b""
        for question in (b"Password", b"same again"):
            while question not in seen and select.select([ours], [], [], 60)[0]:
                seen += os.read(ours, 4096)
            os.write(ours, f"{RIGHT}\n".encode())
        while select.select([ours], [], [], 60)[0]:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # nobody is at the other end any more
                break
    os.close(ours)
    assert process.returncode == 0
    assert "ann is added, as a user." in seen.decode()
    assert RIGHT.encode() not in seen
    assert come_in(AccountService(database, Web())).user.name == "ann"


def test_only_who_hashes_loads_argon2() -> None:
    loaded = "import sys, holdfast.accounts.cli.users, holdfast.accounts.cli.keys; print('argon2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True).stdout == b"False\n"
