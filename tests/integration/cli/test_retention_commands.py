"""`holdfast retention` and `holdfast archive` as programs: killed at every point, and what they print."""

import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.control.verify import Verifier
from holdfast.db.connection import Database
from holdfast.retention.schedule import machine
from tests.support.aged import DATA, JobStore, Kept, crawl_site, end_job, let_pass, rows_of
from tests.support.cli import Cli, only_ours
from tests.support.crawls import Program, wait_for
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.killed import run_through_kills

DAY = timedelta(days=1)
IMPORTED = ("holdfast.retention.cli", "pyarrow.parquet", "psycopg", "holdfast.archive.file_store")


@pytest.fixture
def kept(database: Database, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Two jobs that ended a hundred days ago, and one that lives, in the store of the command line."""
    only_ours(monkeypatch, tmp_path, database)
    kept = Kept(database, tmp_path / ".holdfast")
    for name in ("shop", "outlet"):
        job = JobStore(store.connection, store.new_job(name))
        crawl_site(database, job, kept.archive, f"{name}.example", rounds=2)
        end_job(store.connection, job.job_id)
    crawl_site(database, store, kept.archive, "live.example", rounds=2)
    let_pass(store.connection, 100 * DAY)
    return kept


@pytest.fixture
def old_segments(kept: Kept) -> dict[str, bytes]:
    """The files of the archive, as old as their pages."""
    found = {}
    for path in kept.archive.glob("*/*.warc.gz"):
        then = time.time() - 100 * 86_400
        os.utime(path, (then, then))
        found[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    return found


@pytest.mark.parametrize("failpoint", ["retention_read", "retention_archived", "retention_deleted"])
def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(
    store: Store, kept: Kept, old_segments: dict[str, bytes], failpoint: str, figure: Callable[[str], None]
) -> None:
    before = {table: len(rows) for table, rows in rows_of(store.connection, *DATA).items()}
    kills = run_through_kills(
        failpoint, "retention", "run", "--yes", "--json", folder=kept.folder.parent, imported=IMPORTED
    )
    assert kills >= 4
    assert_invariants(store.connection)
    left = {table: len(rows) for table, rows in rows_of(store.connection, *DATA).items()}
    gone: dict[str, int] = {}
    keys = set()
    for entry in kept.archives.listing(limit=500):
        assert entry.state == "complete"
        assert kept.archives.check(entry.id) == len(kept.archives.show(entry.id).files)
        for file in kept.archives.show(entry.id).files:
            keys.add(file.key)
            table = "crawl_log" if file.table_name.startswith("crawl_log") else file.table_name
            gone[table] = gone.get(table, 0) + file.rows
    assert {table: left[table] + gone.get(table, 0) for table in DATA} == before
    assert gone["segment"] == 4
    assert keys == {
        str(path.relative_to(kept.folder / "retention"))
        for path in (kept.folder / "retention").rglob("*")
        if path.is_file()
    }, "and no file is left of what was interrupted"
    faults = [
        step.finding
        for step in Verifier(kept.database, 3, ArchiveReader(kept.archive)).run()
        if step.finding and step.finding.faults
    ]
    assert faults == []
    figure(f"retention killed {kills} times at {failpoint}: {sum(before.values())} rows, none lost, none twice")


def test_a_restore_that_is_killed_again_and_again_brings_everything_back(
    store: Store, kept: Kept, old_segments: dict[str, bytes]
) -> None:
    before = rows_of(store.connection, *DATA)
    assert kept.service().run().problems == []
    kills = run_through_kills(
        *("retention_restored", "archive", "restore", "--job", "shop", "--json"),
        folder=kept.folder.parent,
        imported=IMPORTED,
    )
    assert kills >= 2
    for kind in ("pages", "frontier_completed", "frontier_failed", "content", "versions", "log", "segment"):
        for archive in kept.archives.matching(kind=kind, job=None):
            kept.archives.restore(archive)
    assert rows_of(store.connection, *DATA) == before
    assert {
        f"{path.parent.name}/{path.name}": path.read_bytes() for path in kept.archive.glob("*/*.warc.gz")
    } == old_segments
    assert_invariants(store.connection)


@pytest.fixture
def system_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the system, as programs find it; empty."""
    folder = tmp_path / "system temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left_behind(kept: Kept, system_temporary: Path) -> list[str]:
    unfinished = [*kept.archive.glob("*/.*"), *kept.scratch.glob("*"), *system_temporary.glob("*")]
    return [str(path) for path in unfinished]


def test_killed_runs_and_restores_leave_no_copies(
    store: Store, kept: Kept, old_segments: dict[str, bytes], system_temporary: Path
) -> None:
    """Each dies with a file in its scratch folder, or half of a segment in the archive; the next one deletes that."""
    kills = run_through_kills(
        *("retention_scratch", "retention", "run", "--yes", "--json"),
        folder=kept.folder.parent,
        imported=IMPORTED,
        nth=5,
    )
    assert kills >= 3
    assert left_behind(kept, system_temporary) == []
    for kind, expected, nth in (("pages", 1, 2), ("segment", 3, 4)):
        kills = run_through_kills(
            *("retention_scratch", "archive", "restore", "--kind", kind, "--json"),
            folder=kept.folder.parent,
            imported=IMPORTED,
            nth=nth,
        )
        assert kills == expected
        assert left_behind(kept, system_temporary) == []
    assert {
        f"{path.parent.name}/{path.name}": path.read_bytes() for path in kept.archive.glob("*/*.warc.gz")
    } == old_segments
    assert_invariants(store.connection)


def test_what_the_commands_say(cli: Cli, store: Store, kept: Kept, old_segments: dict[str, bytes]) -> None:
    told = cli("retention", "status")
    assert told.code == 0
    assert re.search(r"^pages of jobs that ended, .+ 90d +retention\.pages$", told.out, re.MULTILINE)
    assert "Retention runs only when `holdfast retention run` is called; retention.schedule changes that." in told.out

    dry = cli("retention", "run", "--dry-run")
    assert re.search(r"^pages +8 URLs +0 +0 B$", dry.out, re.MULTILINE)
    assert re.search(r"^segments +4 files +0 +", dry.out, re.MULTILINE)
    assert re.search(r"^\d+ URLs, \d+ rows and 4 files would be archived and deleted\.$", dry.out, re.MULTILINE)
    asked = cli("retention", "run", stdin="n\n")
    assert asked.code == 5
    assert "rows and 4 files would be archived and deleted" in asked.err
    assert (
        "rows and 4 files to the folder retention in the data folder, and delete them from the store?"
        in asked.out + asked.err
    )
    assert "There is no terminal to ask on; --yes confirms." in cli("retention", "run", stdin=b"").err
    assert store.value("SELECT count(*) FROM archives") == 0

    done = cli("retention", "run", "--yes", "--json").json
    steps = {step["step"]: step["rows"] for step in done["steps"]}
    assert (steps["pages"], steps["log"]) == (8, store.value("SELECT sum(requests) FROM crawl_log_rollups"))
    assert cli("retention", "run", "--yes").out == "Nothing is older than the settings of retention say.\n"
    assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'retention'") == 2
    status = cli("retention", "status", "--json").json
    assert {one["kind"] for one in status["archives"]} >= {"pages", "log", "content"}
    assert status["runs"][0]["ended_at"] is not None

    listed = cli("archive", "list", "--kind", "pages", "--job", "shop", "--json").json["archives"]
    assert [one["job"] for one in listed] == ["shop"]
    number = str(listed[0]["id"])
    assert "SHA-256" in cli("archive", "show", number).out
    assert "read, and as they were written." in cli("archive", "show", number, "--check").out
    assert "Say which archives" in cli("archive", "restore").refused(2)
    assert "There is no archive 999" in cli("archive", "restore", "999").refused(4)
    for command in ("list", "restore"):
        wrong = cli("archive", command, "--kind", "page").refused(2)
        assert "There are no archives of the kind 'page'; kinds: content, frontier_completed, " in wrong
    assert "In the folder retention in the data folder, complete." in cli("archive", "show", number).out
    assert "Archives go to the folder retention in the data folder." in cli("retention", "status").out
    assert cli("archive", "restore", "--job", "shop", "--schema", "old").code == 0
    restored = cli("archive", "restore", "--job", "shop")
    assert re.match(r"\d+ archives restored: \d+ rows written into their tables", restored.out), restored
    hint = re.search(
        r"in 2 archived files of the archive \(WARC\): `holdfast (archive restore .+)` restores", restored.err
    )
    assert hint, restored
    assert cli(*hint[1].split()).out == "2 archives restored: 2 rows written into their tables.\n"
    again = cli("archive", "restore", "--job", "shop")
    assert again.code == 0
    assert "There is nothing to restore: there are no such archives, or all were restored before" in again.err
    assert store.value("SELECT count(*) FROM crawled_pages") == 8
    assert_invariants(store.connection)


def test_the_background_runs_it_when_it_is_due(store: Store, kept: Kept) -> None:
    store.connection.execute(
        "INSERT INTO retention_runs (machine, due_from) VALUES (%s, now() - interval '2 days')", (machine(),)
    )
    environ = {**os.environ, "HOLDFAST_RETENTION_SCHEDULE": "1d"}
    with Program(["background"], environ, kept.folder.parent):
        wait_for(lambda: store.value("SELECT count(*) FROM retention_runs WHERE ended_at IS NOT NULL"), "retention")
        wait_for(lambda: store.value("SELECT count(*) FROM storage_days WHERE kind = 'database'"), "the sizes")
    assert store.value("SELECT count(*) FROM crawled_pages WHERE job_id <> %s", store.job) == 0
    assert store.value("SELECT actor FROM audit_log WHERE object_kind = 'retention'") == "schedule"
    assert_invariants(store.connection)


def test_a_store_of_archives_that_cannot_be_used_is_named_once(
    cli: Cli, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept.folder.parent / "file").touch()
    monkeypatch.setenv("HOLDFAST_RETENTION_STORE", str(kept.folder.parent / "file"))
    refused = cli("retention", "run", "--yes")
    assert refused.code == 1
    assert refused.out == ""
    where = f"The archives in {kept.folder.parent / 'file'} cannot be used"
    assert re.fullmatch(
        rf"Error: Not all was done; the next run goes on\. content, .*pages.*: {re.escape(where)}: [^:]+ \(retention\.store\)\. "
        rf"log: {re.escape(where)}: not a directory \(retention\.store\)\.\n",
        refused.err,
    ), refused.err


def test_a_dry_run_counts_urls_of_contents_as_a_run_does(cli: Cli, store: Store, kept: Kept) -> None:
    """Also of pages with a text and a document."""
    store.connection.execute(
        """INSERT INTO documents (domain_id, job_id, url_key, fetched_at, words, extractor, kind, block_hashes, block_words,
                                  heading_blocks, body)
           SELECT domain_id, job_id, url_key, crawled_at, 0, '1', 'article', '{}', '{}', '{}', '' FROM crawled_pages
           WHERE job_id <> %s""",
        (store.job,),
    )
    dry = {step["step"]: step["rows"] for step in cli("retention", "run", "--dry-run", "--json").json["steps"]}
    done = {step["step"]: step["rows"] for step in cli("retention", "run", "--yes", "--json").json["steps"]}
    assert dry["content"] == done["content"] > 0
