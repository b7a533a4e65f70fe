"""What retention costs: the time of a flush that says when its URLs were settled, and a run over many pages with its restore.

    .venv/bin/python -m benchmarks.retention --pages 200000

Batches with and without the column take turns. CPU is that of the server's processes, so that other work on the machine counts little.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import psycopg

from holdfast.archive.file_store import FolderFileStore
from holdfast.db import embedded, migrate, url_results
from holdfast.db.connection import Database
from holdfast.db.verify import verify
from holdfast.model.commit_batch import PageRow
from holdfast.model.outcome import Outcome
from holdfast.retention.restore import ArchiveService
from holdfast.retention.service import RetentionService
from holdfast.settings import Retention
from tests.support import history
from tests.support.crawled import Crawl
from tests.support.factories import Store

BATCH = 100
_COLUMN = ",\n        settled_at = CASE WHEN o.state <> 'waiting' THEN clock_timestamp() ELSE f.settled_at END"


@contextmanager
def store(data: Path) -> Iterator[tuple[Database, Store]]:
    server = embedded.ensure_running(data)
    try:
        with psycopg.connect(server.admin_url(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE retention OWNER holdfast")
        database = Database(server.url("retention"), statement_timeout=600)
        migrate.upgrade(database)
        with database.connect() as connection:
            yield database, Store(connection)
    finally:
        embedded.stop(data)


def cpu(*pids: int) -> float:
    """Seconds that processes have run."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def flushes(database: Database, made: Store, batches: int) -> None:
    """Time batches with the column and without it, one after the other."""
    crawl = Crawl(database, made)
    made.seed("https://flush.example/")
    claim = made.claim_one(crawl.worker)
    home = "https://flush.example/"
    urls = [f"{home}{number}" for number in range(2 * batches * BATCH)]
    found = [crawl.found(home, url) for url in urls]
    crawl.commit(claim, [crawl.outcome(home, Outcome.OK)], found)
    made.connection.execute("VACUUM ANALYZE url_frontier")
    took: dict[bool, list[float]] = {True: [], False: []}
    pid = made.connection.info.backend_pid
    without = url_results._SETTLE.replace(_COLUMN, "")
    assert without != url_results._SETTLE
    for number in range(2 * batches):
        outcomes = [
            crawl.outcome(url, Outcome.OK, page=PageRow(200, title="t", content_length=100), bytes=100)
            for url in urls[number * BATCH : (number + 1) * BATCH]
        ]
        with_column = number % 2 == 0
        started = cpu(pid)
        with mock.patch.object(url_results, "_SETTLE", url_results._SETTLE if with_column else without):
            crawl.commit(claim, outcomes)
        took[with_column].append(cpu(pid) - started)
    for with_column, times in took.items():
        name = "with" if with_column else "without"
        print(
            f"flush of {BATCH} pages {name} settled_at: median {1000 * statistics.median(times):.2f} ms, {len(times)} batches"
        )
    made.release(claim, crawl.worker)


def run(database: Database, made: Store, pages: int, folder: Path) -> None:
    """Archive a job of so many pages, verify, and restore it."""
    connection = made.connection
    job = history.fill(connection, "old", pages, timedelta(days=100))
    connection.execute("VACUUM ANALYZE")
    archives = FolderFileStore(folder / "retention", "data/retention")
    service = RetentionService(
        database, Retention(), archives, lambda _place: archives, folder / "archive", folder / "scratch"
    )
    faults("before", connection)
    started, ours = time.perf_counter(), time.process_time()
    with closed_cpu(made) as server:
        result = service.run()
    seconds, ours = time.perf_counter() - started, time.process_time() - ours
    print(f"CPU of the run: {ours:.1f} s of this process, {server[0]:.1f} s of the database")
    rows = sum(step.rows for step in result.steps)
    size = sum(step.bytes for step in result.steps)
    print(
        f"{pages:,} pages archived and deleted: {seconds:.1f} s, {pages / seconds:,.0f} pages/s, {rows:,} rows, {size / 1e6:.0f} MB"
    )
    for step in result.steps:
        if step.rows:
            print(
                f"  {step.step}: {step.rows:,} rows in {step.archives} archives, {step.bytes / 1e6:.1f} MB {step.problem or ''}"
            )
    faults("after", connection)
    started = time.perf_counter()
    back = ArchiveService(database, lambda _place: archives, folder / "archive", folder / "scratch")
    for kind in ("pages", "content", "log"):
        for archive in back.matching(kind=kind, job=None):
            back.restore(archive)
    seconds = time.perf_counter() - started
    found = made.value("SELECT count(*) FROM crawled_pages WHERE job_id = %s", job)
    print(f"{found:,} pages restored with texts and log: {seconds:.1f} s, {pages / seconds:,.0f} pages/s")
    faults("after the restore", connection)


@contextmanager
def closed_cpu(made: Store) -> Iterator[list[float]]:
    """The CPU of sessions that run meanwhile, looked at while they live; the last look before their end counts."""
    used: dict[int, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for (pid,) in made.connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall():
                with suppress(OSError):
                    used[pid] = cpu(pid)

    thread = threading.Thread(target=look)
    thread.start()
    total = [0.0]
    try:
        yield total
    finally:
        over.set()
        thread.join()
        total[0] = sum(used.values())


def faults(when: str, connection: psycopg.Connection) -> None:
    started = time.perf_counter()
    bad = [finding for finding in verify(connection, retries=3) if finding.faults]
    print(
        f"verify {when}: {len(bad)} checks failed, {time.perf_counter() - started:.1f} s {[one.check for one in bad] or ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-retention-") as folder,
        store(Path(folder) / "data") as (database, made),
    ):
        flushes(database, made, given.batches)
        run(database, made, given.pages, Path(folder))


if __name__ == "__main__":
    main()
