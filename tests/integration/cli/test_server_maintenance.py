"""`--server` for long work: retention, archives, segments, replays and counters, done by the background of the server."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast import factories
from holdfast.db.connection import Database
from holdfast.model.auth import Role, Scope
from holdfast.operations.service import OperationRunner
from tests.support.aged import JobStore, Kept, crawl_site, end_job, let_pass
from tests.support.api import serving, settings
from tests.support.both import Both
from tests.support.cli import Cli
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

MACHINES = """
INSERT INTO archive_machines (id, folder_id, name) OVERRIDING SYSTEM VALUE VALUES (1, 'a', 'm1'), (2, 'b', 'm2')
"""


@pytest.fixture
def both(cli: Cli, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """A server of the same data folder; who waits for an operation does it."""
    ours = settings(tmp_path / ".holdfast")
    operator = OperationRunner(database, factories.operation_handlers(ours, database).by_kind())
    monkeypatch.setattr("time.sleep", lambda _: operator.work())
    with serving(database, ours) as api:
        yield Both(cli, api, api.key(Role.ADMIN), monkeypatch)


def test_retention_and_its_archives(both: Both, database: Database, store: Store, tmp_path: Path) -> None:
    kept = Kept(database, tmp_path / ".holdfast")
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, kept.archive, "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    let_pass(store.connection, timedelta(days=100))
    place = ("store",)
    assert both.same("retention", "status", but=place)["runs"] == []
    counted = both.same("retention", "run", "--dry-run")
    assert (counted["dry_run"], {step["step"]: step["rows"] for step in counted["steps"]}["pages"]) == (True, 4)
    asked = both.far("retention", "run", stdin="n\n")
    assert (asked.code, store.value("SELECT count(*) FROM archives")) == (5, 0)
    assert "rows to " in asked.err
    done = both.far("retention", "run", "--yes", "--json").json
    assert [step["rows"] for step in done["steps"]] == [step["rows"] for step in counted["steps"]]
    assert store.value("SELECT count(*) FROM crawled_pages") == 0
    assert both.same("retention", "status", but=place)["runs"][0]["rows"] == sum(step["rows"] for step in done["steps"])
    assert both.far("retention", "run", "--yes").out == "Nothing is older than the settings of retention say.\n"

    first = both.same("archive", "list", "--limit", "1")
    assert both.same("archive", "list", "--before", str(first["before"]))["archives"]
    (pages,) = both.same("archive", "list", "--kind", "pages", "--job", "shop")["archives"]
    shown = both.same("archive", "show", str(pages["id"]), "--check")
    assert shown["checked"] == len(shown["files"]) > 1
    assert both.shown("archive", "show", str(pages["id"])).endswith(", complete.\n")
    both.refused("archive", "list", "--job", "nothing")
    both.refused("archive", "show", "999")
    both.refused("archive", "restore")
    both.refused("archive", "restore", "999")
    both.refused("archive", "restore", str(pages["id"]), "--schema", "Public")
    both.refused("archive", "restore", str(pages["id"]), "--schema", "tables")
    analysed = both.far("archive", "restore", str(pages["id"]), "--schema", "old", "--json").json["archives"]
    assert [(one["into"], one["restored"]) for one in analysed] == [("old", pages["rows"])]
    assert store.value("SELECT count(*) FROM old.crawled_pages") == 4
    restored = both.far("archive", "restore", "--job", "shop", "--keep", "90d")
    assert restored.out.startswith(f"{store.value('SELECT count(*) FROM archives WHERE job_id IS NOT NULL')} archives ")
    assert store.value("SELECT count(*) FROM crawled_pages") == 4
    assert store.value("SELECT kept_until > now() + interval '80 days' FROM crawl_jobs WHERE name = 'shop'")
    assert_invariants(store.connection)
    # A file that is damaged is named by both, and the archive stays as it is.
    file = next((tmp_path / ".holdfast" / "retention" / "log").rglob("*.parquet"))
    file.write_bytes(b"PAR1")
    (log,) = both.same("archive", "list", "--kind", "log")["archives"]
    check = ("archive", "show", str(log["id"]), "--check")
    assert both.far(*check).refused(1) == both.near(*check).refused(3), "an operation that fails ends with 1"
    assert " is damaged: it has 4 bytes" in both.far(*check).err


def test_who_may_only_read_starts_nothing(both: Both) -> None:
    reader = both.api.key(Role.USER, Scope.READ)
    assert both.far("retention", "status", key=reader).code == 0
    assert both.far("segments", "list", key=reader).code == 0
    for words in (
        ("retention", "run", "--yes"),
        ("archive", "restore", "1"),
        ("replay", "--lost"),
        ("rebuild", "counters", "--dry-run"),
        ("segments", "lost", "m1", "--yes"),
    ):
        assert both.far(*words, key=reader).refused(6).startswith("This needs the role admin")


def test_replays_and_counters(both: Both, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    volatile = ("as_of",)
    counted = both.same("replay", "--fetch", "--job", "default", "--dry-run", but=volatile)
    assert (counted["pages"], counted["dry_run"]) == (counted["looked_at"], True)
    both.shown("replay", "--fetch", "--domain", "example.com", "--since", "2031-01-01", "--dry-run")
    for wrong in (
        ("--fetch", "--job", "nothing"),
        ("--fetch", "--domain", "nowhere.example"),
        ("--fetch", "--parse"),
        ("--lost", "--parser", "x"),
    ):
        both.refused("replay", *wrong)
    before = datetime.now(UTC).isoformat()
    done = both.far("replay", "--fetch", "--json").json
    assert (done["pages"], done["dry_run"]) == (counted["pages"], False)
    assert store.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") or store.value(
        "SELECT count(*) FROM domain_wakes"
    )
    again = both.far("replay", "--fetch", "--as-of", before, "--json").json
    assert (again["pages"], again["waiting"], again["as_of"]) == (0, counted["pages"], before.replace("+00:00", "Z"))

    both.same("rebuild", "counters", "--dry-run")
    store.connection.execute("UPDATE domains SET pages_crawled = pages_crawled + 5 WHERE domain = 'example.com'")
    wrong_now = both.same("rebuild", "counters", "--dry-run")
    assert [(one["counter"], one["before"] - one["after"]) for one in wrong_now["changes"]] == [("pages_crawled", 5)]
    assert "1 counter was corrected" in both.far("rebuild", "counters", "--domain", "example.com", "--wait", "1s").out
    assert both.same("rebuild", "counters")["changed"] == 0
    both.refused("rebuild", "counters", "--domain", "nowhere.example")
    assert "wait" in both.far("rebuild", "counters", "--wait", "2h").refused(2)


def test_segments(both: Both, connection: psycopg.Connection) -> None:
    assert both.same("segments") == []
    connection.execute(MACHINES)
    connection.execute(
        "INSERT INTO archive_segments (segment, machine_id, state, bytes, sha256, uploaded_at) "
        "SELECT 'w' || n || '/a.warc.gz', 1 + n % 2, 'uploaded', 10 * n, decode(repeat('ab', 32), 'hex'), now() "
        "FROM generate_series(1, 3) n UNION ALL SELECT 'w4/a.warc.gz', 1, 'open', NULL, NULL, NULL"
    )
    assert [one["name"] for one in both.same("segments")] == ["m1", "m2"]
    both.shown("segments")
    page = both.same("segments", "list", "--limit", "2")
    assert page["after"] == "w2/a.warc.gz"
    rest = both.same("segments", "list", "--after", page["after"])
    assert [one["segment"] for one in rest["segments"]] == ["w3/a.warc.gz", "w4/a.warc.gz"]
    assert [one["sha256"] for one in both.same("segments", "list", "--machine", "m1")["segments"]] == ["ab" * 32, None]
    assert "OPENED (UTC)" in both.shown("segments", "list", "--state", "open")
    assert both.far("segments", "list", "--state", "gone").refused(2)

    both.refused("segments", "lost", "m9", "--dry-run")
    lost = both.same("segments", "lost", "m1", "--dry-run")
    assert (lost["segments"], lost["dry_run"]) == (["w4/a.warc.gz"], True)
    assert both.far("segments", "lost", "m1").code == 5
    connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w4', 'm1', 1)")
    # One asks after the other: a second may pass between them.
    near, far = (
        re.sub(r"\d+ s ago", "just now", cli("segments", "lost", "m1", "--yes").refused(5))
        for cli in (both.near, both.far)
    )
    assert near == far
    assert "its worker w4 was heard of just now" in near
    connection.execute("UPDATE workers SET heartbeat_at = heartbeat_at - interval '3 minutes'")
    done = both.far("segments", "lost", "m1", "--yes", "--json").json
    assert (done["segments"], done["dry_run"]) == (["w4/a.warc.gz"], False)
    assert [one["lost"] for one in both.same("segments")] == [1, 0]


def test_ctrl_c_ends_the_command_and_not_the_operation(
    both: Both, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", pressed)
    answer = both.far("rebuild", "counters")
    assert answer.code == 130
    number = store.value("SELECT id FROM operations WHERE kind = 'rebuild-counters' AND state = 'waiting'")
    assert f"The server goes on with it: operation {number} (rebuild-counters); " in answer.err
    assert f"`holdfast operations show {number}` with the same --server" in answer.err


def test_operations_are_listed_and_shown(both: Both, store: Store) -> None:
    assert both.shown("operations") == ""
    assert both.near("operations").err == "There are no operations.\n"
    assert both.near("operations", "--state", "failed").err == "There are no operations that are failed.\n"
    both.far("rebuild", "counters", "--dry-run")
    insert = "INSERT INTO operations (kind, arguments, asked_by) VALUES (%s, %s, 'ann')"
    store.connection.execute(insert, ("verify", '{"archive": true}'))
    store.connection.execute(insert, ("replay", '{"mode": "fetch", "job": "news", "domain": null}'))
    store.connection.execute(
        "UPDATE operations SET state = 'failed', started_at = now(), ended_at = now(), attempts = 2, problem = 'No \x1b luck.'"
        " WHERE kind = 'replay'"
    )
    listed = both.same("operations")
    assert [one["kind"] for one in listed["operations"]] == ["replay", "verify", "rebuild-counters"]
    assert listed["before"] is None
    (failed,) = both.same("operations", "--state", "failed")["operations"]
    assert failed["problem"].startswith("No ")
    page = both.same("operations", "--limit", "1", "--before", str(failed["id"]))
    assert ([one["kind"] for one in page["operations"]], page["before"]) == (["verify"], failed["id"] - 1)
    table = both.shown("operations")
    assert re.search(r"^ *\d+  replay +failed +\d{4}-\d\d-\d\d \d\d:\d\d  ann +", table, re.MULTILINE)
    assert "└─ No \\x1b luck." in table
    shown = both.shown("operations", "show", str(failed["id"]))
    assert re.search(r"^Started +\S+ \S+, attempt 2", shown, re.MULTILINE)
    assert re.search(r"^Arguments +job news, mode fetch$", shown, re.MULTILINE)
    assert re.search(r"^Problem +No \\x1b luck\.$", shown, re.MULTILINE)
    waiting = both.near("operations", "show", str(failed["id"] - 1))
    assert re.search(r"^State +waiting$", waiting.out, re.MULTILINE)
    assert waiting.err == "It waits for a background process: `holdfast serve` or `holdfast background`.\n"
    done = both.same("operations", "show", str(failed["id"] - 2))
    assert (done["state"], done["result"]["dry_run"]) == ("done", True)
    assert re.search(r"^Arguments +.*wait 0s", both.shown("operations", "show", str(done["id"])), re.MULTILINE)
    assert re.search(r"^Result +.*dry run yes", both.shown("operations", "show", str(done["id"])), re.MULTILINE)
    store.connection.execute(
        """UPDATE operations SET state = 'done', attempts = 1, started_at = now(), ended_at = now(),
           result = '{"ok": false, "checks": [{"check": "I1", "faults": 1200, "rows": [{}]}]}'
           WHERE kind = 'verify'"""
    )
    lines = both.shown("operations", "show", str(failed["id"] - 1)).splitlines()
    assert re.split(r"  +", lines[6]) == ["Result", "ok no"]
    assert [re.split(r"  +", line) for line in lines[8:]] == [
        ["Checks:"],
        ["CHECK", "FAULTS"],
        ["─" * 13],
        ["I1", "1,200"],
    ]
    both.refused("operations", "show", "999")
    assert "'lost' is not one of 'waiting', 'running', 'done', 'failed'" in both.near(
        "operations", "--state", "lost"
    ).refused(2)


def test_a_queue_without_a_background_is_named(both: Both, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(40))

    def wait(_: float) -> None:
        if next(looks) == 35:
            store.connection.execute("UPDATE operations SET state = 'failed', problem = 'No luck.', ended_at = now()")

    monkeypatch.setattr("time.sleep", wait)
    answer = both.far("rebuild", "counters")
    assert (answer.code, answer.err.count("It is still queued; it needs a running `holdfast background`")) == (1, 1)
    assert answer.err.endswith("Error: No luck.\n")


def test_requests_that_are_refused_start_no_operation(both: Both, store: Store) -> None:
    ada = both.api.admin
    for path, body, status in (
        ("archives/restore", {}, 422),
        ("archives/restore", {"ids": [7]}, 404),
        ("archives/restore", {"job": "nothing"}, 404),
        ("archives/restore", {"kind": "log", "schema": "pg_catalog"}, 422),
        ("archives/restore", {"kind": "log", "keep": -1}, 422),
        ("archives/restore", {"ids": [0]}, 422),
        ("archives/7/check", None, 404),
        ("archive/machines/m9/lost", {}, 404),
        ("rebuild/counters", {"wait": "PT2H"}, 422),
        ("replay", {"mode": "fetch", "as_of": "yesterday"}, 422),
    ):
        assert ada.post(f"/api/admin/{path}", json=body).status_code == status, (path, body)
    assert ada.get("/api/archive/segments", params={"cursor": "WzFd"}).status_code == 422
    assert ada.get("/api/archive/segments", params={"state": "gone"}).status_code == 422
    assert store.value("SELECT count(*) FROM operations") == 0
