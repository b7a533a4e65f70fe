"""SQL of sitemaps: those of a domain, a job or a URL, and what the pages did whose `lastmod` they say.

The rule: the evidence is derived from a sample of bounded size when it is asked for; a crawl writes nothing for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg
from psycopg.rows import class_row

from holdfast.db.page_versions import PAGE_OUTCOMES
from holdfast.db.rows import by_name, select_list
from holdfast.politeness.sitemap_trust import MAX_COUNT
from holdfast.sitemaps.records import ReadSitemap

SHOWN: Final = 20
"""Sitemaps in a block of them; the list of URLs has all."""
SAMPLE: Final = 5_000
"""URLs of a domain that are looked at. Their keys are hashes, so the first ones are a sample."""
DATED: Final = MAX_COUNT - 1
"""Of these, URLs with a `lastmod` that are judged; of more the evidence would be halved."""
_JOBS: Final = 5
"""Jobs that are looked at for a crawl that fetched pages again."""

_READ: Final = f"""
SELECT {select_list(ReadSitemap, "s", url="f.url", domain="d.domain", job="j.name")} FROM sitemaps s
JOIN url_frontier f ON f.domain_id = s.domain_id AND f.job_id = s.job_id AND f.url_key = s.url_key
JOIN domains d ON d.id = s.domain_id JOIN crawl_jobs j ON j.id = s.job_id
"""  # noqa: S608 — a constant
_FIRST: Final = "ORDER BY s.problem IS NULL, s.read_at DESC, s.url_key LIMIT %(limit)s"
_OF_DOMAIN: Final = f"{_READ} WHERE s.domain_id = %(domain)s {_FIRST}"
_OF_JOB: Final = f"{_READ} JOIN job_domains jd ON jd.domain_id = s.domain_id AND jd.job_id = s.job_id WHERE jd.job_id = %(job)s {_FIRST}"
_OF_URL: Final = f"{_READ} WHERE s.domain_id = %(domain)s AND s.job_id = %(job)s AND s.url_key = %(key)s"

# What sitemaps of a domain list is known to several jobs: the one that knows most counts.
_LISTED: Final = """
SELECT COALESCE(sum(urls), 0)::bigint, COALESCE(sum(sitemaps), 0)::bigint FROM (
    SELECT DISTINCT ON (domain_id) sitemaps, urls FROM (
        SELECT domain_id, count(*) AS sitemaps, sum(entries) FILTER (WHERE format <> 'index') AS urls FROM sitemaps
        WHERE domain_id = ANY(%(domains)s) AND (%(job)s::bigint IS NULL OR job_id = %(job)s) GROUP BY domain_id, job_id) of_jobs
    ORDER BY domain_id, urls DESC NULLS LAST) of_domains
"""

_CRAWLS: Final = """
SELECT s.job_id, j.name AS job, s.read_at, c.id AS crawl_id, c.started_at, before.started_at AS previous_started_at
FROM (SELECT job_id, max(read_at) AS read_at FROM sitemaps WHERE domain_id = %(domain)s GROUP BY job_id) s
JOIN crawl_jobs j ON j.id = s.job_id AND j.deleted_at IS NULL
CROSS JOIN LATERAL (SELECT id, started_at FROM crawls WHERE job_id = s.job_id ORDER BY id DESC LIMIT 1) c
CROSS JOIN LATERAL (SELECT started_at FROM crawls WHERE job_id = s.job_id AND id < c.id ORDER BY id DESC LIMIT 1) before
ORDER BY s.read_at DESC LIMIT %(jobs)s
"""
# A page that is new in the crawl, or that was an error before or is one now, is no evidence.
_SAMPLE: Final = f"""
SELECT f.lastmod, p.url_key IS NOT NULL AS again, COALESCE(v.changed, false) AS changed
FROM (SELECT domain_id, job_id, url_key, lastmod FROM url_frontier
      WHERE domain_id = %(domain)s AND job_id = %(job)s ORDER BY url_key LIMIT %(sample)s) f
LEFT JOIN LATERAL (
    SELECT bool_or(v.change = 'changed') AS changed, bool_or(v.change <> 'changed') AS other FROM page_versions v
    WHERE v.domain_id = f.domain_id AND v.job_id = f.job_id AND v.url_key = f.url_key AND v.crawl_id = %(crawl)s) v ON true
LEFT JOIN crawled_pages p ON p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key
    AND p.crawled_at >= %(started)s AND p.outcome IN {PAGE_OUTCOMES} AND p.new_in_crawl IS DISTINCT FROM %(crawl)s
    AND v.other IS NOT TRUE
WHERE f.lastmod IS NOT NULL LIMIT %(dated)s
"""  # noqa: S608 — composed of constants only


@dataclass(frozen=True, slots=True)
class JobCrawls:
    """The last two crawls of a job that has read sitemaps of a domain."""

    job_id: int
    job: str
    read_at: datetime
    """When it last read one."""
    crawl_id: int
    started_at: datetime
    previous_started_at: datetime


@dataclass(frozen=True, slots=True)
class DatedPage:
    """A page with a `lastmod`."""

    lastmod: datetime
    again: bool
    """It was a page before, and the last crawl fetched it again."""
    changed: bool
    """It had other content then."""


_as_sitemap: Final = by_name(ReadSitemap)


def of_domain(connection: psycopg.Connection, domain_id: int, *, limit: int = SHOWN) -> list[ReadSitemap]:
    """Return sitemaps that were read from a domain: those with a problem first, then the newest."""
    return _read(connection, _OF_DOMAIN, domain=domain_id, limit=limit)


def of_job(connection: psycopg.Connection, job_id: int, *, limit: int = SHOWN) -> list[ReadSitemap]:
    """Return sitemaps that a job has read, in the same order."""
    return _read(connection, _OF_JOB, job=job_id, limit=limit)


def of_url(connection: psycopg.Connection, domain_id: int, job_id: int, url_key: bytes) -> ReadSitemap | None:
    """Return the sitemap at a URL; None: the job has read none there."""
    return next(iter(_read(connection, _OF_URL, domain=domain_id, job=job_id, key=url_key)), None)


def listed(connection: psycopg.Connection, domain_ids: Sequence[int], *, job_id: int | None = None) -> tuple[int, int]:
    """Return how many URLs the sitemaps of these domains listed when they were read last, and how many sitemaps these are. None: of any
    job."""
    row = connection.execute(_LISTED, {"domains": list(domain_ids), "job": job_id}).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def crawls_of(connection: psycopg.Connection, domain_id: int) -> list[JobCrawls]:
    """Return the last two crawls of each job that has read sitemaps of a domain and was crawled twice, the newest reading first."""
    with connection.cursor(row_factory=class_row(JobCrawls)) as cursor:
        return cursor.execute(_CRAWLS, {"domain": domain_id, "jobs": _JOBS}).fetchall()


def dated_pages(connection: psycopg.Connection, domain_id: int, crawls: JobCrawls) -> list[DatedPage]:
    """Return a sample of the pages of a domain with a `lastmod`, and what they did in the last crawl."""
    parameters = {"domain": domain_id, "job": crawls.job_id, "crawl": crawls.crawl_id, "started": crawls.started_at}
    with connection.cursor(row_factory=class_row(DatedPage)) as cursor:
        return cursor.execute(_SAMPLE, parameters | {"sample": SAMPLE, "dated": DATED}).fetchall()


def _read(connection: psycopg.Connection, query: str, **parameters: object) -> list[ReadSitemap]:
    with connection.cursor(row_factory=_as_sitemap) as cursor:
        return cursor.execute(query, parameters).fetchall()
