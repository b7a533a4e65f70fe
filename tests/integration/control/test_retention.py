"""Retention: what is old goes into archives, what lives stays, and all of it comes back."""

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import parquet

from holdfast.archive.reader import ArchiveReader
from holdfast.archive.segment_file import mark_path
from holdfast.control.verify import Verifier
from holdfast.db import sweeper
from holdfast.db.connection import Database
from holdfast.db.verify import Finding
from holdfast.errors import ArchiveDamaged, NotFound, Refused, UnderWay, UsageError
from holdfast.model.url import url_key
from holdfast.pages.service import PageService
from holdfast.pages.source import SourceReader
from holdfast.retention.queries import chunks, jobs, log, tables
from holdfast.retention.records import StepResult
from holdfast.retention.service import STEPS, Stopped
from holdfast.settings import Retention
from tests.integration.archive.exchanges import body_of, exchange, keep, writer
from tests.support.aged import DATA, JobStore, Kept, crawl_site, end_job, let_pass, rows_of
from tests.support.factories import Store
from tests.support.history import make_week
from tests.support.invariants import assert_invariants
from tests.support.tasks import Tasks

DAY = timedelta(days=1)


@pytest.fixture
def kept(database: Database, tmp_path: Path) -> Kept:
    return Kept(database, tmp_path)


@pytest.fixture
def shop(database: Database, store: Store, kept: Kept) -> JobStore:
    """A job that ended a hundred days ago, and the standing job, which lives: each crawled a site in two rounds."""
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, kept.archive, "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    crawl_site(database, store, kept.archive, "live.example", rounds=2)
    let_pass(store.connection, 100 * DAY)
    assert_invariants(store.connection)
    return shop


def counts(connection: psycopg.Connection, job_id: int, *tables: str) -> dict[str, int]:
    found = {}
    for table in tables:
        row = connection.execute(f"SELECT count(*) FROM {table} WHERE job_id = %s", (job_id,)).fetchone()
        assert row
        found[table] = row[0]
    return found


def stop_domain(connection: psycopg.Connection, pause: str) -> None:
    """Let shop.example be unreachable, with a cool-down that ends in `pause`."""
    connection.execute("ALTER TABLE domains DISABLE TRIGGER USER")
    connection.execute(
        """UPDATE domains SET status = 'unreachable', status_reason = 'test', block_reason_code = 'timeout',
           next_crawl_after = clock_timestamp() + %s::interval WHERE domain = 'shop.example'""",
        (pause,),
    )
    connection.execute("ALTER TABLE domains ENABLE TRIGGER USER")


def archived(kept: Kept) -> dict[str, int]:
    """Rows in complete archives by table; every file has the size and the hash that the manifest says."""
    found: dict[str, int] = {}
    for entry in kept.archives.listing(state="complete", limit=500):
        for file in kept.archives.show(entry.id).files:
            path = kept.folder / "retention" / file.key
            assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (file.bytes, file.sha256)
            table = "crawl_log" if file.table_name.startswith("crawl_log") else file.table_name
            found[table] = found.get(table, 0) + file.rows
    return found


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_what_is_old_is_archived_and_comes_back(
    database: Database, store: Store, shop: JobStore, kept: Kept, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whole chunks, and in chunks of two rows."""
    kept = Kept(database, kept.folder, format_)
    if format_ == "csv":
        monkeypatch.setattr(jobs, "CHUNK", 2)
        monkeypatch.setattr(tables, "CHUNK", 2)
        monkeypatch.setattr(log, "BLOCKS", 1)
    before, live = rows_of(store.connection, *DATA), counts(store.connection, store.job, *DATA[:4])
    sizes = {table: len(rows) for table, rows in before.items()}
    domains = rows_of(store.connection, "domains")

    result = kept.service().run()
    assert result.problems == []
    assert counts(store.connection, shop.job_id, *DATA) == dict.fromkeys(DATA, 0)
    versions = {"page_versions": live.pop("page_versions")}
    assert counts(store.connection, store.job, *live) == live, "the rows of a live job stay"
    assert versions["page_versions"] == 3
    left = {table: len(rows) for table, rows in rows_of(store.connection, *DATA).items()}
    gone = archived(kept)
    assert {table: left[table] + gone.get(table, 0) for table in DATA} == sizes
    assert_invariants(store.connection)
    discovered = store.value("SELECT pages_discovered FROM domains WHERE domain = 'shop.example'")
    assert discovered == 7
    assert kept.service().run().steps == [step for step in kept.service().run().steps if step.rows == 0], (
        "a second run finds nothing"
    )

    ids = [entry.id for entry in kept.archives.listing(limit=500)]
    pages_first = sorted(ids, key=lambda one: (kept.archives.show(one).archive.kind != "pages", one))
    for archive in pages_first:
        if kept.archives.show(archive).archive.kind not in {"claims", "transitions", "audit"}:
            kept.archives.restore(archive)
    assert rows_of(store.connection, *DATA) == before
    assert_invariants(store.connection)
    again = [kept.archives.restore(one).restored for one in ids if kept.archives.show(one).archive.kind == "pages"]
    assert again == [0] * len(again)
    assert rows_of(store.connection, *DATA) == before
    assert {step.step: step.rows for step in kept.service().run().steps if step.rows} == {}, "it is kept for a while"
    now = rows_of(store.connection, "domains")
    assert [strip(row) for row in now["domains"]] == [strip(row) for row in domains["domains"]]


def strip(row: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row)
    return {name: value for name, value in found.items() if name not in {"updated_at", "frontier_updated_at"}}


def old_files(kept: Kept, age: timedelta = 100 * DAY) -> dict[str, bytes]:
    """Let the files of the archive have been written so long ago; return them."""
    found = {}
    for path in sorted(kept.archive.glob("*/*.warc.gz")):
        then = time.time() - age.total_seconds()
        os.utime(path, (then, then))
        found[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    return found


def in_archive(kept: Kept) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in kept.archive.glob("*/*.warc.gz")}


def verified(database: Database, kept: Kept) -> list[Finding]:
    return [
        step.finding
        for step in Verifier(database, 3, ArchiveReader(kept.archive)).run()
        if step.finding is not None and (step.finding.faults or step.finding.skipped or step.finding.archived)
    ]


# Jobs -----------------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_a_run_does(shop: JobStore, kept: Kept) -> None:
    counted = {step.step: step.rows for step in kept.service().run(dry_run=True).steps}
    before = rows_of(shop.connection, *DATA, "archives")
    assert rows_of(shop.connection, *DATA, "archives") == before
    assert before["archives"] == []
    assert counted == {step.step: step.rows for step in kept.service().run().steps}
    assert (counted["pages"], counted["frontier_completed"], counted["frontier_failed"]) == (4, 2, 1)


@pytest.mark.parametrize(
    "live",
    [
        "UPDATE crawl_jobs SET state = 'paused' WHERE id = %s",
        "UPDATE crawl_jobs SET schedule = '1d', next_run_at = now() WHERE id = %s",
        "UPDATE crawl_jobs SET spec = '{\"refresh\": true}' WHERE id = %s",
        "UPDATE crawl_jobs SET kept_until = now() + interval '1 day' WHERE id = %s",
        "UPDATE crawl_jobs SET name = name WHERE id = %s",
    ],
    ids=["paused", "scheduled", "refreshed", "restored", "cooling down"],
)
def test_a_job_that_may_go_on_by_itself_keeps_its_rows(shop: JobStore, kept: Kept, live: str) -> None:
    shop.connection.execute(live, (shop.job_id,))
    if "name = name" in live:
        stop_domain(shop.connection, "1 day")
    tables = [table for table in DATA if table not in {"page_versions", "crawl_log"}]
    before = counts(shop.connection, shop.job_id, *tables)
    kept.service().run()
    assert counts(shop.connection, shop.job_id, *tables) == before
    assert before["crawled_pages"] == 4


def test_periods_count_from_the_end_of_the_job(shop: JobStore, kept: Kept) -> None:
    """All of it was fetched a hundred days ago; the job has ended just now."""
    shop.connection.execute("UPDATE crawl_jobs SET ended_at = now() - interval '8 days' WHERE id = %s", (shop.job_id,))
    kept.service(versions="0", crawl_log="0").run()
    assert counts(shop.connection, shop.job_id, "url_frontier", "crawled_pages", "page_texts") == {
        "url_frontier": 5,
        "crawled_pages": 4,
        "page_texts": 3,
    }
    assert_invariants(shop.connection)


def test_for_ever_is_for_ever(shop: JobStore, kept: Kept) -> None:
    before = rows_of(shop.connection, *DATA)
    periods = dict.fromkeys(Retention().periods(), "0")
    assert kept.service(**periods).run().steps == [StepResult(step, 0, 0, 0) for step in STEPS]
    assert rows_of(shop.connection, *DATA) == before


def test_time_does_not_reopen_a_job_that_has_forgotten_pages(shop: JobStore, kept: Kept) -> None:
    """Its failed URL would be fetched again, and every page that it links to."""
    connection = shop.connection
    connection.execute("UPDATE crawl_jobs SET ended_at = now() - interval '8 days' WHERE id = %s", (shop.job_id,))
    kept.service().run()
    stop_domain(connection, "-1 s")
    sweeper.sweep(connection, run_silence=timedelta(minutes=2))
    assert shop.value("SELECT state::text FROM crawl_jobs WHERE id = %s", shop.job_id) == "completed"
    connection.execute("UPDATE crawl_jobs SET aged_at = NULL WHERE id = %s", (shop.job_id,))
    stop_domain(connection, "-1 s")
    sweeper.sweep(connection, run_silence=timedelta(minutes=2))
    assert shop.value("SELECT state::text FROM crawl_jobs WHERE id = %s", shop.job_id) == "pending", (
        "else it would have"
    )


def test_a_chunk_that_changes_meanwhile_is_read_again(
    database: Database, shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the deletion of pages a title changes, once."""
    titles = iter(["Changed"])

    def change(name: str) -> None:
        if name == "retention_archived":
            for title in titles:
                shop.connection.execute(
                    "UPDATE page_texts SET body = %s WHERE job_id = %s", (title.encode(), shop.job_id)
                )

    monkeypatch.setattr("holdfast.failpoints.reach", change)
    assert kept.service().run().problems == []
    (entry,) = kept.archives.listing(kind="content")
    (file,) = kept.archives.show(entry.id).files
    assert parquet.read_table(kept.folder / "retention" / file.key)["body"].to_pylist() == [b"Changed"] * 3
    assert {path.stem.partition("-")[0] for path in (kept.folder / "retention" / "content").rglob("*.parquet")} == {
        f"{entry.id:09}"
    }, "the file of the first attempt is deleted"


def test_a_chunk_that_changes_all_the_time_is_left_to_the_next_run(
    shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(name: str) -> None:
        if name == "retention_archived":
            shop.connection.execute("UPDATE page_texts SET body = body WHERE job_id = %s", (shop.job_id,))

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.failpoints.reach", change)
        result = {step.step: step for step in kept.service(pages="0").run().steps}
    assert (result["content"].rows, result["log"].rows) == (0, 18), "the other steps go on"
    assert "changed each of 5 times" in str(result["content"].problem)
    assert counts(shop.connection, shop.job_id, "page_texts") == {"page_texts": 3}
    result = {step.step: step for step in kept.service(pages="0").run().steps}
    assert (result["content"].rows, result["content"].problem) == (3, None)


def test_a_job_that_is_begun_meanwhile_keeps_the_rest(
    shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(name: str) -> None:
        if name == "retention_archived":
            shop.connection.execute(
                "UPDATE crawl_jobs SET state = 'pending' WHERE id = %s AND state <> 'pending'", (shop.job_id,)
            )

    monkeypatch.setattr("holdfast.failpoints.reach", begin)
    before = counts(shop.connection, shop.job_id, "url_frontier", "crawled_pages", "page_texts")
    assert kept.service(crawl_log="0").run().problems == []
    assert counts(shop.connection, shop.job_id, "url_frontier", "crawled_pages", "page_texts") == before
    assert kept.archives.listing() == []


def test_restored_versions_are_left_alone(database: Database, store: Store, shop: JobStore, kept: Kept) -> None:
    """Also those of a live job, whose pages were never archived."""
    live = JobStore(store.connection, store.new_job("live"))
    crawl_site(database, live, kept.archive, "thrice.example", rounds=3)
    let_pass(store.connection, 100 * DAY)
    kept.service().run()
    (entry,) = kept.archives.listing(kind="versions")
    restored = kept.archives.restore(entry.id, keep=2 * DAY)
    assert restored.restored == restored.rows > 0
    versions = rows_of(shop.connection, "page_versions")
    assert {step.step: step.rows for step in kept.service().run().steps if step.rows} == {}
    assert rows_of(shop.connection, "page_versions") == versions
    let_pass(shop.connection, 3 * DAY)
    assert {step.step: step.rows for step in kept.service().run().steps if step.rows} == {"versions": restored.rows}


def test_a_week_that_someone_reads_stays_and_the_other_steps_go_on(
    database: Database, shop: JobStore, kept: Kept
) -> None:
    with database.connect() as reader, database.connect() as writer:
        with reader.transaction():
            reader.execute("SELECT 1 FROM crawl_log LIMIT 1")
            with ThreadPoolExecutor() as pool:
                run = pool.submit(kept.service().run)
                writer.execute("SET lock_timeout = '1s'")
                while not run.done():  # no worker waits for a second
                    with writer.transaction():
                        writer.execute("LOCK TABLE ONLY crawl_log IN ROW EXCLUSIVE MODE")
            result = {step.step: step for step in run.result().steps}
        assert (result["log"].rows, result["pages"].rows, result["audit"].problem) == (0, 4, None)
        assert "the log is being read for longer than a few seconds" in str(result["log"].problem)
        assert counts(shop.connection, shop.job_id, "crawl_log") == {"crawl_log": 9}
        assert_invariants(shop.connection)
    result = {step.step: step for step in kept.service().run().steps}
    assert (result["log"].rows, result["log"].problem) == (18, None)
    for entry in kept.archives.listing(kind="log"):
        assert kept.archives.restore(entry.id).restored == entry.rows
    assert counts(shop.connection, shop.job_id, "crawl_log") == {"crawl_log": 9}
    assert_invariants(shop.connection)


def test_what_a_killed_run_left_of_a_file_of_the_log_is_deleted(
    shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "retention_archived":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.failpoints.reach", die)
        with pytest.raises(Killed):
            kept.service(**dict.fromkeys(Retention().periods(), "0") | {"crawl_log": "90d"}).run()
    (file,) = kept.store_files("log")
    file.rename(file.with_name(f".{file.name}.0123456789abcdef.part"))
    assert kept.service().run().problems == []
    assert [path.name for path in kept.store_files("log")] == [file.name]
    assert archived(kept)["crawl_log"] == 18


def interrupted_week(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a run that has archived one file of a week of the log, and begun another one."""
    monkeypatch.setattr(log, "BLOCKS", 1)
    reached = []

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        reached.extend([name] if name == "retention_archived" else [])
        if len(reached) == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.failpoints.reach", die)
        with pytest.raises(Killed):
            kept.service(**dict.fromkeys(Retention().periods(), "0") | {"crawl_log": "90d"}).run()


def log_of_many_blocks(store: Store, job_id: int) -> dict[str, list[str]]:
    """Let the log of the job be long enough for several files; return its rows."""
    names = store.value(
        "SELECT string_agg(attname, ', ') FROM pg_attribute WHERE attrelid = 'crawl_log'::regclass AND attnum > 0"
        " AND attgenerated = '' AND attidentity = '' AND NOT attisdropped"
    )
    store.connection.execute(
        f"INSERT INTO crawl_log ({names}) SELECT {names} FROM crawl_log, generate_series(1, 40) WHERE job_id = {job_id}"
    )
    return rows_of(store.connection, "crawl_log")


@pytest.mark.parametrize("old", ["is there", "is away", "was of another machine"])
def test_a_week_is_archived_in_one_store_though_another_one_was_set_meanwhile(
    store: Store,
    shop: JobStore,
    kept: Kept,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    old: str,
) -> None:
    before = log_of_many_blocks(store, shop.job_id)
    interrupted_week(kept, monkeypatch)
    assert len(kept.store_files("log")) == 2
    new = (
        kept
        if old == "was of another machine"
        else kept.with_store("new", away="retention" if old == "is away" else "")
    )
    if old == "was of another machine":  # which has a folder of the same name
        (kept.folder / "retention").rename(kept.folder / "elsewhere")

    assert new.service().run().problems == []
    (entry,) = new.archives.listing(kind="log", state="complete")
    assert new.archives.check(entry.id) == len(new.archives.show(entry.id).files) > 2
    assert store.value("SELECT count(*) FROM crawl_log") == 0
    if old == "is there":
        assert kept.store_files("log") == [], "what was begun there is deleted"
    if old == "is away":
        assert "archive 1, which was not completed, may be left in data/retention" in caplog.text
    assert store.value("SELECT count(*) FROM archives WHERE state = 'writing'") == 0
    assert new.archives.restore(entry.id).restored == len(before["crawl_log"])
    assert rows_of(store.connection, "crawl_log") == before


def test_a_week_that_was_written_to_meanwhile_is_archived_anew(
    store: Store, shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of_many_blocks(store, shop.job_id)
    interrupted_week(kept, monkeypatch)
    first = store.value("SELECT min(ctid::text) FROM crawl_log WHERE ctid < '(1,0)'::tid")
    store.connection.execute("DELETE FROM crawl_log WHERE ctid = %s::tid", (first,))  # in the part that is archived
    before = rows_of(store.connection, "crawl_log")
    (problem,) = kept.service().run().problems
    assert problem.endswith("It was written to meanwhile, and stays; the next run archives it anew.")
    assert rows_of(store.connection, "crawl_log") == before
    assert kept.store_files("log") == []
    assert kept.service().run().problems == []
    (entry,) = kept.archives.listing(kind="log")
    assert kept.archives.restore(entry.id).restored == len(before["crawl_log"])
    assert rows_of(store.connection, "crawl_log") == before


@pytest.mark.parametrize("turn", [1, -1])
def test_a_week_that_gets_rows_again_is_archived_again_and_all_come_back(
    store: Store, shop: JobStore, kept: Kept, turn: int
) -> None:
    """As by a backfill of a log of that time; restored in either order."""
    before = rows_of(store.connection, "crawl_log")
    store.connection.execute("CREATE TABLE later AS SELECT * FROM crawl_log ORDER BY ctid LIMIT 5")
    store.connection.execute("DELETE FROM crawl_log WHERE to_jsonb(crawl_log) IN (SELECT to_jsonb(l) FROM later l)")
    weeks = rows_of(
        store.connection, "(SELECT date_trunc('week', crawled_at AT TIME ZONE 'UTC')::date AS day FROM later)"
    )
    service = kept.service(**dict.fromkeys(Retention().periods(), "0") | {"crawl_log": "90d"})
    assert service.run().problems == []
    for row in weeks[next(iter(weeks))]:
        make_week(store.connection, date.fromisoformat(json.loads(row)["day"]))
    store.connection.execute("INSERT INTO crawl_log OVERRIDING SYSTEM VALUE SELECT * FROM later")
    store.connection.execute("DROP TABLE later")
    assert_invariants(store.connection)

    assert service.run().problems == []
    assert store.value("SELECT count(*) FROM crawl_log") == 0
    entries = kept.archives.listing(kind="log", state="complete")
    assert sum(entry.rows for entry in entries) == len(before["crawl_log"])
    assert len(entries) == 2
    assert entries[0].source == f"{entries[1].source}-2"
    assert_invariants(store.connection)
    for entry in entries[::turn]:
        assert kept.archives.restore(entry.id).restored == entry.rows
        assert kept.archives.restore(entry.id).restored == 0
    assert rows_of(store.connection, "crawl_log") == before
    assert_invariants(store.connection)
    assert service.run().steps == [StepResult(step, 0, 0, 0) for step in STEPS], "it is kept for a while"


def test_two_runs_do_not_meet(database: Database, shop: JobStore, kept: Kept) -> None:
    shop.connection.execute("SELECT pg_advisory_lock(hashtextextended('holdfast retention', 0))")
    with pytest.raises(UnderWay, match="runs already"):
        kept.service().run()


def test_long_texts_make_small_chunks(
    database: Database, shop: JobStore, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a chunk takes in the memory does not grow with its pages' texts; one page is a chunk at least."""
    monkeypatch.setattr(chunks, "BYTES", 30_000)
    texts = "UPDATE page_texts SET body = (SELECT string_agg(sha256(%s || n::text::bytea), '') FROM generate_series(1, %s) n) "
    where = "WHERE url_key = %s"
    keys = sorted(url_key(f"https://shop.example/{path}") for path in ("", "0", "1"))
    for number, (key, size) in enumerate(zip(keys, (400, 400, 2_000), strict=True)):
        shop.connection.execute((texts + where).encode(), (str(number), size, key))
    before = rows_of(shop.connection, *DATA)
    assert kept.service().run().problems == []
    sizes = [entry.rows for entry in kept.archives.listing(kind="content")]
    assert sizes == [1, 2], "the newest first"
    assert counts(shop.connection, shop.job_id, *DATA) == dict.fromkeys(DATA, 0)
    for kind in ("pages", "frontier_completed", "frontier_failed", "content", "versions", "log"):
        for archive in kept.archives.matching(kind=kind, job=None):
            kept.archives.restore(archive)
    assert rows_of(shop.connection, *DATA) == before
    assert_invariants(shop.connection)


# Files of the WARC archive ----------------------------------------------------------------------------------------------


def test_segments_that_nothing_needs_go_and_come_back(database: Database, shop: JobStore, kept: Kept) -> None:
    before = old_files(kept)
    assert kept.service(pages="0").run().problems == []
    gone = {name for name in before if name.startswith("w-shop/")}
    assert in_archive(kept) == before.keys() - gone, "those of a live job stay"
    assert len(gone) == 2
    (bytes_,) = verified(database, kept)
    assert (bytes_.check, bytes_.faults, bytes_.archived) == ("I11 every reference leads to bytes with its hash", 0, 6)
    pages = PageService(database, sources=SourceReader(ArchiveReader(kept.archive)))
    missing = pages.source("https://shop.example/").missing
    assert missing is not None
    number = missing.partition("holdfast archive restore ")[2].partition("`")[0]
    assert kept.archives.show(int(number)).archive.source in gone

    for entry in kept.archives.listing(kind="segment"):
        assert kept.archives.restore(entry.id).restored == 1
        assert kept.archives.restore(entry.id).restored == 0
    assert {name: (kept.archive / name).read_bytes() for name in in_archive(kept)} == before
    assert verified(database, kept) == []
    assert pages.source("https://shop.example/").missing is None
    old_files(kept)
    kept.service(pages="0").run()
    assert in_archive(kept) == before.keys(), "what was restored is kept for a while"


def test_a_segment_that_a_backup_may_name_stays_until_the_backup_goes(shop: JobStore, kept: Kept) -> None:
    before = old_files(kept)
    shop.connection.execute(
        "INSERT INTO backups (generation, kind, state, place, ended_at) VALUES (1, 'full', 'complete', '/b', now())"
    )
    kept.service().run()
    assert in_archive(kept) == before.keys()
    assert len(kept.archives.listing(kind="segment")) == 2
    shop.connection.execute("UPDATE backups SET state = 'deleted'")
    kept.service().run()
    assert in_archive(kept) == {name for name in before if name.startswith("w-live/")}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "left open"])
def test_the_body_that_a_record_in_a_kept_segment_refers_to_stays(
    database: Database, store: Store, shop: JobStore, kept: Kept, closed: bool
) -> None:
    """A worker stores a body once; the page of a live job has it from a segment that no row names. A killed worker leaves its last segment
    open, and if no worker of its name starts, nothing closes it."""
    segments = writer(kept.archive, "w-twice", segment_bytes=10_000)
    body = body_of(1, 9_000)
    keep(segments, [exchange("https://shop.example/first", body)])
    keep(segments, [exchange("https://other.example/x", body_of(2, 40_000))])
    (ref,) = keep(segments, [exchange("https://live.example/second", body)])
    if closed:
        segments.close()
    assert mark_path(kept.archive / ref.segment).exists() is not closed
    old_files(kept)
    names = sorted(name for name in in_archive(kept) if name.startswith("w-twice/"))
    assert ref.segment != names[0]
    store.connection.execute(
        "UPDATE crawled_pages SET archive_segment = %s, archive_offset = %s, archive_length = %s, payload_digest = %s "
        "WHERE url_key = %s",
        (ref.segment, ref.offset, ref.length, ref.payload_digest, url_key("https://live.example/")),
    )
    kept.service().run()
    left = sorted(name for name in in_archive(kept) if name.startswith("w-twice/"))
    assert ref.segment in left
    assert ArchiveReader(kept.archive).read(ref).body == body


def test_segments_can_be_deleted_for_good_if_that_is_said(shop: JobStore, kept: Kept) -> None:
    old_files(kept)
    kept.service(archive_segments=False).run()
    assert not any(name.startswith("w-shop/") for name in in_archive(kept))
    entry = kept.archives.listing(kind="segment")[0]
    with pytest.raises(Refused, match=r"deleted without an archive \(retention.archive_segments"):
        kept.archives.restore(entry.id)


# Restore --------------------------------------------------------------------------------------------------------------


def test_a_damaged_file_restores_nothing(shop: JobStore, kept: Kept) -> None:
    kept.service().run()
    (entry,) = kept.archives.listing(kind="pages")
    file = kept.archives.show(entry.id).files[1]
    path = kept.folder / "retention" / file.key
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    left = rows_of(shop.connection, *DATA)
    with pytest.raises(
        ArchiveDamaged, match=f"The file {file.key} of archive {entry.id} .* Nothing of it was restored"
    ):
        kept.archives.restore(entry.id)
    with pytest.raises(ArchiveDamaged):
        kept.archives.check(entry.id)
    assert rows_of(shop.connection, *DATA) == left


def test_an_archive_on_another_machine_is_restored_there(shop: JobStore, kept: Kept) -> None:
    kept.service().run()
    (entry,) = kept.archives.listing(kind="pages")
    (kept.folder / "retention").rename(kept.folder / "on another machine")
    for call in (kept.archives.restore, kept.archives.check):
        with pytest.raises(NotFound, match=f"There is no file .* restore archive {entry.id} there"):
            call(entry.id)


def test_rows_for_analysis_leave_the_store_as_it_is(shop: JobStore, kept: Kept) -> None:
    pages = shop.connection.execute(
        "SELECT url_key, title FROM crawled_pages WHERE job_id = %s ORDER BY 1", (shop.job_id,)
    ).fetchall()
    kept.service().run()
    left = rows_of(shop.connection, *DATA)
    for entry in kept.archives.listing():
        for _ in range(2):
            found = kept.archives.restore(entry.id, into="old_days")
            assert found.restored == found.rows
    assert rows_of(shop.connection, *DATA) == left
    assert shop.connection.execute("SELECT url_key, title FROM old_days.crawled_pages ORDER BY 1").fetchall() == pages
    assert shop.value("SELECT count(*) FROM old_days.crawl_log") == 18
    with pytest.raises(UsageError):
        kept.archives.restore(1, into="public")


def test_a_newer_row_stays(shop: JobStore, kept: Kept) -> None:
    """The job was begun again after its rows had gone, and met one of its URLs."""
    kept.service().run()
    (entry,) = kept.archives.listing(kind="pages")
    shop.seed("https://shop.example/", job=shop.job_id)
    found = kept.archives.restore(entry.id)
    assert found.restored < found.rows
    state = "SELECT state::text FROM url_frontier WHERE job_id = %s AND url = 'https://shop.example/'"
    assert shop.value(state, shop.job_id) == "waiting"
    assert_invariants(shop.connection)


# Tables that go by age ---------------------------------------------------------------------------------------------------


def test_history_goes_but_what_the_present_is_read_from_stays(
    database: Database, store: Store, shop: JobStore, kept: Kept
) -> None:
    tasks = Tasks(store.connection)
    old, new = tasks.one("https://shop.example/p"), None
    store.connection.execute("UPDATE crawl_tasks SET status = 'cancelled', status_reason = 'x' WHERE id = %s", (old,))
    new = tasks.one("https://shop.example/p")
    store.connection.execute("UPDATE crawl_tasks SET status = 'cancelled', status_reason = 'y' WHERE id = %s", (new,))
    let_pass(store.connection, 400 * DAY)
    before = rows_of(store.connection, "claim_log", "domain_transitions", "audit_log", "crawl_tasks", "task_events")
    result = {step.step: step.rows for step in kept.service().run().steps}
    assert (result["tasks"], result["claims"]) == (1, len(before["claim_log"]))
    left = rows_of(store.connection, *before)
    assert len(left["crawl_tasks"]) == 1
    assert len(left["domain_transitions"]) == store.value("SELECT count(DISTINCT domain_id) FROM domain_transitions")
    gone = archived(kept)
    assert {table: len(left[table]) + gone.get(table, 0) for table in before} == {
        table: len(rows) for table, rows in before.items()
    } | {"audit_log": len(before["audit_log"]) + 1}, "the audit log says that retention ran"
    assert_invariants(store.connection)


def test_images_go_with_the_pages_of_domains_without_a_live_job(
    database: Database, store: Store, shop: JobStore, kept: Kept
) -> None:
    connection = store.connection
    for host, job in (("shop.example", shop.job_id), ("live.example", store.job)):
        connection.execute(
            """WITH i AS (INSERT INTO images (sha256, file) VALUES (sha256(convert_to(%(host)s, 'UTF8')), '') RETURNING id),
               p AS (INSERT INTO provenance (domain_id, image_id, source_page_url, job_id, page_key, first_seen_at, last_seen_at)
                     SELECT d.id, i.id, 'https://x/', %(job)s, substr(sha256('x'), 1, 16),
                            now() - interval '100 days', now() - interval '100 days' FROM i, domains d WHERE d.domain = %(host)s::text),
               l AS (INSERT INTO domain_images SELECT d.id, i.id FROM i, domains d WHERE d.domain = %(host)s::text)
               UPDATE domains SET images_stored = 1 WHERE domain = %(host)s::text""",
            {"host": host, "job": job},
        )
    connection.execute(
        """UPDATE images SET file = substr(name, 1, 2) || '/' || substr(name, 3, 2) || '/' || name || '.png'
           FROM (SELECT id AS of, encode(sha256, 'hex') AS name FROM images) n WHERE n.of = id"""
    )
    assert_invariants(connection)
    kept.service().run()
    assert [row[0] for row in connection.execute("SELECT job_id FROM provenance")] == [store.job]
    assert_invariants(connection)
    assert archived(kept)["provenance"] == 1


# The schedule -----------------------------------------------------------------------------------------------------------


def test_it_is_due_at_the_times_of_its_schedule(shop: JobStore, kept: Kept) -> None:
    assert not kept.service().is_due(), "it has no schedule"
    daily = kept.service(schedule="0 3 * * *")
    assert not daily.is_due(), "the first time is the next one, not one that has passed"
    due = daily.status().next_run_at
    assert due is not None
    assert (due.hour, due.minute) == (3, 0)
    shop.connection.execute("UPDATE retention_runs SET due_from = due_from - interval '1 day'")
    assert daily.is_due()
    with pytest.raises(Stopped):
        daily.run(stopped=lambda: True)
    assert daily.is_due(), "a run that was stopped, or killed, is due as before"
    assert daily.run().problems == []
    assert not daily.is_due()


def test_tables_are_vacuumed_when_that_is_due(shop: JobStore, kept: Kept) -> None:
    vacuumed = "SELECT count(*) FROM pg_stat_user_tables WHERE schemaname = 'public' AND last_vacuum IS NOT NULL"
    assert not kept.service(vacuum=None).vacuum_if_due()
    assert not kept.service().vacuum_if_due(), "the first time is the next one"
    shop.connection.execute("UPDATE retention_state SET vacuumed_at = vacuumed_at - interval '7 days'")
    assert kept.service().vacuum_if_due()
    shop.connection.execute("SELECT pg_stat_clear_snapshot()")
    assert int(str(shop.value(vacuumed))) > 50
    assert not kept.service().vacuum_if_due()


# Garbage and backups ------------------------------------------------------------------------------------------------------


def test_gc_deletes_segments_that_nothing_names_but_not_those_of_a_backup(shop: JobStore, kept: Kept) -> None:
    before = old_files(kept)
    assert kept.service().collect_segments(DAY).files == 0, "a page names each"
    shop.connection.execute("DELETE FROM page_versions WHERE job_id = %s", (shop.job_id,))
    shop.connection.execute("DELETE FROM crawled_pages WHERE job_id = %s", (shop.job_id,))
    gone = {name for name in before if name.startswith("w-shop/")}
    shop.connection.execute(
        "INSERT INTO backups (generation, kind, state, place, ended_at) VALUES (1, 'full', 'complete', '/b', now())"
    )
    found = kept.service().collect_segments(DAY)
    assert (found.files, found.for_backups) == (0, 2)
    assert in_archive(kept) == before.keys()
    shop.connection.execute("UPDATE backups SET started_at = clock_timestamp()")
    assert kept.service().collect_segments(DAY, dry_run=True).files == 2
    assert in_archive(kept) == before.keys()
    assert kept.service().collect_segments(DAY).bytes == sum(len(before[name]) for name in gone)
    assert in_archive(kept) == before.keys() - gone
    assert shop.value("SELECT count(*) FROM unnamed_files") == 0


def test_segments_to_which_new_records_may_refer_stay(shop: JobStore, kept: Kept) -> None:
    """A worker may still refer to a body that it has stored within archive.dedup_age, however short the periods of retention are."""
    before = old_files(kept)
    replace(kept.service(), dedup_age=101 * DAY).run()
    assert in_archive(kept) == before.keys()
    replace(kept.service(), dedup_age=99 * DAY).run()
    assert in_archive(kept) == {name for name in before if name.startswith("w-live/")}


def test_a_store_of_archives_that_is_away_stops_the_steps_and_nothing_else(shop: JobStore, kept: Kept) -> None:
    """Also when a run before it left an archive there that is deleted first."""
    old_files(kept)
    away = kept.with_store("retention", away="retention")
    for _ in range(2):
        result = away.service().run()
        assert {step.step for step in result.steps if step.problem} >= {"content", "pages", "log", "segments"}
        assert all("cannot be used: not a directory (retention.store)." in problem for problem in result.problems)
        assert away.service().status().runs[0].ended_at is not None
    assert kept.service().run().problems == []
    assert all(entry.state == "complete" for entry in kept.archives.listing(limit=500))
    assert_invariants(shop.connection)
