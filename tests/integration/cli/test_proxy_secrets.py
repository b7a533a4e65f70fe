"""Passwords of proxies: sealed on their way in, in no output and no table, opened by the right key only, re-encrypted by another."""

import os
import pty
import select
import subprocess
from pathlib import Path

import psycopg
import pytest

from holdfast.control.secret_box import SecretBox
from holdfast.proxies.queries import proxies
from holdfast.settings import load
from tests.support.cli import Answer, Cli, command
from tests.support.factories import Store

CANARY = "canary-Zw7!"
OLD, NEW = SecretBox.new_key(), SecretBox.new_key()


def everything(connection: psycopg.Connection) -> str:
    """All rows of all tables, as text, and what the server knows of our statements."""
    tables = connection.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    names = [name for (name,) in tables] + ["pg_stat_activity"]
    return "\n".join(str(row[0]) for name in names for row in connection.execute(f"SELECT t::text FROM {name} t"))


def opened(connection: psycopg.Connection, folder: Path) -> list[str]:
    """What a worker gets to see, which has the settings of the environment."""
    safe = SecretBox.of(load(options={"data": folder / ".holdfast"}))
    return [safe.open(token) for _, token in proxies.tokens(connection, after=0, limit=99)]


def test_the_canary_is_nowhere(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    (cli.folder / "list.txt").write_text(f"http://bob:{CANARY}@one.example:1\nhttp://bob:{CANARY}@bad host:1\n")
    (cli.folder / "list.csv").write_text(
        f"host,port,user,password\ntwo.example,1,bob,{CANARY}\ntwo.example,x,bob,{CANARY}\n"
    )
    whole = f"http://bob:{CANARY}@three.example:1"
    calls: list[tuple[list[str], str | bytes | None]] = [
        (["add", "http://bob@three.example:1", "--password-stdin"], f"{CANARY}\n".encode()),
        (["add", "http://bob@four.example:1"], f"{CANARY}\n"),
        (["add", "http://four.example:1", "--password-stdin"], f"{CANARY}\n".encode()),
        (["add", "http://bob@10.0.0.1:1", "--password-stdin"], f"{CANARY}\n".encode()),
        (["add", "http://bob@five.example:1", "--password-stdin"], f"{CANARY}\x07\n".encode()),
        (["import", "list.txt"], None),
        (["import", "list.csv"], None),
        (["import", "-"], f"{whole}\n{whole}{whole}\n".encode()),
        (["edit", "1", "--password-stdin"], f"{CANARY}2\n".encode()),
        (["edit", "1", "--city", "Bonn"], None),
        *((words, None) for words in (["add", whole], ["show", whole], ["edit", whole], ["enable", whole, "1"])),
        *((words, None) for words in (["assign", whole, "1"], ["assign", "example.com", whole], ["test", whole])),
        *((words, None) for words in (["remove", whole, "--yes"], ["add", "a:1", whole], [whole], ["list", whole])),
        (["assign", "example.com", "1", "--country", CANARY + ":x@"], None),
        *((words, None) for words in (["list"], ["show", "1"], ["assign", "example.com", "1", "2"], ["health"])),
        *((words, None) for words in (["health", "example.com"], ["alerts"], ["cost", "--each"], ["disable", "2"])),
        *((words, None) for words in (["test", "1", "2", "--url", "http://127.0.0.1:1/"], ["rotate"])),
        (["unassign", "example.com", "1"], None),
    ]
    answers = [cli("proxies", *words, *json, stdin=stdin) for words, stdin in calls for json in ([], ["--json"])]
    answers += [
        cli(*words) for words in (["audit"], ["audit", "--json"], ["config", "show"], ["explain", "example.com"])
    ]
    answers += [cli("domain-info", "example.com", "--json")]
    assert sorted(opened(store.connection, cli.folder)) == [CANARY] * 3 + [CANARY + "2"], "they are all there"
    assert [answer for answer in answers if CANARY in answer.out + answer.err] == []
    assert not [answer for answer in answers if "Traceback" in answer.err]
    assert CANARY not in everything(store.connection)
    for token in (token for _, token in proxies.tokens(store.connection, after=0, limit=99)):
        assert not [answer for answer in answers if token in answer.out + answer.err], "nor is a sealed one"
    key = (cli.folder / ".holdfast" / "secret.key").read_text().strip()
    assert not [answer for answer in answers if key in answer.out + answer.err]


def test_what_is_typed_is_not_shown(cli: Cli, store: Store) -> None:
    """On a real terminal; and nobody finds it among the arguments of the process."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("proxies", "add", "http://bob@one.example:1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = b""
        while b"Password" not in seen and select.select([ours], [], [], 60)[0]:
            seen += os.read(ours, 4096)
        os.write(ours, f"{CANARY}\n".encode())
        arguments = Path(f"/proc/{process.pid}/cmdline")
        told = arguments.read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes() if arguments.exists() else b""
        while select.select([ours], [], [], 60)[0]:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # nobody is at the other end any more
                break
    os.close(ours)
    assert process.returncode == 0
    assert "Proxy 1 is http://one.example:1." in seen.decode()
    assert CANARY.encode() not in seen + told
    assert opened(store.connection, cli.folder) == [CANARY]


def test_keys_are_rotated(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(port: int) -> None:
        cli("proxies", "add", f"http://bob@one.example:{port}", "--password-stdin", stdin=f"{CANARY}{port}\n".encode())

    monkeypatch.setenv("HOLDFAST_SECRET_KEY", OLD)
    add(1)
    add(2)
    cli("proxies", "add", "http://one.example:3")
    cli("seeds", "add", "a.example")
    assert cli("domain-set", "a.example", f"header=X-Key: {CANARY}").out.endswith("no subdomain but www: X-Key.\n")
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", f"{NEW}, {OLD}")
    add(4)
    assert opened(store.connection, cli.folder) == [f"{CANARY}{port}" for port in (1, 2, 4)]
    assert cli("proxies", "rotate").out == "3 secrets re-encrypted, 1 had the newest key already.\n"
    told = {"seen": 4, "resealed": 0, "failed": [], "failed_secrets": [], "problem": None}
    assert cli("proxies", "rotate", "--json").json == told
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", NEW)
    assert opened(store.connection, cli.folder) == [f"{CANARY}{port}" for port in (1, 2, 4)], (
        "the old one is not needed"
    )
    assert not (cli.folder / ".holdfast").exists()
    assert store.value("SELECT details->>'proxies' FROM audit_log WHERE action = 'reseal'") == "2"


def test_a_wrong_key_is_said_and_costs_nothing(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", OLD)
    for port in (1, 2):
        cli("proxies", "add", f"http://bob@one.example:{port}", "--password-stdin", stdin=f"{CANARY}\n".encode())
    before = proxies.tokens(store.connection, after=0, limit=9)
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", NEW)
    lost = (
        "The secret was sealed with a key that is not in HOLDFAST_SECRET_KEY: set HOLDFAST_SECRET_KEY to the new key and, behind a "
        "comma, the one that it was sealed with, or give it again (`holdfast proxies edit PROXY --password-stdin`, "
        "`crawl --header …`, `domains set DOMAIN header=…`)."
    )
    tried = cli("proxies", "test", "1", "--url", "http://127.0.0.1:1/", "--json")
    assert (tried.code, tried.json[0]["problem"], tried.json[0]["works"]) == (1, lost, False)
    rotated = cli("proxies", "rotate")
    assert (rotated.code, rotated.out) == (1, "0 secrets re-encrypted, 0 had the newest key already.\n")
    assert rotated.err == f"Error: 2 secrets could not be opened (of proxy 1, proxy 2). {lost}\n"
    assert proxies.tokens(store.connection, after=0, limit=9) == before
    assert cli("proxies", "list").code == 0, "nobody needs a key to look"
    cli("proxies", "edit", "1", "--password-stdin", stdin=f"{CANARY}\n".encode())
    partly: Answer = cli("proxies", "rotate", "--json")
    assert (partly.code, partly.json["failed"]) == (1, [2])
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", f"{NEW},{OLD}")
    assert cli("proxies", "rotate").code == 0
    assert opened(store.connection, cli.folder) == [CANARY, CANARY]


def test_a_rotation_takes_many_steps_and_respects_others(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", OLD)
    lines = "".join(f"http://u:{CANARY}{n}@h.example:{n}\n" for n in range(1, 602))
    cli("proxies", "import", "-", stdin=lines.encode())
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", f"{NEW},{OLD}")
    safe, original = SecretBox.of(load(environ=dict(os.environ))), proxies.tokens

    def meanwhile(connection: psycopg.Connection, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Somebody gives the first proxy another password, after it was read."""
        found = original(connection, after=after, limit=limit)
        if not after:
            proxies.edit(store.connection, 1, {"proxy_password": safe.seal("theirs")}, actor="test:me")
        return found

    monkeypatch.setattr(proxies, "tokens", meanwhile)
    assert cli("proxies", "rotate").out.startswith("600 secrets re-encrypted, 1 had")
    monkeypatch.setattr(proxies, "tokens", original)
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", NEW)
    after = SecretBox.of(load(environ=dict(os.environ)))
    found = [after.open(token) for _, token in proxies.tokens(store.connection, after=0, limit=999)]
    assert found == ["theirs", *(f"{CANARY}{n}" for n in range(2, 602))]


def test_a_new_key_is_a_key(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bare_cli("proxies", "new-key"), bare_cli("proxies", "new-key", "--json").json["key"]
    assert (first.code, first.err) == (0, "")
    assert first.out.strip() != second
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", f"{first.out.strip()},{second}")
    assert bare_cli("config", "check").out == "The settings are valid.\n"
    shown = bare_cli("config", "show").out + bare_cli("config", "show", "--json").out
    assert second not in shown
    assert not (bare_cli.folder / ".holdfast").exists(), "it is kept nowhere"
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", second[:-3])
    assert bare_cli("proxies", "list").refused(2) == (
        "HOLDFAST_SECRET_KEY must be a key that `holdfast proxies new-key` has made, or several with commas between."
    )


def test_a_key_that_is_gone_is_not_replaced_by_another(cli: Cli, store: Store) -> None:
    assert cli("proxies", "add", "http://bob@one.example:1", "--password-stdin", stdin=f"{CANARY}\n".encode()).code == 0
    key = cli.folder / ".holdfast" / "secret.key"
    kept = key.read_text()
    key.unlink()
    answer = cli("proxies", "add", "http://bob@two.example:1", "--password-stdin", stdin=f"{CANARY}\n".encode())
    assert answer.code == 5
    assert "HOLDFAST_SECRET_KEY" in answer.err
    assert not key.exists()
    assert store.value("SELECT count(*) FROM proxies") == 1
    key.write_text(kept)
    key.chmod(0o600)
    assert cli("proxies", "add", "http://bob@two.example:1", "--password-stdin", stdin=f"{CANARY}\n".encode()).code == 0


def test_another_password_forgets_the_failures_of_the_old_one(cli: Cli, store: Store) -> None:
    cli("proxies", "add", "http://bob@one.example:1", "--password-stdin", stdin=f"{CANARY}\n".encode())
    store.connection.execute(
        "UPDATE proxies SET failure_count = 10, is_active = false, disabled_by = 'health', next_try_at = now() + interval '1 h'"
    )
    answer = cli("proxies", "edit", "1", "--password-stdin", "--json", stdin=f"{CANARY}2\n".encode())
    assert answer.code == 0
    assert store.value("SELECT is_active AND failure_count = 0 AND next_try_at IS NULL FROM proxies")
