"""The judge of `make prove COLUMN=retention` finds nothing after a run, and every fault that a run could make."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast.db.connection import Database
from tests.prove import row_hashes
from tests.support import history
from tests.support.aged import JobStore, Kept, crawl_site, end_job, let_pass
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

DAY = timedelta(days=1)


@pytest.fixture
def kept(database: Database, store: Store, tmp_path: Path) -> Kept:
    """After a run over two jobs that ended a hundred days ago, one by crawls and one by SQL, and one that lives."""
    kept = Kept(database, tmp_path)
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, kept.archive, "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    crawl_site(database, store, kept.archive, "live.example")
    let_pass(store.connection, 100 * DAY)
    filled = history.fill(store.connection, "filled", 60, 100 * DAY, lasted=20 * DAY, without_page=0.1)
    assert_invariants(store.connection)
    tasks = store.value("SELECT id FROM crawl_jobs WHERE name = 'tasks'")
    row_hashes.prepare(store.connection, {shop.job_id: 100, filled: 100, store.job: None, int(str(tasks)): None})
    assert kept.service().run().problems == []
    assert_invariants(store.connection)
    return kept


@pytest.fixture
def since() -> datetime:
    return datetime.now(UTC) - timedelta(minutes=5)


def judged(connection: psycopg.Connection, kept: Kept, since: datetime) -> list[str]:
    archives = row_hashes.load_archives(connection, kept.folder / "retention")
    return [
        *archives.violations,
        *row_hashes.judge_left(connection, since),
        *row_hashes.judge_archived(connection),
    ]


def test_a_run_is_right_and_so_is_its_restore(kept: Kept, store: Store, since: datetime) -> None:
    connection = store.connection
    assert judged(connection, kept, since) == []
    summary = row_hashes.summary(connection)
    assert summary["crawled_pages"][:2] == (60 + 4 + 4, 60 + 4)
    assert summary["url_frontier"][1] == 66 + 7
    for kind in row_hashes.BACK:
        for archive in kept.archives.matching(kind=kind, job=None):
            kept.archives.restore(archive)
    assert row_hashes.judge_restored(connection, since) == []
    connection.execute("UPDATE domains SET pages_discovered = pages_discovered + 1 WHERE domain = 'shop.example'")
    connection.execute("DELETE FROM page_texts WHERE ctid = (SELECT min(ctid) FROM page_texts WHERE job_id <> 1)")
    found = row_hashes.judge_restored(connection, since)
    assert found[0] == "1 rows of page_texts were there before, and are not there after the restore"
    assert "domains counted" in found[1]


FAULTS = {
    "DELETE FROM archives WHERE kind = 'content'": "page_texts went, and are in no archive",
    "UPDATE archives SET rows = rows + 1 WHERE kind = 'content'": "rows, and its files have",
    "UPDATE crawled_pages SET title = 'another' WHERE ctid = (SELECT min(ctid) FROM crawled_pages)": (
        "1 rows of crawled_pages must have stayed, and are gone or changed"
    ),
    "DELETE FROM claim_log WHERE ctid = (SELECT min(ctid) FROM claim_log)": "1 rows of claim_log must have stayed",
    """INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
       SELECT id, (SELECT id FROM crawl_jobs WHERE name = 'shop'), substr(sha256('x'), 1, 16), 'https://shop.example/x', 'done'
       FROM domains WHERE domain = 'shop.example'""": (
        "1 rows of url_frontier are there that were not there before, and belong to no live job"
    ),
    """WITH made AS (INSERT INTO archives (kind, state, completed_at, rows, revision, place)
                     SELECT kind, 'complete', completed_at, rows, revision, place FROM archives WHERE kind = 'content' RETURNING id)
       INSERT INTO archive_files (archive_id, number, table_name, key, rows, bytes, sha256)
       SELECT made.id, f.number, f.table_name, f.key, f.rows, f.bytes, f.sha256 FROM archive_files f JOIN archives a
       ON a.id = f.archive_id AND a.kind = 'content', made LIMIT 1""": (
        "rows of page_texts are in an archive twice, or must have stayed"
    ),
}


def test_it_finds_what_is_wrong(kept: Kept, store: Store, since: datetime) -> None:
    for fault, said in FAULTS.items():
        with store.connection.transaction(force_rollback=True):
            store.connection.execute(fault.encode())
            assert said in " ".join(judged(store.connection, kept, since)), fault
    (pages,) = (entry for entry in kept.archives.listing(kind="pages") if entry.job == "shop")
    kept.archives.restore(pages.id)
    path = kept.store_files("content")[0]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    (path.parent / "left.parquet").write_bytes(b"")
    found = judged(store.connection, kept, since)
    assert "4 rows of crawled_pages are old, and are still there" in found
    assert "another SHA-256 than its row says" in found[0]
    assert "1 files of no archive are left" in " ".join(found)
