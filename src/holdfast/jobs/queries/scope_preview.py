"""What other rules would do to the stored URLs of a job, counted without changing anything.

The rule: reads only, a few thousand rows a statement, each in a transaction of its own, within a bound in time. Up to a million waiting
URLs are all read. Of more a part is read: keys are hashes, so those below a bound are a fair sample of every domain.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import psycopg

from holdfast.db.judging import RulesInForce, reached, sites
from holdfast.jobs.records import ScopePreview
from holdfast.model.scope import DENIED_BY_RULES

EXACT_ROWS: Final = 1_000_000
"""Waiting URLs up to which all are read."""
MAX_SECONDS: Final = 20.0
"""After this time the rest is estimated."""
CHUNK: Final = 500
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


def preview(connection: psycopg.Connection, job_id: int, rules: RulesInForce) -> ScopePreview:
    """Count the URLs of a job that these rules would remove and return.

    Before: no transaction is open.
    """
    waiting, denied = connection.execute(_TOTALS, {"job": job_id}).fetchone() or (0, 0)
    fraction = min(1.0, EXACT_ROWS / waiting) if waiting else 1.0
    deadline = time.monotonic() + MAX_SECONDS
    counts = _Counts()
    for ids in _groups(connection, job_id):
        reach = reached(connection, job_id, ids, rules.scope.scope)
        judges = {
            domain_id: rules.judge(site, in_reach=domain_id in reach)
            for domain_id, site in sites(connection, ids).items()
        }
        for domain_id, url, depth, waits in _urls(connection, job_id, ids, fraction):
            if domain_id in judges:
                counts.add(url, waits=waits, fits=judges[domain_id].judge(url, depth) is None)
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            break
    exact = fraction == 1 and time.monotonic() <= deadline
    scale = 1.0 if exact else waiting / max(1, counts.waiting)
    removes, returns = round(counts.removes * scale), min(denied, round(counts.returns * scale))
    return ScopePreview(removes, returns, exact, counts.removed_urls, counts.returned_urls)


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
