"""SQL of the steps of retention that go by jobs: URLs, pages and contents of jobs that ended.

The rule: a job that has not ended for good keeps all its rows, as they are its memory of what it has seen. The transaction that deletes a
chunk has locked the job's row and read there that it has ended, so nothing begins it meanwhile.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString

import psycopg

from holdfast.db import array_params, claimable
from holdfast.retention.queries.chunks import Keys, Part, fitting

CHUNK: Final = 2_000
"""URLs of an archive at most; fewer if their texts are long (chunks.BYTES). Its transaction holds their domains, and a worker that has one
of them for another job waits for it: behind 5 000 URLs for 1.1 s on a busy machine."""
_DOMAINS: Final = 500

_URL: Final = "t.domain_id = k.domain_id AND t.job_id = %(job)s AND t.url_key = k.url_key"
_OF_PAGE: Final = """(
    EXISTS (SELECT FROM crawled_pages p WHERE (p.domain_id, p.job_id, p.url_key) = (f.domain_id, f.job_id, f.url_key))
    OR EXISTS (SELECT FROM sitemaps s WHERE (s.domain_id, s.job_id, s.url_key) = (f.domain_id, f.job_id, f.url_key))
    OR EXISTS (SELECT FROM link_answers a WHERE (a.domain_id, a.job_id, a.url_key) = (f.domain_id, f.job_id, f.url_key)))"""


@dataclass(frozen=True, slots=True)
class JobStep:
    """A step of retention that goes by jobs."""

    name: str
    """The kind of its archives."""
    setting: str
    parts: tuple[Part, ...]
    candidates: LiteralString
    """The keys of a domain's URLs that it takes, of the domain `d` and after its key `after`."""
    forgets: bool = True
    """Whether the URLs themselves are deleted; else only the rows of `parts`."""


_FRONTIER: Final = (Part("url_frontier", _URL, "settled_at"),)
COMPLETED: Final = JobStep(
    "frontier_completed",
    "frontier_completed",
    _FRONTIER,
    f"SELECT f.url_key FROM url_frontier f WHERE f.state IN ('done', 'denied') AND NOT {_OF_PAGE}",  # noqa: S608 — constants
)
FAILED: Final = JobStep(
    "frontier_failed",
    "frontier_failed",
    _FRONTIER,
    f"SELECT f.url_key FROM url_frontier f WHERE f.state = 'failed' AND NOT {_OF_PAGE}",  # noqa: S608 — constants
)
CONTENT: Final = JobStep(
    "content",
    "content",
    (Part("page_texts", _URL, wide="body"), Part("documents", _URL, "fetched_at", wide="body")),
    """SELECT f.url_key FROM (SELECT domain_id, job_id, url_key FROM page_texts
                              UNION SELECT domain_id, job_id, url_key FROM documents) f WHERE true""",
    forgets=False,
)
PAGES: Final = JobStep(
    "pages",
    "pages",
    (
        Part("url_frontier", _URL),
        Part("crawled_pages", _URL, "crawled_at"),
        Part("page_versions", _URL),
        Part("page_texts", _URL, wide="body"),
        Part("page_links", _URL, wide="body"),
        Part("sitemaps", _URL),
        Part("link_answers", _URL),
        Part("page_parses", _URL),
        Part("items", _URL, wide="data"),
        Part("documents", _URL, wide="body"),
    ),
    f"SELECT f.url_key FROM url_frontier f WHERE f.state <> 'waiting' AND {_OF_PAGE}",  # noqa: S608 — constants
)
STEPS: Final = (CONTENT, COMPLETED, FAILED, PAGES)
"""In the order of their default periods. A URL with a page goes with its page, and one without by its own period."""

_ENDED: Final = """
job_ended_at(j) < clock_timestamp() - %(kept)s::interval AND COALESCE(j.kept_until < clock_timestamp(), true)
"""
_JOBS: Final = f"""
SELECT j.id, j.name, job_ended_at(j), p.domain_id, p.url_key FROM crawl_jobs j
LEFT JOIN retention_progress p ON p.job_id = j.id AND p.step = %(step)s AND p.ended_at = job_ended_at(j)
WHERE {_ENDED} AND p.done_at IS NULL ORDER BY j.id
"""  # noqa: S608 — constants
_JOB_DOMAINS: Final = """
SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND discovered > waiting AND domain_id >= %(after)s ORDER BY domain_id
"""
# Domain by domain, so that it ends with the chunk.
_FIND: Final = """
SELECT d.domain_id, u.url_key
FROM unnest(%(domains)s::bigint[]) WITH ORDINALITY AS d(domain_id, place) CROSS JOIN LATERAL (
    {candidates} AND f.domain_id = d.domain_id AND f.job_id = %(job)s
    AND f.url_key > CASE WHEN d.place = 1 THEN %(key)s ELSE ''::bytea END
    ORDER BY f.url_key LIMIT %(chunk)s) u
LIMIT %(chunk)s
"""
_COUNT: Final = """
SELECT count(*) FROM job_domains d CROSS JOIN LATERAL (
    {candidates} AND f.domain_id = d.domain_id AND f.job_id = d.job_id) u WHERE d.job_id = %(job)s
"""
_LOCK_JOB: Final = f"SELECT 1 FROM crawl_jobs j WHERE j.id = %(job)s AND {_ENDED} FOR NO KEY UPDATE"  # noqa: S608 — constants
_LOCK_DOMAINS: Final = "SELECT id FROM domains WHERE id = ANY(%(domains)s) ORDER BY id FOR UPDATE"
# Transactions that write items or documents share these rows, by the foreign keys.
_LOCK_PAGES: Final = (
    """
    SELECT 1 FROM crawled_pages p JOIN unnest(%(domain_id)s::bigint[], %(url_key)s::bytea[]) AS k(domain_id, url_key)
    ON p.domain_id = k.domain_id AND p.job_id = %(job)s AND p.url_key = k.url_key ORDER BY p.domain_id, p.url_key FOR UPDATE OF p
    """,
    """
    SELECT 1 FROM page_parses p JOIN unnest(%(domain_id)s::bigint[], %(url_key)s::bytea[]) AS k(domain_id, url_key)
    ON p.domain_id = k.domain_id AND p.job_id = %(job)s AND p.url_key = k.url_key ORDER BY p.domain_id, p.url_key FOR UPDATE OF p
    """,
)
_AGE: Final = "UPDATE crawl_jobs SET aged_at = clock_timestamp() WHERE id = %(job)s"
_FORGET: Final = (
    "SELECT forget_urls(%(domain_id)s::bigint[], array_fill(%(job)s::bigint, ARRAY[cardinality(%(domain_id)s::bigint[])]),"
    " %(url_key)s::bytea[])"
)
# The domain discovered them all the same: what its jobs do not count any more is in the roll-up.
_ROLL_UP: Final = """
WITH gone AS MATERIALIZED (SELECT * FROM unnest(%(domains)s::bigint[], %(urls)s::bigint[]) AS g(domain_id, urls)), counted AS (
    UPDATE domains d SET pages_discovered = d.pages_discovered + g.urls FROM gone g WHERE d.id = g.domain_id
)
INSERT INTO crawl_log_rollups AS r (domain_id, job_id, discovered) SELECT domain_id, %(job)s, urls FROM gone ORDER BY domain_id
ON CONFLICT (domain_id, job_id) DO UPDATE SET discovered = r.discovered + excluded.discovered
"""
_TEMPLATES: Final = "DELETE FROM url_templates WHERE job_id = %(job)s AND domain_id = ANY(%(domains)s)"
_PURGED: Final = """
INSERT INTO page_purges (before, job_id) SELECT clock_timestamp(), %(job)s
WHERE NOT EXISTS (SELECT FROM page_purges WHERE job_id = %(job)s AND domain_id IS NULL AND before >= %(ended_at)s)
"""
_PROGRESS: Final = """
INSERT INTO retention_progress (job_id, step, ended_at, domain_id, url_key, done_at)
VALUES (%(job)s, %(step)s, %(ended_at)s, %(domain)s, %(key)s, CASE WHEN %(done)s THEN clock_timestamp() END)
ON CONFLICT (job_id, step) DO UPDATE SET ended_at = excluded.ended_at, domain_id = excluded.domain_id, url_key = excluded.url_key,
    done_at = excluded.done_at
"""


@dataclass(slots=True)
class EndedJob:
    """A job whose rows are old enough for a step."""

    id: int
    name: str
    ended_at: datetime
    domain_id: int
    """The last URL that the step has looked at."""
    url_key: bytes


def ended_jobs(connection: psycopg.Connection, step: JobStep, kept: timedelta) -> list[EndedJob]:
    """Return the jobs that a step has to look at: ended for longer than `kept`, not looked at to the end, not restored lately."""
    rows = connection.execute(_JOBS, {"step": step.name, "kept": kept})
    return [EndedJob(job, name, at, domain or 0, bytes(key or b"")) for job, name, at, domain, key in rows]


def chunks(connection: psycopg.Connection, step: JobStep, job: EndedJob) -> Iterator[Keys]:
    """Yield the URLs of a job that a step takes, in chunks; `job` follows. Before: no transaction is open."""
    domains = [row[0] for row in connection.execute(_JOB_DOMAINS, {"job": job.id, "after": job.domain_id})]
    at = 0
    query = _FIND.format(candidates=step.candidates)
    values: dict[str, Any]
    while at < len(domains):
        wanted = domains[at : at + _DOMAINS]
        if wanted[0] != job.domain_id:
            job.domain_id, job.url_key = wanted[0], b""
        values = {"domains": wanted, "job": job.id, "key": job.url_key, "chunk": CHUNK}
        found = connection.execute(query, values, prepare=False).fetchall()
        fits = True
        if found:
            values = {"domain_id": [row[0] for row in found], "url_key": [bytes(row[1]) for row in found]}
            keys = fitting(connection, step.parts, Keys({"domain_id": "bigint", "url_key": "bytea"}, values, job.id))
            fits = len(keys) == len(found)
            job.domain_id, job.url_key = keys.values["domain_id"][-1], keys.values["url_key"][-1]
            yield keys
        if len(found) == CHUNK or not fits:
            at = domains.index(job.domain_id, at)
        else:
            at += len(wanted)


def count(connection: psycopg.Connection, step: JobStep, job: EndedJob) -> int:
    """Count the URLs of a job that a step takes."""
    row = connection.execute(_COUNT.format(candidates=step.candidates), {"job": job.id}, prepare=False).fetchone()
    return 0 if row is None else int(row[0])


def lock(connection: psycopg.Connection, keys: Keys, kept: timedelta) -> bool:
    """Lock a job, the domains of these URLs and their pages; False if the job is not one that ended so long ago.

    Before: a transaction is open. After: until its end nothing begins the job, or writes rows of these URLs.
    """
    if connection.execute(_LOCK_JOB, {"job": keys.job_id, "kept": kept}).fetchone() is None:
        return False
    domains = sorted(set(keys.values["domain_id"]))
    connection.execute(_LOCK_DOMAINS, {"domains": domains})
    claimable.fold_counts(connection, domains)
    claimable.update_ready(connection, domains)
    for query in _LOCK_PAGES:
        connection.execute(query, keys.parameters())
    return True


def forget(connection: psycopg.Connection, keys: Keys, ended_at: datetime, *, pages: bool) -> int:
    """Delete URLs with all that hangs on them; return how many. Before: `lock` returned True.

    After: the counts of the job are those of its frontier; the domains have discovered as much as before, as the roll-up says. `pages`:
    `verify` accepts that pages of the job are in the log and not kept.
    """
    row = connection.execute(_FORGET, keys.parameters()).fetchone()
    by_domain = Counter(keys.values["domain_id"])
    domains = sorted(by_domain)
    values = {"job": keys.job_id, "domains": array_params.numbers(domains)}
    connection.execute(_ROLL_UP, values | {"urls": array_params.numbers([by_domain[one] for one in domains])})
    connection.execute(_TEMPLATES, values)
    connection.execute(_AGE, values)
    if pages:
        connection.execute(_PURGED, values | {"ended_at": ended_at})
    return 0 if row is None else int(row[0])


def save_progress(connection: psycopg.Connection, step: JobStep, job: EndedJob, *, done: bool = False) -> None:
    """Save how far a step is with a job."""
    values = {"job": job.id, "step": step.name, "ended_at": job.ended_at, "domain": job.domain_id, "key": job.url_key}
    connection.execute(_PROGRESS, values | {"done": done})
