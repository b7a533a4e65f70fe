"""A frontier of any size in minutes: domains by the product's own seeding, their URLs by plain SQL, and the counters of both right.

The rule: what stands in the tables afterwards is what a crawl would have left. Rows lie in the order of their discovery, the URLs of a
page together and domains in turn, not in the order of an index; `holdfast verify` finds nothing wrong.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg

from benchmarks.scale.progress import step
from holdfast.db import crawls, embedded, migrate, seed_insert
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.model.job import JobSpec
from holdfast.model.seed_lines import make_seed
from holdfast.testing.simweb.spec import Address

JOB = "scale"
DELAY = 0.01
PAGE = "/?article={}&title=on-the-keeping-of-places"
"""A URL of usual length; the simulated web answers with a home page, whatever the query."""
DEPTH, PRIORITY = 3, 2
URLS_A_DOMAIN = 100
"""On average, where there are many domains."""
FROM_A_PAGE = 20
AT_ONCE = 200_000
SEEDS_AT_ONCE = 50_000
DISK_A_URL, DISK_BESIDE = 450, 6 << 30
"""Bytes: table, indexes and what sorting them takes; and the WAL."""

# The largest of n domains has n ** 0.5 times the mean, the smallest half of it. Which is which does not follow from the id, so that claims,
# which go by id where priorities are alike, meet all sizes. The home page of each is there already.
_SIZES = """
CREATE TEMPORARY TABLE sizes AS
SELECT id AS domain_id, base_url AS origin, (floor(%(urls)s * sqrt(n / %(domains)s::float8))
       - floor(%(urls)s * sqrt((n - 1) / %(domains)s::float8)))::bigint - 1 AS size
FROM (SELECT id, base_url, row_number() OVER (ORDER BY hashint8(id), id) AS n FROM domains) numbered
"""
_URLS = """
INSERT INTO url_frontier (domain_id, job_id, url_key, parent_key, url, depth, priority)
SELECT s.domain_id, %(job)s, substring(sha256(u.url::bytea) FROM 1 FOR 16), substring(sha256((s.origin || '/')::bytea) FROM 1 FOR 16),
       u.url, %(depth)s, %(priority)s
FROM sizes s CROSS JOIN LATERAL (
    SELECT s.origin || replace(%(page)s, '{}', i::text) AS url FROM generate_series(%(first)s, LEAST(%(last)s, s.size)) i) u
WHERE s.size >= %(first)s
"""
_COUNT = """
WITH work AS (UPDATE job_domains jd SET discovered = jd.discovered + s.size, waiting = jd.waiting + s.size
              FROM sizes s WHERE jd.domain_id = s.domain_id)
UPDATE domains d SET pages_discovered = d.pages_discovered + s.size, frontier_size = d.frontier_size + s.size
FROM sizes s WHERE d.id = s.domain_id
"""
_CONSTRAINTS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'url_frontier'::regclass AND contype IN ('p', 'u')
"""
_INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
WHERE i.indrelid = 'url_frontier'::regclass AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
"""
HOT_TABLES = ("domains", "job_domains", "url_frontier", "claim_log", "crawl_log", "crawled_pages")


class Place(NamedTuple):
    """A store that runs."""

    data: Path
    database: Database
    job_id: int


@contextmanager
def store(data: Path) -> Iterator[Place]:
    """A new store with a job that may visit this machine; stopped at the end, and gone. What a killed run left there goes first."""
    _remove(data)
    data.mkdir(parents=True)
    data.chmod(0o755)
    try:
        with step("starting PostgreSQL"):
            database = Database(embedded.ensure_running(data).url(), statement_timeout=0, idle_timeout=0)
            migrate.upgrade(database)
        spec = JobSpec(delay=DELAY, allow_private=True, max_pages_per_domain=1_000_000_000)
        with database.session() as connection:
            job = crawls.create(connection, name=JOB, spec=spec, fingerprint=None)
        yield Place(data, database, job.id)
    finally:
        with step("removing the store"):
            _remove(data)


def _remove(data: Path) -> None:
    """A crawl outlives a benchmark that is killed, and would find the next store in this place: it ends first."""
    for process in psutil.process_iter(["cmdline"]):
        if str(data) in (process.info["cmdline"] or ()):
            process.kill()
    if data.exists():
        embedded.stop(data)
        shutil.rmtree(data)


def enough_disk(folder: Path, urls: int) -> None:
    """Say so now if the disk will not hold that many."""
    wanted, free = urls * DISK_A_URL + DISK_BESIDE, shutil.disk_usage(folder).free
    if free < wanted:
        raise SystemExit(f"{urls:,} URLs take about {wanted >> 30} GB, and {folder} has {free >> 30}: see --work.")


def domains(place: Place, address: Address, count: int) -> None:
    """After: so many sites of the simulated web are seeds of the job, ready to be claimed."""
    with step(f"{count:,} domains") as here, place.database.session() as connection:
        for first in range(0, count, SEEDS_AT_ONCE):
            sites = range(first, min(count, first + SEEDS_AT_ONCE))
            seeds = (make_seed(f"{address.origin(site)}/") for site in sites)
            seed_insert.add(connection, seeds, job_id=place.job_id, source="benchmark", defaults=NewDomains())
            here.part = sites.stop / count


def urls(place: Place, count: int, among: int) -> None:
    """Before: `among` domains have their home pages. After: the frontier has `count` URLs, all waiting, and is told so."""
    with place.database.session() as connection:
        connection.execute("SET work_mem = '256MB'; SET maintenance_work_mem = '1GB'")
        connection.execute(_SIZES, {"urls": count, "domains": among})
        connection.execute("CREATE INDEX ON sizes (size); ANALYZE sizes")
        with _without_indexes(connection):
            _insert(connection, place.job_id, count, among)
        with step("counting"):
            connection.execute(_COUNT)


def _insert(connection: psycopg.Connection, job_id: int, count: int, among: int) -> None:
    largest = connection.execute("SELECT max(size) FROM sizes").fetchone()
    assert largest
    length = max(FROM_A_PAGE, AT_ONCE // among)
    made = among
    with step(f"{count:,} URLs") as here:
        for first in range(1, largest[0] + 1, length):
            words = {"first": first, "last": first + length - 1, "job": job_id, "page": PAGE}
            made += connection.execute(_URLS, words | {"depth": DEPTH, "priority": PRIORITY}).rowcount
            here.part = made / count
    assert made == count, made


@contextmanager
def _without_indexes(connection: psycopg.Connection) -> Iterator[None]:
    """An index that is built from all rows at once takes a fraction of the time. After: all are there again."""
    constraints, indexes = connection.execute(_CONSTRAINTS).fetchall(), connection.execute(_INDEXES).fetchall()
    for name, _ in constraints:
        connection.execute(f"ALTER TABLE url_frontier DROP CONSTRAINT {name}".encode())
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}".encode())
    yield
    for name, definition in constraints:
        with step(f"index {name}"):
            connection.execute(f"ALTER TABLE url_frontier ADD CONSTRAINT {name} {definition}".encode())
    for name, definition in indexes:
        with step(f"index {name}"):
            connection.execute(definition.encode())


def calm(place: Place) -> None:
    """Let the server finish what filling left it to do, so that vacuum and checkpoint are not in the times."""
    with step("vacuum and checkpoint"):
        with place.database.session() as connection:
            for table in HOT_TABLES:
                connection.execute(f"VACUUM (ANALYZE) {table}".encode())
        with psycopg.connect(place.database.url.replace("//holdfast@", "//postgres@"), autocommit=True) as admin:
            admin.execute("CHECKPOINT")
