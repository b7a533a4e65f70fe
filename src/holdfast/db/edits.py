"""Edits by people that concern a worker at this moment: of the domains it holds, the jobs it serves, and all proxies.

The rule: an edit raises `settings_version` and sends a notice in its own transaction (triggers of revision 0023, `of_domains`,
`of_job`). A notice may be lost; the versions are not, so a worker that compares them once a second misses nothing. One statement for
everything that it holds.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import psycopg

_LOOK: Final = """
SELECT 'domain', d.id, d.settings_version::bigint, d.crawl_delay_seconds::float8,
       EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id AND w.retry IS NOT NULL AND w.again_after = '')
FROM domains d WHERE d.id = ANY(%(domains)s::bigint[])
UNION ALL
SELECT 'job', j.id, j.settings_version, NULL, j.state IN ('pending', 'processing')
FROM crawl_jobs j WHERE j.id = ANY(%(jobs)s::bigint[])
UNION ALL
SELECT 'proxies', COALESCE(max(id), 0), COALESCE(sum(version), 0)::bigint, count(*)::float8, true
FROM proxies WHERE %(proxies)s
"""
_DOMAINS: Final = "UPDATE domains SET settings_version = settings_version + 1 WHERE id = ANY(%s)"
_JOB: Final = "UPDATE crawl_jobs SET settings_version = settings_version + 1 WHERE id = %s"


class DomainNow(NamedTuple):
    """A held domain."""

    settings_version: int
    crawl_delay: float
    retry: bool
    """A person wants it to be tried again; its holder has to let go of it for that."""


class JobNow(NamedTuple):
    """A served job."""

    settings_version: int
    runnable: bool
    """False: paused, ended, cancelled or deleted."""


class Now(NamedTuple):
    """The state of everything that was asked for; what is gone is left out."""

    domains: dict[int, DomainNow]
    jobs: dict[int, JobNow]
    proxies: tuple[int, int, int]
    """Differs after each edit of a proxy; all zero if it was not asked for."""


def look(
    connection: psycopg.Connection, domain_ids: Collection[int], job_ids: Collection[int], *, proxies: bool
) -> Now:
    """The present versions of these domains and jobs and, on request, of all proxies."""
    now = Now({}, {}, (0, 0, 0))
    parameters = {"domains": list(domain_ids), "jobs": list(job_ids), "proxies": proxies}
    for kind, key, version, number, flag in connection.execute(_LOOK, parameters):
        if kind == "domain":
            now.domains[key] = DomainNow(version, number, flag)
        elif kind == "job":
            now.jobs[key] = JobNow(version, flag)
        else:
            now = now._replace(proxies=(key, version, int(number)))
    return now


def of_domains(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Make visits of these domains begin anew: something was edited that no column of theirs holds.

    Before: the domain rows are locked by this transaction.
    """
    connection.execute(_DOMAINS, (list(domain_ids),))


def of_job(connection: psycopg.Connection, job_id: int) -> None:
    """The same for all visits of a job."""
    connection.execute(_JOB, (job_id,))
