"""Bulk insert of seeds: domains, their work and their first URLs, by the hundred thousand.

The rule: inserts only. Existing rows stay as they are; an existing domain gets a wake for its new URLs, because a worker may hold
it. Rows are inserted in key order, so two loaders never deadlock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import psycopg

from holdfast.db import claimable, jobs
from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.errors import Refused, StoreUnavailable
from holdfast.model.domain import Seed

_ATTEMPTS: Final = 10
# Made once a session and emptied by each commit: a table made and dropped per batch would churn the catalogue.
_TABLES: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS seed_batch (
    domain text COLLATE "C", parent_domain text, base_url text, url text, url_key bytea, seed_rank integer,
    guessed boolean, nth bigint GENERATED ALWAYS AS IDENTITY
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS seed_found (id bigint, url_key bytea, url text, rank_for integer) ON COMMIT DELETE ROWS;
"""
_COPY: Final = (
    "COPY seed_batch (domain, parent_domain, base_url, url, url_key, seed_rank, guessed) FROM STDIN (FORMAT BINARY)"
)

# No other transaction knows a domain that this statement inserts: its work can be ready at once, and its URLs are new.
_FRESH: Final = f"""
WITH wanted AS MATERIALIZED (
    SELECT domain, min(parent_domain) AS parent_domain, (array_agg(base_url ORDER BY nth))[1] AS base_url, min(seed_rank) AS seed_rank,
           count(DISTINCT url_key) AS urls
    FROM seed_batch GROUP BY domain
), fresh AS (
    INSERT INTO domains (domain, parent_domain, base_url, seed_rank, source, pages_discovered, frontier_size, frontier_updated_at,
                         priority_score, priority_computed_at, {TREATMENT_COLUMNS})
    SELECT domain, parent_domain, base_url, seed_rank, %(source)s, urls, urls, now(),
           rank_points(seed_rank) + LEAST(urls, 500) * 2 - (SELECT staleness_points(now() - interval '30 days')), now(),
           {TREATMENT_VALUES}
    FROM wanted ORDER BY domain
    ON CONFLICT (domain) DO NOTHING
    RETURNING id, domain, priority_score, pages_discovered
), work AS (
    INSERT INTO job_domains (domain_id, job_id, priority, ready, discovered, waiting)
    SELECT fresh.id, j.id, priority_score, j.state IN ('pending', 'processing', 'completed', 'failed'), pages_discovered, pages_discovered
    FROM fresh CROSS JOIN crawl_jobs j WHERE j.id = %(job)s
), urls AS (
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, priority)
    SELECT f.id, %(job)s, b.url_key, min(b.url), %(priority)s FROM seed_batch b JOIN fresh f USING (domain)
    GROUP BY f.id, b.url_key ORDER BY f.id, b.url_key
)
SELECT (SELECT count(*) FROM wanted), count(*), COALESCE(sum(pages_discovered), 0)::bigint FROM fresh
"""  # noqa: S608 — composed of constants only

# What of the batch is missing on domains that were there before: URLs, or a rank. (The fresh ones have theirs by now.)
_FIND: Final = """
INSERT INTO seed_found
SELECT d.id, b.url_key, min(b.url), CASE WHEN d.seed_rank IS NULL THEN min(b.seed_rank) END
FROM seed_batch b JOIN domains d USING (domain)
WHERE (d.seed_rank IS NULL AND b.seed_rank IS NOT NULL)
   OR NOT EXISTS (SELECT FROM url_frontier u WHERE u.domain_id = d.id AND u.job_id = %(job)s AND u.url_key = b.url_key)
GROUP BY d.id, b.url_key
"""

# Makes the release of a domain wait for this transaction, so that none becomes exhausted while a URL for it is being inserted.
_SHARE: Final = """
SELECT count(*) FROM (SELECT FROM domains WHERE id IN (SELECT id FROM seed_found) ORDER BY id FOR KEY SHARE) known
"""

# Domains that were removed before this transaction locked them. Their names are free: they are inserted again.
_NOT_REMOVED: Final = "DELETE FROM seed_found f USING domains d WHERE d.id = f.id AND d.removed_at IS NOT NULL"
_IS_MISSING: Final = (
    "SELECT EXISTS (SELECT FROM seed_batch b WHERE NOT EXISTS (SELECT FROM domains d WHERE d.domain = b.domain))"
)

_URLS: Final = """
WITH added AS (
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, priority)
    SELECT id, %(job)s, url_key, url, %(priority)s FROM seed_found ORDER BY id, url_key
    ON CONFLICT DO NOTHING
    RETURNING domain_id
), woken AS (
    INSERT INTO domain_wakes (domain_id, job_id, inserted)
    SELECT domain_id, %(job)s, count(*) FROM added GROUP BY domain_id ORDER BY domain_id
)
SELECT count(*) FROM added
"""

# A rank is not learnt state: a domain first found by a link gets the rank of its seed. Locked rows are skipped.
_RANKS: Final = """
WITH free AS MATERIALIZED (
    SELECT id FROM domains WHERE id IN (SELECT id FROM seed_found WHERE rank_for IS NOT NULL) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE domains d SET seed_rank = r.rank
FROM free JOIN (SELECT id, min(rank_for) AS rank FROM seed_found WHERE rank_for IS NOT NULL GROUP BY id) r USING (id)
WHERE d.id = free.id
RETURNING d.id
"""


# The last seed decides whether the scheme was guessed.
_KEEP: Final = """
INSERT INTO job_seeds AS s (job_id, url_key, url, seed_rank, guessed)
SELECT %(job)s, url_key, min(url), min(seed_rank), bool_and(guessed) FROM seed_batch GROUP BY url_key ORDER BY url_key
ON CONFLICT (job_id, url_key) DO UPDATE SET guessed = excluded.guessed WHERE s.guessed <> excluded.guessed
"""

# Last of all, and under lock: serialises with a transaction that proves the job completed, which sees these rows or is seen here.
_JOB: Final = "SELECT deleted_at IS NOT NULL FROM crawl_jobs WHERE id = %(job)s FOR NO KEY UPDATE"


@dataclass(frozen=True, slots=True)
class SeedCounts:
    """Numbers of domains and URLs that seeds added."""

    domains: int = 0
    urls: int = 0

    def __add__(self, other: "SeedCounts") -> "SeedCounts":
        return SeedCounts(self.domains + other.domains, self.urls + other.urls)


def add(
    connection: psycopg.Connection,
    seeds: Iterable[Seed],
    *,
    job_id: int,
    source: str,
    defaults: NewDomains,
    priority: int = 3,
) -> SeedCounts:
    """Insert a batch of seeds for a job, in one transaction.

    Before: the transaction, if one is open, has locked no domain. After: each seed's domain and URL are in the store; new domains are
    ready to be claimed, known ones have a wake for their new URLs; whatever a domain has learnt is untouched. A completed job that
    got new URLs is pending again.
    """
    parameters = {"job": job_id, "source": source, "priority": priority, **defaults.columns()}
    with connection.transaction():
        connection.execute(_TABLES)
        connection.execute(
            "DELETE FROM seed_batch; DELETE FROM seed_found"
        )  # of a batch before, in the same transaction
        connection.execute("SET LOCAL work_mem = '64MB'")
        with connection.cursor().copy(_COPY) as copy:
            copy.set_types(["text", "text", "text", "text", "bytea", "int4", "bool"])
            for seed in seeds:
                row = (seed.domain, seed.parent_domain, seed.base_url, seed.url, seed.url_key, seed.rank, seed.guessed)
                copy.write_row(row)
        connection.execute("ANALYZE seed_batch (domain, url_key)")
        added = _add(connection, parameters)
        connection.execute(_KEEP, parameters)
        if added.urls:
            _reopen_job(connection, parameters)
    return added


def _add(connection: psycopg.Connection, parameters: Mapping[str, object]) -> SeedCounts:
    """Insert the batch, repeated until it is complete: a known domain may be removed at the same moment."""
    added = SeedCounts()
    for _ in range(_ATTEMPTS):
        wanted, domains, urls = connection.execute(_FRESH, parameters).fetchone() or (0, 0, 0)
        added += SeedCounts(domains, urls)
        if domains == wanted:
            return added
        added += SeedCounts(0, _add_to_known(connection, parameters))
        row = connection.execute(_IS_MISSING).fetchone()
        if not (row and row[0]):
            return added
        connection.execute("DELETE FROM seed_found")
    raise StoreUnavailable("Domains of these seeds are removed as soon as they are there; try again when that is over.")


def _add_to_known(connection: psycopg.Connection, parameters: Mapping[str, object]) -> int:
    """Insert the URLs of known domains; returns how many were new.

    Ranks go first: a transaction that waits for a domain's row must not hold a frontier key that the holder waits for.
    """
    found = connection.execute(_FIND, parameters).rowcount
    if not found:
        return 0
    _update_ranks(connection)
    connection.execute(_SHARE)
    connection.execute(_NOT_REMOVED)
    row = connection.execute(_URLS, parameters).fetchone()
    return int(row[0]) if row else 0


def _reopen_job(connection: psycopg.Connection, parameters: Mapping[str, object]) -> None:
    (deleted,) = connection.execute(_JOB, parameters).fetchone() or (True,)
    if deleted:
        raise Refused("The job was deleted meanwhile; nothing of these seeds was kept.")
    job_id = int(str(parameters["job"]))
    jobs.reopen(connection, job_id, "it has new seeds")
    jobs.ask_for_crawl(connection, [job_id])


def _update_ranks(connection: psycopg.Connection) -> None:
    ranked = [row[0] for row in connection.execute(_RANKS)]
    if ranked:
        claimable.rescore(connection, ranked)
        claimable.update_ready(connection, ranked)
