"""A store with history: jobs that ended long ago, a job that lives, and everything that hangs on them."""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import zstandard

from holdfast.archive.file_store import FolderFileStore
from holdfast.archive.segment_store import SegmentStore
from holdfast.db.connection import Database
from holdfast.model.commit_batch import PageRow
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome
from holdfast.retention.restore import ArchiveService
from holdfast.retention.service import RetentionService
from holdfast.settings import Retention
from tests.integration.archive.exchanges import exchange, keep, writer
from tests.support.crawled import Crawl
from tests.support.factories import Store
from tests.support.history import make_week

DATA: Final = (
    *(
        "url_frontier",
        "crawled_pages",
        "page_versions",
        "page_texts",
        "page_links",
        "sitemaps",
        "link_answers",
        "page_parses",
    ),
    *("items", "documents", "crawl_log"),
)
"""Tables whose rows a job leaves behind."""


@dataclass(frozen=True)
class JobStore(Store):
    """A test's database, seen from one job."""

    job_id: int = 0

    @property
    def job(self) -> int:
        return self.job_id


def crawl_site(database: Database, store: Store, archive: Path, host: str, pages: int = 3, *, rounds: int = 1) -> None:
    """A site of some pages, a missing one, a refused one and a timeout, in the archive; each round changes every page."""
    home = f"https://{host}/"
    worker = f"w-{host.partition('.')[0]}"
    crawl = Crawl(database, store, worker)
    store.seed(home)
    urls = [home, *(f"{home}{number}" for number in range(pages - 1))]
    for turn in range(rounds):
        if turn:
            _want_again(store, host)
        claim = store.claim(worker, 1, job=store.job)[0]
        segments = writer(archive, worker)
        refs = keep(segments, [exchange(url, f"<p>{url} {turn} {'x' * 300}</p>".encode()) for url in urls])
        segments.close()
        found = [crawl.found(home, url) for url in urls[1:]] if not turn else []
        if not turn:
            found += [crawl.found(home, home + path) for path in ("gone", "private", "slow", "moved")]
        crawl.commit(claim, [_page(crawl, home, refs[0], turn)], found)
        crawl.commit(claim, [_page(crawl, url, ref, turn) for url, ref in zip(urls[1:], refs[1:], strict=True)])
        if not turn:
            crawl.commit(
                claim,
                [
                    crawl.outcome(f"{home}gone", Outcome.NOT_FOUND, status=404, page=PageRow(404)),
                    crawl.outcome(f"{home}private", Outcome.ROBOTS_DENIED, reason="robots_denied: Disallow: /private"),
                    crawl.outcome(f"{home}slow", Outcome.TIMEOUT, status=None, reason="timeout: no answer"),
                    crawl.outcome(f"{home}moved", Outcome.REDIRECT, status=301),
                ],
            )
        store.release(claim, worker)
    store.connection.execute(
        "UPDATE crawl_runs SET status = 'completed', completed_at = clock_timestamp() WHERE worker = %s", (worker,)
    )


def _page(crawl: Crawl, url: str, ref: ArchiveRef, turn: int) -> Any:
    page = PageRow(
        200,
        content_type="text/html",
        content_length=400,
        content_hash=bytes([turn]) * 32,
        title=f"Page {turn}",
        archive=ref,
        text=zstandard.compress(f"Text of {url}".encode()),
    )
    return crawl.outcome(url, Outcome.OK, page=page, bytes=400, duration_ms=12)


def _want_again(store: Store, host: str) -> None:
    store.connection.execute(
        """WITH again AS (
            UPDATE url_frontier f SET state = 'waiting' FROM domains d, crawled_pages p
            WHERE d.domain = %(host)s AND f.domain_id = d.id AND f.job_id = %(job)s AND f.state = 'done' AND p.domain_id = f.domain_id
            AND p.job_id = f.job_id AND p.url_key = f.url_key AND p.status = 200 RETURNING f.domain_id, f.job_id
        ) SELECT add_counts(domain_id, job_id, 1, -1) FROM again""",
        {"host": host, "job": store.job},
    )
    store.connection.execute(
        """UPDATE domains SET status = 'pending', status_reason = 'refresh_due: test ' || random()
        WHERE domain = %s AND status = 'exhausted'""",
        (host,),
    )
    store.connection.execute("UPDATE domains SET next_crawl_after = NULL WHERE domain = %s", (host,))
    store.connection.execute(
        "UPDATE job_domains SET state = 'open', ready = true, not_before = NULL WHERE job_id = %s AND waiting > 0",
        (store.job,),
    )


def end_job(connection: psycopg.Connection, job_id: int) -> None:
    connection.execute(
        "UPDATE crawls SET state = 'finished', ended_at = clock_timestamp() WHERE job_id = %s", (job_id,)
    )
    connection.execute(
        "UPDATE crawl_jobs SET state = 'completed', completed_at = clock_timestamp() WHERE id = %s", (job_id,)
    )


def let_pass(connection: psycopg.Connection, time: timedelta) -> None:
    """Let everything that is in the store have happened so much earlier."""
    connection.execute("SELECT 1 FROM crawl_log")
    weeks = connection.execute(
        "SELECT DISTINCT date_trunc('week', (crawled_at - %s) AT TIME ZONE 'UTC')::date FROM crawl_log", (time,)
    ).fetchall()
    for (week,) in weeks:
        make_week(connection, week)
    columns = connection.execute(
        """SELECT c.relname, array_agg(a.attname::text) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
           WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0
           AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped AND a.attgenerated = ''
           AND c.relname NOT IN ('stats_day', 'archives', 'retention_runs', 'retention_state', 'retention_progress')
           GROUP BY c.relname ORDER BY c.relname"""
    ).fetchall()
    for table, names in columns:
        moved = ", ".join(f"{name} = {name} - %(time)s" for name in names)
        connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        connection.execute(f"UPDATE {table} SET {moved}", {"time": time})
        connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def let_files_age(folder: Path, time: timedelta) -> None:
    """Let the files of an archive (WARC) have been written so much earlier, too."""
    for path in folder.glob("*/*.warc.gz"):
        then = path.stat().st_mtime - time.total_seconds()
        os.utime(path, (then, then))


def rows_of(connection: psycopg.Connection, *tables: str) -> dict[str, list[str]]:
    """All rows of some tables, as JSON. What is written anew with each row is left out."""
    found = {}
    for table in tables:
        query = f"SELECT (to_jsonb(t) - 'changed')::text FROM {table} t ORDER BY 1"
        found[table] = [row[0] for row in connection.execute(query)]
    return found


@dataclass(frozen=True)
class Kept:
    """The services of retention for a test's store, with an archive and a store of archives in a folder."""

    database: Database
    folder: Path
    format: str = "parquet"
    objects: SegmentStore | None = None
    archive_name: str = "archive"
    store_name: str = "retention"
    away: str = ""

    @property
    def archive(self) -> Path:
        return self.folder / self.archive_name

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def store_files(self, kind: str) -> list[Path]:
        return sorted((self.folder / "retention" / kind).glob("*/*"))

    @property
    def store(self) -> FolderFileStore:
        return self.open_store(f"data/{self.store_name}")

    def with_store(self, name: str, away: str = "") -> "Kept":
        """The same with a store of archives in another folder; that in the folder `away` cannot be used."""
        return replace(self, store_name=name, away=away)

    def open_store(self, place: str) -> FolderFileStore:
        name = place.rpartition("/")[2]
        return FolderFileStore(Path("/dev/null/away") if name == self.away else self.folder / name, place)

    def service(self, **settings: Any) -> RetentionService:
        return RetentionService(
            self.database,
            Retention(**{"format": self.format} | settings),
            self.store,
            self.open_store,
            self.archive,
            self.scratch,
            self.objects,
        )

    @property
    def archives(self) -> ArchiveService:
        machine = None if self.objects is None else self.archive_name
        return ArchiveService(self.database, self.open_store, self.archive, self.scratch, machine)
