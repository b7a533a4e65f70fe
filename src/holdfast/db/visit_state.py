"""What a visit has to know of its domain before its first request, and the robots.txt that it keeps for the next one.

The rule: times go out and come in as seconds from now, by the database's clock. A worker's own clock never reaches the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import TupleRow

from holdfast.model.batch import Clocks
from holdfast.model.domain import Status
from holdfast.model.proxy import ProxyWishes
from holdfast.model.request_secrets import SealedSecret
from holdfast.store import claims, proxy_use, request_secrets
from holdfast.store.proxy_use import MappingRow

# A circuit is forgotten an hour after the last request (003 §19).
_LOAD: Final = """
SELECT id, domain, parent_domain, base_url, status, crawl_delay_seconds, max_concurrent_requests, user_agent,
       CASE WHEN max_pages_is_limit THEN max_pages_per_run END,
       consecutive_error_count, refusal_streak, pages_crawled, maintenance_window, clock_timestamp(),
       proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky,
       extract(epoch FROM next_request_at - clock_timestamp())::float8,
       GREATEST(extract(epoch FROM back_off_until - clock_timestamp()), 0)::float8,
       back_off_level, response_ms, best_response_ms,
       CASE WHEN circuit.remembered THEN circuit_failures ELSE 0 END, CASE WHEN circuit.remembered THEN circuit_successes ELSE 0 END,
       CASE WHEN circuit.remembered THEN extract(epoch FROM circuit_open_until - clock_timestamp())::float8 END,
       pace_delay_seconds::float8, pace_delay_source, CASE WHEN parser_chosen THEN parser_name END, strip_params, settings_version
FROM domains CROSS JOIN LATERAL (
    SELECT COALESCE(GREATEST(next_request_at, circuit_open_until) > clock_timestamp() - interval '1 hour', true) AS remembered) circuit
WHERE id = ANY(%(ids)s)
"""
_TEMPLATES: Final = """
SELECT d.id, t.template, t.urls FROM unnest(%(ids)s::bigint[]) AS d(id), LATERAL (
    SELECT template, urls FROM url_templates WHERE domain_id = d.id AND job_id = %(job)s ORDER BY urls DESC LIMIT %(most)s) t
"""
MOST_TEMPLATES: Final = 2000
"""Of a domain that a visit knows."""
_SAID: Final = """
SELECT maintenance_window, clock_timestamp(), proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky
FROM (SELECT %(id)s::bigint AS id) wanted LEFT JOIN domains USING (id)
"""
_ROBOTS: Final = """
SELECT domain_id, robots_txt_url, status, robots_txt_content, reachable,
       COALESCE(extract(epoch FROM expires_at - clock_timestamp()), 0)::float8, problem
FROM domain_robots WHERE domain_id = ANY(%(ids)s)
"""
_SAVE_ROBOTS: Final = """
INSERT INTO domain_robots AS r (domain_id, robots_txt_url, status, robots_txt_content, reachable, problem, robots_txt_last_fetched,
                                expires_at)
VALUES (%(id)s, %(url)s, %(status)s, %(content)s, %(reachable)s, %(problem)s, clock_timestamp(),
        clock_timestamp() + %(ttl)s * interval '1 second')
ON CONFLICT (domain_id, robots_txt_url) DO UPDATE SET
    status = excluded.status, reachable = excluded.reachable, problem = excluded.problem, expires_at = excluded.expires_at,
    robots_txt_content = CASE WHEN excluded.reachable THEN excluded.robots_txt_content ELSE r.robots_txt_content END,
    robots_txt_last_fetched = excluded.robots_txt_last_fetched
"""


@dataclass(frozen=True, slots=True)
class StoredRobots:
    """The robots.txt of one origin, as it was had the last time."""

    status: int | None
    content: str | None
    """None: there is none, which allows everything; or, not reachable, there never was one."""
    reachable: bool
    fresh_for: float
    """Seconds until it is to be asked for again; negative: it is too old."""
    problem: str | None


class Said(NamedTuple):
    """What people may change of a domain while it is visited, and what time it is."""

    window: str | None
    """When it is to be left alone, as people wrote it; None: it never is."""
    now: datetime
    proxies: ProxyWishes


@dataclass(frozen=True, slots=True)
class VisitState:
    """A domain as its holder finds it."""

    domain_id: int
    domain: str
    parent_domain: str
    base_url: str
    status: Status
    crawl_delay: float
    max_concurrent: int
    user_agent: str | None
    page_limit: int | None
    """Pages of a crawl, if a person limited them for this domain."""
    consecutive_errors: int
    """Of every kind."""
    refusal_streak: int
    """Refusals and failures to reach it in a row."""
    pages_crawled: int
    said: Said
    clocks: Clocks
    strip_params: tuple[str, ...] = ()
    """Parameters to drop from its URLs."""
    templates: dict[int, int] = field(default_factory=dict)
    """URLs that the job knows there by their template: the biggest templates."""
    robots: dict[str, StoredRobots] = field(default_factory=dict)
    """By the address of the file: each origin of a domain has its own."""
    pool: list[MappingRow] = field(default_factory=list)
    """Its proxies, and those that it has used."""
    parser: str | None = None
    """The parser that a person set for its pages; None: none, the default is for tasks only."""
    settings_version: int = 0
    """Rises with every edit by people; a visit that began under another one ends."""
    secrets: list[SealedSecret] = field(default_factory=list)
    """Headers, cookies and credentials, the job's behind the domain's."""


def load(connection: psycopg.Connection, domain_ids: Sequence[int], job_id: int | None = None) -> dict[int, VisitState]:
    """The state of these domains, by id, for a visit of this job.

    Before: the caller holds them, so only people change it meanwhile."""
    parameters = {"ids": list(domain_ids)}
    states = {row[0]: _state(row) for row in connection.execute(_LOAD, parameters)}
    for domain_id, url, *facts in connection.execute(_ROBOTS, parameters):
        if domain_id in states:
            states[domain_id].robots[url] = StoredRobots(*facts)
    for domain_id, mappings in proxy_use.pools(connection, domain_ids).items():
        if domain_id in states:
            states[domain_id].pool.extend(mappings)
    for domain_id, secret in request_secrets.of_domains(connection, domain_ids):
        if domain_id in states:
            states[domain_id].secrets.append(secret)
    if job_id is not None and (of_job := request_secrets.of_job(connection, job_id)):
        for state in states.values():
            state.secrets.extend(of_job)
    if job_id is not None:
        wanted = parameters | {"job": job_id, "most": MOST_TEMPLATES}
        for domain_id, template, urls in connection.execute(_TEMPLATES, wanted):
            if domain_id in states:
                states[domain_id].templates[template] = urls
    return states


def said(connection: psycopg.Connection, domain_id: int) -> Said:
    """What people say of a domain by now; of one that is gone, nothing."""
    row = connection.execute(_SAID, {"id": domain_id}).fetchone()
    assert row is not None  # noqa: S101 — one is asked for
    return Said(row[0], row[1], ProxyWishes(*row[2:]))


def save_robots(
    connection: psycopg.Connection,
    *,
    worker: str,
    domain_id: int,
    epoch: int,
    url: str,
    status: int | None,
    content: str | None,
    reachable: bool,
    problem: str | None,
    ttl: float,
) -> bool:
    """Keep what came of asking for a robots.txt; False, with nothing written, if `worker` no longer holds the domain.

    After: the file is known until `ttl` seconds from now. One that could not be had leaves the content of the time before.
    """
    with connection.transaction():
        if not claims.fence(connection, worker=worker, held=[(domain_id, epoch)]):
            return False
        connection.execute(
            _SAVE_ROBOTS,
            {
                "id": domain_id,
                "url": url,
                "status": status,
                "content": content,
                "reachable": reachable,
                "problem": problem,
                "ttl": ttl,
            },
        )
    return True


def _state(row: TupleRow) -> VisitState:
    (
        domain_id,
        domain,
        parent,
        base,
        status,
        delay,
        concurrent,
        agent,
        most,
        errors,
        streak,
        pages,
        window,
        now,
        *others,
    ) = row
    wishes, (next_request, back_off, *clocks, parser, strip, version) = others[:5], others[5:]
    return VisitState(
        domain_id,
        domain,
        parent,
        base,
        Status(status),
        delay,
        concurrent,
        agent,
        most,
        errors,
        streak,
        pages,
        Said(window, now, ProxyWishes(*wishes)),
        Clocks(next_request or 0.0, back_off or 0.0, *clocks),
        tuple(strip or ()),
        parser=parser,
        settings_version=version,
    )
