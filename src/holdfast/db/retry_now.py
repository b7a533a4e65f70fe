"""Another attempt at a person's request: what failed before is tried again at once.

The rule: only a person (a command, an API call) asks, never a schedule, and each domain is tried at most every 5 s, by the database's
clock. Nothing of a domain that a worker holds is changed here: the request is a wake, which the holder folds at its release
(`readiness.fold_retries`). What the server asked for (Retry-After) and a block stay.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg

from holdfast.db import claimable, listen_notify
from holdfast.model.job import JobSpec
from holdfast.model.outcome import Outcome

CHUNK: Final = 500
PAUSE: Final = timedelta(seconds=5)
"""Between two attempts on a domain that people ask for."""
_NAMED: Final = 20
"""Domains that are named for keeping a Retry-After."""

# Domains of the job where something failed. Those that are held and new to the job are known by their wakes only.
_CANDIDATES: Final = """
SELECT d.id FROM domains d
JOIN (SELECT domain_id, failed, denied, not_before, pages = 0 AND denied > 0 AS in_vain FROM job_domains WHERE job_id = %(job)s
      UNION ALL SELECT DISTINCT domain_id, 0::bigint, 0::bigint, NULL::timestamptz, false FROM domain_wakes w
      WHERE job_id = %(job)s AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = w.domain_id AND jd.job_id = w.job_id)) jd
    ON jd.domain_id = d.id
WHERE jd.failed > 0 OR jd.not_before > clock_timestamp() OR d.status = 'unreachable' OR d.circuit_open_until IS NOT NULL
   OR (%(no_robots)s AND (jd.denied > 0 OR (d.status = 'blocked' AND d.block_reason_code = 'robots_denied')))
   OR (%(logged_in)s AND d.status = 'blocked' AND d.block_reason_code = 'login_required')
   OR EXISTS (SELECT FROM domain_robots r WHERE r.domain_id = d.id AND NOT r.reachable AND r.expires_at > clock_timestamp())
   OR (jd.in_vain AND EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = d.id AND f.job_id = %(job)s AND f.state = 'denied'
                             AND f.reason LIKE %(no_https)s))
ORDER BY d.id
"""
_LOCK: Final = """
SELECT id, claimed_by IS NULL FROM domains WHERE id = ANY(%(ids)s) AND removed_at IS NULL ORDER BY id FOR NO KEY UPDATE
"""
_STAMP: Final = """
UPDATE domains SET retried_at = GREATEST(clock_timestamp(), retried_at + %(pause)s)
WHERE id = ANY(%(ids)s) AND (retried_at IS NULL OR retried_at <= clock_timestamp())
"""
# Other jobs on these domains only stop waiting: what failed for them is theirs to ask for.
_ASK: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, retry)
SELECT id, %(job)s, 0, ''::bytea, %(causes)s::text[] FROM unnest(%(ids)s::bigint[]) AS t(id)
UNION ALL
SELECT jd.domain_id, jd.job_id, 0, ''::bytea, '{}' FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id <> %(job)s AND jd.state = 'open' AND jd.waiting > 0
  AND j.state <> 'cancelled'
ORDER BY 1, 2
"""
_HELD_BACK: Final = """
SELECT domain, back_off_until FROM domains WHERE id = ANY(%(ids)s) AND back_off_until > clock_timestamp() + %(pause)s
ORDER BY back_off_until DESC, domain LIMIT %(named)s
"""

_WANTS_LOGIN: Final = """
SELECT EXISTS (SELECT FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
               WHERE jd.job_id = %(job)s AND d.status = 'blocked' AND d.block_reason_code = 'login_required')
    OR EXISTS (SELECT FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
               WHERE jd.job_id = %(job)s AND jd.failed > 0 AND f.state = 'failed' AND f.reason LIKE %(wall)s)
"""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A domain that is not tried yet, because its server asked for a pause."""

    domain: str
    until: datetime


def causes(spec: JobSpec, *, logged_in: bool = False) -> frozenset[str]:
    """The reasons of a job's URLs that are worth another attempt under this spec: the network's, and those that an option removes.

    `logged_in`: a header, a cookie or a password was given for its sites.
    """
    removed = {str(Outcome.ADDRESS_REFUSED)} if spec.allow_private else set()
    removed |= {str(Outcome.LOGIN_WALL)} if logged_in else set()
    return claimable.NETWORK_REASONS | removed | (set() if spec.robots else {str(Outcome.ROBOTS_DENIED)})


def ask(connection: psycopg.Connection, job_id: int, spec: JobSpec, *, logged_in: bool = False) -> list[HeldBack]:
    """Try the domains of a job again where something failed; some of those that wait for what their server asked for.

    Before: the job's new seeds are in the store. No transaction is open, or one (of a request with an idempotency key) that made the
    job: no other process knows its URLs, so it waits for domains, in the order of their ids, while none waits for it; it keeps them
    locked until it commits, and the 5 s count from when each was locked. After: each such domain has a wake that says so, folded
    already where no worker holds the domain; a worker that holds one lets go of it within about a second.
    """
    wanted = causes(spec, logged_in=logged_in)
    parameters = {
        "job": job_id,
        "no_robots": not spec.robots,
        "logged_in": logged_in,
        "no_https": f"{Outcome.NO_HTTPS}:%",
    }
    ids = [row[0] for row in connection.execute(_CANDIDATES, parameters).fetchall()]
    for first in range(0, len(ids), CHUNK):
        _ask(connection, ids[first : first + CHUNK], job_id, wanted)
    found = connection.execute(_HELD_BACK, {"ids": ids, "pause": PAUSE, "named": _NAMED})
    return [HeldBack(*row) for row in found]


def wants_login(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether a domain of the job is blocked because it wants a login, or a URL of it was not crawled for that."""
    row = connection.execute(_WANTS_LOGIN, {"job": job_id, "wall": f"{Outcome.LOGIN_WALL}%"}).fetchone()
    return bool(row and row[0])


def stamp(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """A person asks for another attempt now. Before: the domain rows are locked by this transaction."""
    connection.execute(_STAMP, {"ids": list(domain_ids), "pause": PAUSE})


def _ask(connection: psycopg.Connection, domain_ids: Sequence[int], job_id: int, wanted: Collection[str]) -> None:
    with connection.transaction():
        rows = connection.execute(_LOCK, {"ids": list(domain_ids)}).fetchall()
        ids = [row[0] for row in rows]
        free = [domain_id for domain_id, is_free in rows if is_free]
        stamp(connection, ids)
        connection.execute(_ASK, {"ids": ids, "job": job_id, "causes": sorted(wanted)})
        claimable.fold_wakes(connection, free)
        claimable.update_ready(connection, free)
        if len(free) < len(ids):
            listen_notify.notify(connection, job_id)
