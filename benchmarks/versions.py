"""What versions of pages cost: CPU of the database for each page committed, and the comparison of two crawls. Prints tables; never a gate.

    python benchmarks/versions.py [--pages 20000] [--compare 1000000]

A job is crawled, crawled again without a change, and again with every page changed, by commits of 100 pages. CPU is that of the backend
alone, so that other work on the machine counts little. To compare two versions of Holdfast, run the file in turns with PYTHONPATH set to
the source of each. `--compare 0` leaves the comparison out. The bundled PostgreSQL runs in a folder that is removed at the end.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import psycopg

from holdfast.db import claims, crawls, embedded, jobs, migrate, release, runs, seed_insert
from holdfast.db.commit import commit
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PageRow, UrlOutcome, VisitPart
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import url_key
from holdfast.model.visit_report import VisitEnd
from holdfast.politeness.retry import CooldownPolicy
from holdfast.settings import Cooldown

LEASE = timedelta(minutes=30)
BATCH = 100
HOME = "https://bench.example/"
TRIES = 5

_FILL = """
INSERT INTO domains (domain, parent_domain, base_url, source)
SELECT 'd' || n || '.example', 'd' || n || '.example', 'https://d' || n || '.example', 'benchmark' FROM generate_series(1, 1000) n;

INSERT INTO crawl_jobs (name) VALUES ('large');

INSERT INTO crawls (job_id, state, started_at, ended_at)
SELECT id, 'finished', now() - n * interval '1 day', now() - (n - 1) * interval '1 day'
FROM crawl_jobs, generate_series(2, 1, -1) n WHERE name = 'large';

INSERT INTO crawled_pages (domain_id, job_id, url_key, crawled_at, content_length, status, outcome, content_hash, title, new_in_crawl)
SELECT d.first + n % 1000, j.id, substring(sha256(n::text::bytea) FROM 1 FOR 16), now() - n * interval '1 ms', 20000,
       CASE WHEN n % 100 = 1 THEN 404 ELSE 200 END, CASE WHEN n % 100 = 1 THEN 'not_found' ELSE 'ok' END, sha256(n::text::bytea),
       'Article ' || n || ' on the keeping of places', CASE WHEN n % 20 = 2 THEN c.id END
FROM generate_series(1, {pages}) n, (SELECT min(id) AS first FROM domains WHERE source = 'benchmark') d,
     (SELECT id FROM crawl_jobs WHERE name = 'large') j, (SELECT max(id) AS id FROM crawls) c;

INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
SELECT domain_id, job_id, url_key, 'https://d.example/articles/' || encode(url_key, 'hex'), 'done' FROM crawled_pages
WHERE job_id = (SELECT id FROM crawl_jobs WHERE name = 'large');

INSERT INTO page_versions (domain_id, job_id, url_key, number, crawled_at, replaced_at, crawl_id, change, status, outcome, title,
                           content_length, content_hash, noindex)
SELECT domain_id, job_id, url_key, 1, crawled_at - interval '1 day', crawled_at, (SELECT max(id) FROM crawls),
       CASE WHEN outcome = 'not_found' THEN 'gone' ELSE 'changed' END, 200, 'ok', title || ' before', 19000, sha256(url_key), false
FROM crawled_pages WHERE job_id = (SELECT id FROM crawl_jobs WHERE name = 'large')
  AND (outcome = 'not_found' OR get_byte(url_key, 0) < 128 AND new_in_crawl IS NULL)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--compare", type=int, default=1_000_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    data = folder / "data"
    try:
        database = Database(embedded.ensure_running(data).url(), statement_timeout=0)
        migrate.upgrade(database)
        with database.connect() as connection:
            flush(database, connection, options.pages)
            if options.compare:
                compare(database, connection, options.compare)
    finally:
        embedded.stop(data)
        shutil.rmtree(folder)


def flush(database: Database, connection: psycopg.Connection, pages: int) -> None:
    """Commit the pages of a job three times."""
    job = jobs.find(connection, jobs.DEFAULT)
    seed_insert.add(connection, [make_seed(HOME)], job_id=job, source="benchmark", defaults=NewDomains())
    run_id = runs.begin(connection, worker="w1")
    urls = [f"{HOME}{number}" for number in range(pages)]
    crawls.begin(connection, job)
    claim = _claim(connection, job)
    found = [DiscoveredUrl(job, url_key(url), url, 1, 3, b"p" * 16) for url in urls]
    home = UrlOutcome(job, url_key(HOME), HOME, 0, Outcome.OK, UrlState.DONE, attempts=1, status=200)
    _commit(database, connection, run_id, VisitPart(claim.domain_id, claim.epoch, [home], found))
    connection.execute("VACUUM ANALYZE")
    for what, version in (("first crawl", 0), ("again, unchanged", 0), ("again, all changed", 1)):
        if what != "first crawl":
            claim = _again(connection, job, claim)
        _print_cost(what, pages, *_crawl(database, connection, run_id, claim, job, urls, version))


def _crawl(
    database: Database,
    connection: psycopg.Connection,
    run_id: int,
    claim: Claim,
    job: int,
    urls: list[str],
    version: int,
) -> tuple[float, float]:
    """Seconds of CPU of the backend, and by the clock."""
    cpu, clock = _cpu(connection), time.monotonic()
    for start in range(0, len(urls), BATCH):
        rows = [_outcome(job, url, version, start) for url in urls[start : start + BATCH]]
        _commit(database, connection, run_id, VisitPart(claim.domain_id, claim.epoch, rows))
    return _cpu(connection) - cpu, time.monotonic() - clock


def _outcome(job: int, url: str, version: int, place: int) -> UrlOutcome:
    key = url_key(url)
    page = PageRow(
        200,
        content_type="text/html; charset=utf-8",
        charset="utf-8",
        content_length=20_000 + version,
        content_hash=key + bytes([version]) * 16,
        title=f"Article at {url}, version {version}",
        archive=ArchiveRef("w1/20260101T000000-1.warc.gz", place, 9_000, key + bytes([version]) * 16),
    )
    return UrlOutcome(
        job, key, url, 1, Outcome.OK, UrlState.DONE, attempts=1, status=200, duration_ms=9, bytes=9_000, page=page
    )


def _commit(database: Database, connection: psycopg.Connection, run_id: int, part: VisitPart) -> None:
    batch = CommitBatch(run_id, [part])
    done = commit(connection, database.connect, worker="w1", batch=batch, lease=LEASE, defaults=NewDomains())
    assert not done.refused


def _claim(connection: psycopg.Connection, job: int) -> Claim:
    (claim,) = claims.claim(connection, worker="w1", job_id=job, count=1, lease=LEASE)
    return claim


def _again(connection: psycopg.Connection, job: int, claim: Claim) -> Claim:
    """Begin the next crawl of the job: all of its URLs wait again."""
    policy = CooldownPolicy(Cooldown(), max_block_retries=3, rng=random.Random(1))
    release.release(connection, worker="w1", ending=VisitEnd(claim.domain_id, claim.epoch), cooldown=policy)
    connection.execute("UPDATE crawls SET state = 'finished', ended_at = clock_timestamp()")
    connection.execute("UPDATE crawl_jobs SET state = 'completed' WHERE id = %s", (job,))
    crawls.restart(connection, job)
    crawls.begin(connection, job)
    again = _claim(connection, job)
    while connection.execute("SELECT count(*) FROM domain_wakes").fetchone() != (0,):  # a wake is folded in chunks
        release.release(connection, worker="w1", ending=VisitEnd(again.domain_id, again.epoch), cooldown=policy)
        again = _claim(connection, job)
    connection.execute("VACUUM ANALYZE")
    return again


def _cpu(connection: psycopg.Connection) -> float:
    """Seconds of CPU that the backend of a connection has used."""
    fields = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _print_cost(what: str, pages: int, cpu: float, clock: float) -> None:
    print(f"{what:<20}{cpu / pages * 1e6:8.1f} µs of CPU a page{clock / pages * 1e6:9.1f} µs by the clock", flush=True)


def compare(database: Database, connection: psycopg.Connection, pages: int) -> None:
    """Compare two crawls of a job with so many pages."""
    from holdfast.jobs.records import PageChange
    from holdfast.jobs.service import JobService

    connection.execute("SET synchronous_commit = off")
    for statement in _FILL.format(pages=pages).split(";\n\n"):
        connection.execute(statement.encode())
    connection.execute("VACUUM ANALYZE")
    service = JobService(database, "benchmark")
    found = service.compare("large")
    print(
        f"\n{pages:,} pages: { ({str(change): getattr(found, change) for change in PageChange}) }, at least: {found.at_least}"
    )
    print(f"compare: {_median(lambda: service.compare('large')):.0f} ms")
    for change in PageChange:
        took = _median(lambda change=change: service.compared_pages("large", change))
        print(f"100 of {change}: {took:.0f} ms", flush=True)


def _median(call: object) -> float:
    times = []
    for _ in range(TRIES):
        began = time.monotonic()
        call()  # type: ignore[operator]
        times.append((time.monotonic() - began) * 1000)
    return sorted(times)[TRIES // 2]


if __name__ == "__main__":
    main()
