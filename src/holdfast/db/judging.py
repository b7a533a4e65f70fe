"""Judge the stored URLs of a job by its present rules, after an edit of them.

The rule: the caller holds the lock of the domain row, and no visit of it has results that are not committed. URLs that wait and do not fit
become denied, with the version of the rules; URLs that the rules left out and that fit now wait again. URLs of other hosts, which were
denied where their link was found, wait there, too, until the visit that takes them puts them into the frontier of their own domain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import psycopg

from holdfast.db import array_params
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.job import JobSpec, Scope
from holdfast.model.scope import DENIED_BY_RULES, ScopeRules, StoredUrlJudge, compile_rules

_SEEDED: Final = """
COALESCE(jd.seeded, EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.depth = 0))
"""
_REACHED: Final = {
    Scope.ANY: "SELECT d.id FROM domains d WHERE d.id = ANY(%(ids)s)",
    Scope.HOST: f"""
SELECT jd.domain_id FROM job_domains jd WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id = %(job)s AND {_SEEDED}
""",  # noqa: S608 — a constant
    # The two halves of the condition are what the indexes of `domains` hold.
    Scope.DOMAIN: f"""
SELECT d.id FROM domains d WHERE d.id = ANY(%(ids)s) AND EXISTS (
    SELECT FROM domains s JOIN job_domains jd ON jd.domain_id = s.id AND jd.job_id = %(job)s
    WHERE (s.domain = d.parent_domain OR (s.parent_domain = d.parent_domain AND s.parent_domain <> s.domain)) AND {_SEEDED})
""",  # noqa: S608 — a constant
}
_REMEMBER_SEEDED: Final = f"""
UPDATE job_domains jd SET seeded = {_SEEDED} WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s AND jd.seeded IS NULL
"""  # noqa: S608 — a constant
_RULES: Final = """
SELECT j.rules_version, r.rules, r.depth_limit, r.registrable
FROM crawl_jobs j JOIN job_rules r ON r.job_id = j.id AND r.version = j.rules_version WHERE j.id = %(job)s AND j.deleted_at IS NULL
"""
_SITES: Final = "SELECT id, domain, parent_domain, base_url FROM domains WHERE id = ANY(%(ids)s)"
_CHUNK: Final = """
SELECT url_key, url, depth, state = 'waiting' FROM url_frontier
WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key > %(after)s AND resource IS NULL
  AND (state = 'waiting' OR (state = 'denied' AND split_part(reason, ':', 1) = ANY(%(denied)s))) ORDER BY url_key LIMIT %(chunk)s
"""
_REMOVE: Final = """
UPDATE url_frontier f SET state = 'denied', reason = u.reason, not_before = NULL, settled_at = clock_timestamp()
FROM unnest(%(keys)s::bytea[], %(reasons)s::text[]) AS u(url_key, reason)
WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = u.url_key AND f.state = 'waiting'
"""
_RETURN: Final = """
UPDATE url_frontier f SET state = 'waiting', reason = NULL, not_before = NULL
WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = ANY(%(keys)s::bytea[]) AND f.state = 'denied'
"""
_COUNT: Final = """
SELECT add_counts(%(domain)s, %(job)s, more_waiting => %(returned)s - %(removed)s, more_denied => %(removed)s - %(returned)s)
"""


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """The rules by which URLs of a job are judged."""

    version: int
    scope: ScopeRules
    max_depth: int
    sites: SiteCache

    def judge(self, site: Site, *, in_reach: bool) -> StoredUrlJudge:
        """The judge of one domain's URLs."""
        return StoredUrlJudge(
            self.scope, site, self.sites, version=self.version, max_depth=self.max_depth, in_reach=in_reach
        )


class JudgedChunk(NamedTuple):
    """The result of judging a chunk of URLs."""

    seen: int
    last: bytes | None
    """The last key; None: there was none."""
    removed: int = 0
    returned: int = 0


def present_rules(connection: psycopg.Connection, job_id: int) -> RulesInForce | None:
    """The present rules of a job; None: they were never edited, or the job was deleted."""
    row = connection.execute(_RULES, {"job": job_id}).fetchone()
    if row is None:
        return None
    version, rules, depth_limit, registrable = row
    return RulesInForce(
        version, compile_rules(JobSpec.from_json(rules)), depth_limit, SiteCache(registrable=registrable)
    )


def reached(connection: psycopg.Connection, job_id: int, domain_ids: Iterable[int], scope: Scope) -> set[int]:
    """Those of these domains that the scope reaches: from a domain with a seed of the job, or where a seed was redirected to."""
    return {row[0] for row in connection.execute(_REACHED[scope], {"ids": list(domain_ids), "job": job_id})}


def sites(connection: psycopg.Connection, domain_ids: Sequence[int]) -> dict[int, Site]:
    """The names of domains, by id."""
    return {row[0]: Site(*row[1:]) for row in connection.execute(_SITES, {"ids": list(domain_ids)})}


def judge_chunk(connection: psycopg.Connection, domain_id: int, job_id: int, after: bytes, chunk: int) -> JudgedChunk:
    """Judge up to `chunk` URLs of a job on a domain, behind the key `after`, by the job's present rules.

    Before: the domain row is locked by this transaction, and its wakes with counts are folded. After: the counters are right; the caller
    updates `ready`.
    """
    rules = present_rules(connection, job_id)
    site = sites(connection, [domain_id]).get(domain_id)
    if rules is None or site is None:
        return JudgedChunk(0, None)
    key = {"domain": domain_id, "job": job_id}
    connection.execute(_REMEMBER_SEEDED, key)
    judge = rules.judge(site, in_reach=bool(reached(connection, job_id, [domain_id], rules.scope.scope)))
    rows = connection.execute(
        _CHUNK, key | {"after": after, "chunk": chunk, "denied": sorted(DENIED_BY_RULES)}
    ).fetchall()
    removed: dict[bytes, str] = {}
    fitting: list[bytes] = []
    for url_key, url, depth, waits in rows:
        denial = judge.judge(url, depth)
        if denial is not None and waits:
            removed[url_key] = f"{denial.outcome}: {denial.reason}"
        elif denial is None and not waits:
            fitting.append(url_key)
    gone = back = 0
    if removed:
        parameters = {"keys": array_params.keys(removed), "reasons": list(removed.values())}
        gone = connection.execute(_REMOVE, key | parameters).rowcount
    if fitting:
        back = connection.execute(_RETURN, key | {"keys": array_params.keys(fitting)}).rowcount
    if gone or back:
        connection.execute(_COUNT, key | {"removed": gone, "returned": back})
    return JudgedChunk(len(rows), rows[-1][0] if rows else None, gone, back)
