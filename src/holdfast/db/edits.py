"""Detection of edits that concern a running worker: of the domains it holds, the jobs it serves, and all proxies.

The rule: an edit raises `settings_version` and sends a NOTIFY in its own transaction (trigger `settings_are_edited`, `touch_domains`,
`touch_job`). A notification may be lost; the versions are not, so a worker that compares them once a second misses nothing. One
statement for everything that it holds.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import psycopg

_LOOK: Final = """
SELECT 'domain', d.id, d.settings_version::bigint, d.crawl_delay_seconds::float8,
       EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id AND w.retry IS NOT NULL AND w.again_after = '')
FROM domains d WHERE d.id = ANY(%(domains)s::bigint[])
UNION ALL
SELECT 'job', j.id, j.settings_version, NULL, job_is_runnable(j)
FROM crawl_jobs j WHERE j.id = ANY(%(jobs)s::bigint[])
UNION ALL
SELECT 'proxies', COALESCE(max(id), 0), COALESCE(sum(version), 0)::bigint, count(*)::float8, true
FROM proxies WHERE %(proxies)s
"""
_DOMAINS: Final = "UPDATE domains SET settings_version = settings_version + 1 WHERE id = ANY(%s)"
_JOB: Final = "UPDATE crawl_jobs SET settings_version = settings_version + 1 WHERE id = %s"


class DomainVersion(NamedTuple):
    """The version of a held domain's settings."""

    settings_version: int
    crawl_delay: float
    retry: bool
    """The operator asked for a retry; the holder has to release the domain for that."""


class JobVersion(NamedTuple):
    """The version of a served job's settings."""

    settings_version: int
    runnable: bool
    """False: paused, ended, cancelled or deleted."""


class Versions(NamedTuple):
    """The versions of the requested domains, jobs and proxies; deleted ones are left out."""

    domains: dict[int, DomainVersion]
    jobs: dict[int, JobVersion]
    proxies: tuple[int, int, int]
    """A value that differs after each edit of a proxy; all zero if it was not requested."""


def current_versions(
    connection: psycopg.Connection, domain_ids: Collection[int], job_ids: Collection[int], *, proxies: bool
) -> Versions:
    """The present versions of these domains and jobs and, on request, of all proxies."""
    now = Versions({}, {}, (0, 0, 0))
    parameters = {"domains": list(domain_ids), "jobs": list(job_ids), "proxies": proxies}
    for kind, key, version, number, flag in connection.execute(_LOOK, parameters):
        if kind == "domain":
            now.domains[key] = DomainVersion(version, number, flag)
        elif kind == "job":
            now.jobs[key] = JobVersion(version, flag)
        else:
            now = now._replace(proxies=(key, version, int(number)))
    return now


def touch_domains(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Raise the version of these domains, so that their visits restart: for edits outside their own columns.

    Before: the domain rows are locked by this transaction.
    """
    connection.execute(_DOMAINS, (list(domain_ids),))


def touch_job(connection: psycopg.Connection, job_id: int) -> None:
    """Raise the version of a job, so that its visits restart."""
    connection.execute(_JOB, (job_id,))
