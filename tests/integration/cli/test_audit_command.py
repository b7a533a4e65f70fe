"""`holdfast audit`: who did what, for people and for programs."""

import re

import psycopg
import pytest

from holdfast.audit.records import AuditFilter
from holdfast.audit.service import AuditService
from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.errors import UsageError
from tests.support.cli import Cli


@pytest.fixture
def log(cli: Cli, connection: psycopg.Connection) -> Cli:
    """What three did: two tasks by Ann, one of them changed by Bob, and a job by a program."""
    deeds: list[tuple[str, str, str, str, dict[str, object]]] = [
        ("cli:ann", "create", "task", "*", {"tasks": 2, "from_id": 7, "to_id": 8}),
        ("cli:bob", "priority", "task", "7", {"was": 5, "priority": 1, "why": None}),
        ("api:x", "create", "job", "7", {"name": "evil \x1b[2J"}),
    ]
    with connection.transaction():
        for actor, action, kind, object_id, details in deeds:
            audit.write(connection, actor=actor, action=action, kind=kind, object_id=object_id, details=details)
    return cli


def test_who_did_what_the_newest_first(log: Cli) -> None:
    answer = log("audit")
    assert (answer.code, answer.err) == (0, "")
    rows = [re.split(r"\s{2,}", line.strip()) for line in answer.out.splitlines()]
    assert rows[0] == ["ID", "WHEN (UTC)", "WHO", "DID", "TO", "DETAILS"]
    assert [[row[0], *row[2:]] for row in rows[2:]] == [
        ["3", "api:x", "create", "job 7", r"name evil \x1b[2J"],
        ["2", "cli:bob", "priority", "task 7", "priority 1, was 5"],
        ["1", "cli:ann", "create", "tasks", "from id 7, tasks 2, to id 8"],
    ]


def test_several_at_once_have_a_plural(cli: Cli, connection: psycopg.Connection) -> None:
    with connection.transaction():
        for kind in ("frontier", "runs", "claims", "proxy", "batch", "session"):
            audit.write(connection, actor="cli:ann", action="clear", kind=kind, object_id="*", details={})
    lines = cli("audit").out.splitlines()[2:]
    assert [line.split()[-1] for line in lines] == ["sessions", "batches", "proxies", "claims", "runs", "frontier"]


def test_filters_and_pages(log: Cli) -> None:
    for options, ids in [
        ([], [3, 2, 1]),
        (["--actor", "cli:ann"], [1]),
        (["--kind", "task"], [2, 1]),
        (["--kind", "task", "--id", "7"], [2]),
        (["--kind", "job", "--id", "7"], [3]),
        (["--before", "3", "--limit", "1"], [2]),
        (["--actor", "nobody"], []),
    ]:
        told = log("audit", *options, "--json").json
        assert [entry["id"] for entry in told["entries"]] == ids, options
        assert told["before"] == (ids[-1] if "--limit" in options else None)


def test_a_page_says_how_to_go_on(log: Cli) -> None:
    assert log("audit", "--limit", "2").err == "More rows: --before 2.\n"
    nothing = log("audit", "--kind", "proxy")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "There are no such entries in the audit log.\n")


def test_what_cannot_be_meant(log: Cli, database: Database) -> None:
    sentence = log("audit", "--id", "7").refused(2)
    assert sentence == "An id means something with its kind only: name the kind, too."
    assert log("audit", "--limit", "501").code == 2
    service = AuditService(database)
    for limit in (0, 501):
        with pytest.raises(UsageError, match="1 to 500 at once"):
            service.page(limit=limit)
    for text in ("a\0", "\ud800"):
        with pytest.raises(UsageError, match="actor must be a text of 1 to 2048 characters"):
            service.page(AuditFilter(actor=text))


def test_what_the_command_line_does_is_in_it(cli: Cli) -> None:
    cli("tasks", "add", "a.example")
    cli("tasks", "pause", "1")
    cli("batches", "create", "b")
    told = cli("audit", "--json").json["entries"]
    assert [(entry["action"], entry["object_kind"], entry["object_id"]) for entry in told] == [
        ("create", "batch", "1"),
        ("pause", "task", "1"),
        ("create", "task", "1"),
    ]
    assert {entry["actor"][:4] for entry in told} == {"cli:"}
