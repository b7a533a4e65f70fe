"""What other rules would do to the stored URLs of a job, counted without changing anything.

The rule: reads only, a few thousand rows a statement, each in a transaction of its own, within a bound in time. Up to a million waiting
URLs are all read. Of more a part is read: keys are hashes, so those below a bound are a fair sample of every domain. A page that must not
wait for that shows an estimate by a sample of the table.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import psycopg

from holdfast.db.judging import RulesInForce, reached, sites
from holdfast.jobs.records import ScopePreview
from holdfast.model.scope import DENIED_BY_RULES, StoredUrlJudge

EXACT_ROWS: Final = 1_000_000
"""Waiting URLs up to which all are read."""
MAX_SECONDS: Final = 20.0
"""After this time the rest is estimated."""
SAMPLE: Final = 4_000
"""URLs of the job that an estimate judges."""
READ: Final = 300_000
"""URLs of all jobs that an estimate may read."""
SAMPLE_SECONDS: Final = 0.1
"""Time of an estimate by keys, where the sample of the table has nothing of the job."""
CHUNK: Final = 20_000
"""Domains that one statement reads: each of them sorts those of the job anew."""
ROWS: Final = 10_000
"""URLs that one statement reads."""
_SAMPLES: Final = 10
_KEYS: Final = 2**128

_TOTALS: Final = (
    "SELECT COALESCE(sum(waiting), 0)::bigint, COALESCE(sum(denied), 0)::bigint FROM job_domains WHERE job_id = %(job)s"
)
_DOMAINS: Final = """
SELECT domain_id, waiting + denied FROM job_domains
WHERE job_id = %(job)s AND domain_id > %(after)s AND waiting + denied > 0 ORDER BY domain_id LIMIT %(chunk)s
"""
_JUDGED: Final = """
SELECT f.domain_id, f.url_key, f.url, f.depth, f.state = 'waiting' FROM url_frontier f
WHERE f.job_id = %(job)s AND f.url_key > %(after)s AND f.url_key <= %(bound)s
  AND (f.state = 'waiting' OR (f.state = 'denied' AND split_part(f.reason, ':', 1) = ANY(%(denied)s)))
"""
_SAMPLED: Final = """
SELECT f.domain_id, f.url, f.depth, f.state = 'waiting' FROM url_frontier f TABLESAMPLE SYSTEM (%(percent)s)
WHERE f.job_id = %(job)s AND (f.state = 'waiting' OR (f.state = 'denied' AND split_part(f.reason, ':', 1) = ANY(%(denied)s)))
"""
_KNOWN: Final = "SELECT reltuples FROM pg_class WHERE oid = 'url_frontier'::regclass"
_OF_ONE: Final = f"{_JUDGED} AND f.domain_id = %(one)s ORDER BY f.url_key LIMIT %(rows)s"
_OF_SOME: Final = f"{_JUDGED} AND f.domain_id = ANY(%(ids)s)"


@dataclass(slots=True)
class _Counts:
    waiting: int = 0
    """URLs that were read and wait."""
    removes: int = 0
    returns: int = 0
    removed_urls: list[str] = field(default_factory=list)
    returned_urls: list[str] = field(default_factory=list)

    def add(self, url: str, *, waits: bool, fits: bool) -> None:
        self.waiting += waits
        if waits and not fits:
            self.removes += 1
            samples = self.removed_urls
        elif fits and not waits:
            self.returns += 1
            samples = self.returned_urls
        else:
            return
        if len(samples) < _SAMPLES:
            samples.append(url)

    def result(self, waiting: int, denied: int, *, exact: bool) -> ScopePreview:
        """The preview; scaled to all URLs that wait, and those that are denied, if only a part was read."""
        scale = 1.0 if exact else waiting / max(1, self.waiting)
        removes, returns = round(self.removes * scale), min(denied, round(self.returns * scale))
        return ScopePreview(removes, returns, exact, self.removed_urls, self.returned_urls)


def preview(
    connection: psycopg.Connection,
    job_id: int,
    rules: RulesInForce,
    *,
    rows: int | None = None,
    seconds: float | None = None,
) -> ScopePreview:
    """Count the URLs of a job that these rules would remove and return: exactly up to `rows` waiting URLs, and within these `seconds`;
    None: EXACT_ROWS and MAX_SECONDS.

    Before: no transaction is open.
    """
    waiting, denied = _totals(connection, job_id)
    fraction = min(1.0, (EXACT_ROWS if rows is None else rows) / waiting) if waiting else 1.0
    deadline = time.monotonic() + (MAX_SECONDS if seconds is None else seconds)
    counts = _Counts()
    for ids in _groups(connection, job_id):
        judges = _judges(connection, job_id, ids, rules)
        for domain_id, url, depth, waits in _urls(connection, job_id, ids, fraction):
            if domain_id in judges:
                counts.add(url, waits=waits, fits=judges[domain_id].judge(url, depth) is None)
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            break
    return counts.result(waiting, denied, exact=fraction == 1 and time.monotonic() <= deadline)


def estimate(connection: psycopg.Connection, job_id: int, rules: RulesInForce) -> ScopePreview:
    """Estimate what `preview` counts from a sample of the table, in about a tenth of a second.

    Before: no transaction is open.
    """
    waiting, denied = _totals(connection, job_id)
    ((known,),) = connection.execute(_KNOWN).fetchall()
    share = min(1.0, SAMPLE / max(1, waiting + denied), READ / max(1.0, known))
    values = {"job": job_id, "percent": 100 * share, "denied": sorted(DENIED_BY_RULES)}
    found = connection.execute(_SAMPLED, values, prepare=False).fetchall()
    if not any(waits for *_, waits in found):
        return replace(preview(connection, job_id, rules, rows=SAMPLE, seconds=SAMPLE_SECONDS), exact=False)
    counts = _Counts()
    judges = _judges(connection, job_id, sorted({row[0] for row in found}), rules)
    for domain_id, url, depth, waits in found:
        if domain_id in judges:
            counts.add(url, waits=waits, fits=judges[domain_id].judge(url, depth) is None)
    return counts.result(waiting, denied, exact=False)


def _totals(connection: psycopg.Connection, job_id: int) -> tuple[int, int]:
    """The URLs of a job that wait, and those that are denied."""
    ((waiting, denied),) = connection.execute(_TOTALS, {"job": job_id}).fetchall()
    return waiting, denied


def _judges(
    connection: psycopg.Connection, job_id: int, ids: list[int], rules: RulesInForce
) -> dict[int, StoredUrlJudge]:
    """The judges of the URLs of these domains, by domain."""
    reach = reached(connection, job_id, ids, rules.scope.scope)
    return {
        domain_id: rules.judge(site, in_reach=domain_id in reach) for domain_id, site in sites(connection, ids).items()
    }


def _groups(connection: psycopg.Connection, job_id: int) -> Iterator[list[int]]:
    """The domains of a job, in groups with up to ROWS URLs together, or one domain with more."""
    after = 0
    while True:
        found = connection.execute(_DOMAINS, {"job": job_id, "after": after, "chunk": CHUNK}).fetchall()
        group: list[int] = []
        room = ROWS
        for domain_id, urls in found:
            if group and urls > room:
                yield group
                group, room = [], ROWS
            group.append(domain_id)
            room -= urls
        if group:
            yield group
        if len(found) < CHUNK:
            return
        after = found[-1][0]


def _urls(
    connection: psycopg.Connection, job_id: int, ids: list[int], fraction: float
) -> Iterator[tuple[int, str, int, bool]]:
    """Domain, address, depth and whether it waits, of this fraction of the URLs on these domains that the rules decide about."""
    bound = min(int(fraction * _KEYS), _KEYS - 1).to_bytes(16)
    key = {"job": job_id, "bound": bound, "after": b"", "denied": sorted(DENIED_BY_RULES)}
    if len(ids) > 1:
        for domain_id, _, *url in connection.execute(_OF_SOME, key | {"ids": ids}).fetchall():
            yield domain_id, url[0], url[1], url[2]
        return
    while True:
        rows = connection.execute(_OF_ONE, key | {"one": ids[0], "rows": ROWS}).fetchall()
        for domain_id, _, *url in rows:
            yield domain_id, url[0], url[1], url[2]
        if len(rows) < ROWS:
            return
        key["after"] = rows[-1][1]
