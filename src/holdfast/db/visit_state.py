"""The state of a domain that a visit loads before its first request, and the robots.txt stored for the next visit.

The rule: times go out and come in as seconds from now, by the database's clock. A worker's own clock never reaches the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import psycopg

from holdfast.db import claims, judging, proxy_usage, request_secrets
from holdfast.db.proxy_usage import MappingRow
from holdfast.db.rows import by_name
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Status
from holdfast.model.job import Scope
from holdfast.model.proxy import ProxyOverrides
from holdfast.model.request_secrets import SealedSecret

# A circuit is forgotten an hour after the last request (003 §19).
_LOAD: Final = """
SELECT id AS domain_id, domain, parent_domain, base_url, status, crawl_delay_seconds AS crawl_delay,
       max_concurrent_requests AS max_concurrent, user_agent, CASE WHEN max_pages_is_limit THEN max_pages_per_run END AS page_limit,
       consecutive_error_count AS consecutive_errors, refusal_streak, pages_crawled, maintenance_window, clock_timestamp() AS now,
       proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky,
       COALESCE(extract(epoch FROM next_request_at - clock_timestamp()), 0)::float8 AS next_request_in,
       COALESCE(GREATEST(extract(epoch FROM back_off_until - clock_timestamp()), 0), 0)::float8 AS back_off_in,
       back_off_level, response_ms, best_response_ms,
       CASE WHEN circuit.remembered THEN circuit_failures ELSE 0 END AS circuit_failures,
       CASE WHEN circuit.remembered THEN circuit_successes ELSE 0 END AS circuit_successes,
       CASE WHEN circuit.remembered THEN extract(epoch FROM circuit_open_until - clock_timestamp())::float8 END AS circuit_open_in,
       pace_delay_seconds::float8 AS delay, pace_delay_source AS delay_source, CASE WHEN parser_chosen THEN parser_name END AS parser,
       strip_params, settings_version,
       COALESCE((SELECT j.settings_version FROM crawl_jobs j WHERE j.id = %(job)s), 0) AS job_version,
       CASE WHEN %(images)s THEN (SELECT count(*) FROM url_frontier f WHERE f.domain_id = domains.id AND f.job_id = %(job)s
                                  AND f.resource = 'image' AND f.state = 'done') ELSE 0 END AS images,
       CASE WHEN %(checks)s THEN (SELECT count(*) FROM url_frontier f WHERE f.domain_id = domains.id AND f.job_id = %(job)s
                                  AND f.resource = 'check' AND f.state IN ('done', 'failed')) ELSE 0 END AS checks, true AS in_reach
FROM domains CROSS JOIN LATERAL (
    SELECT COALESCE(GREATEST(next_request_at, circuit_open_until) > clock_timestamp() - interval '1 hour', true) AS remembered) circuit
WHERE id = ANY(%(ids)s)
"""
_TEMPLATES: Final = """
SELECT d.id, t.template, t.urls FROM unnest(%(ids)s::bigint[]) AS d(id), LATERAL (
    SELECT template, urls FROM url_templates WHERE domain_id = d.id AND job_id = %(job)s ORDER BY urls DESC LIMIT %(most)s) t
"""
TEMPLATE_LIMIT: Final = 2000
"""Of a domain that a visit knows."""
_SAID: Final = """
SELECT maintenance_window, clock_timestamp() AS now, proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky
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
    """The robots.txt of one origin, as last fetched."""

    status: int | None
    content: str | None
    """None: there is none, which allows everything; if unreachable: none was ever fetched."""
    reachable: bool
    fresh_for: float
    """Seconds until it must be fetched again; negative: it has expired."""
    problem: str | None


class LiveSettings(NamedTuple):
    """Settings of a domain that operators may edit during a visit, with the database's time."""

    window: str | None
    """The maintenance window as the operator wrote it; None: there is none."""
    now: datetime
    proxies: ProxyOverrides


@dataclass(frozen=True, slots=True)
class VisitState:
    """The state of a domain at the beginning of a visit."""

    domain_id: int
    domain: str
    parent_domain: str
    base_url: str
    status: Status
    crawl_delay: float
    max_concurrent: int
    user_agent: str | None
    page_limit: int | None
    """Pages per crawl, if the operator limited them for this domain."""
    consecutive_errors: int
    """Errors of any kind in a row."""
    refusal_streak: int
    """Refusals and failures to reach it in a row."""
    pages_crawled: int
    live_settings: LiveSettings
    clocks: PolitenessClocks
    strip_params: tuple[str, ...] = ()
    """Parameters to drop from its URLs."""
    templates: dict[int, int] = field(default_factory=dict)
    """URLs that the job knows there by their template: the biggest templates."""
    robots: dict[str, StoredRobots] = field(default_factory=dict)
    """By the address of the file: each origin of a domain has its own."""
    pool: list[MappingRow] = field(default_factory=list)
    """Its proxies, and those that it has used."""
    parser: str | None = None
    """The parser that the operator chose for its pages; None: none, the default is for tasks only."""
    settings_version: int = 0
    """Raised by every edit; a visit that began under another version ends."""
    secrets: list[SealedSecret] = field(default_factory=list)
    """Headers, cookies and credentials; the job's come after the domain's."""
    job_version: int = 0
    """`settings_version` of the job: the visit must not begin under an older one."""
    images: int = 0
    """Images of the domain that the job has fetched, counted up to its limit; 0 if it does not store images."""
    checks: int = 0
    """Links to the domain that the job has checked; 0 if it does not check those out of its scope."""
    in_reach: bool = True
    """False: the scope of the job was edited and does not lead from a seed to this domain."""


def load(
    connection: psycopg.Connection,
    domain_ids: Sequence[int],
    job_id: int | None = None,
    *,
    edited_scope: Scope | None = None,
    images: bool = False,
    checks: bool = False,
) -> dict[int, VisitState]:
    """The state of these domains, by id, for a visit of this job. `edited_scope`: its scope, if its rules were edited. `images`: whether
    it stores images; `checks`: whether it checks links out of its scope.

    Before: the caller holds them, so only operators change it meanwhile."""
    parameters: dict[str, object] = {"ids": list(domain_ids), "job": job_id, "images": images, "checks": checks}
    with connection.cursor(row_factory=_as_state) as cursor:
        states = {state.domain_id: state for state in cursor.execute(_LOAD, parameters)}
    states = _with_reach(connection, states, job_id, edited_scope)
    for domain_id, url, *facts in connection.execute(_ROBOTS, parameters):
        if domain_id in states:
            states[domain_id].robots[url] = StoredRobots(*facts)
    for domain_id, mappings in proxy_usage.pools(connection, domain_ids).items():
        if domain_id in states:
            states[domain_id].pool.extend(mappings)
    for domain_id, secret in request_secrets.of_domains(connection, domain_ids):
        if domain_id in states:
            states[domain_id].secrets.append(secret)
    if job_id is not None and (of_job := request_secrets.of_job(connection, job_id)):
        for state in states.values():
            state.secrets.extend(of_job)
    if job_id is not None:
        wanted = parameters | {"most": TEMPLATE_LIMIT}
        for domain_id, template, urls in connection.execute(_TEMPLATES, wanted):
            if domain_id in states:
                states[domain_id].templates[template] = urls
    return states


def _with_reach(
    connection: psycopg.Connection, states: dict[int, VisitState], job_id: int | None, scope: Scope | None
) -> dict[int, VisitState]:
    """The states, with whether this scope of the job leads from a seed to the domain; None: its rules were never edited."""
    if job_id is None or scope is None:
        return states
    reached = judging.reached(connection, job_id, states, scope)
    return {domain_id: replace(state, in_reach=domain_id in reached) for domain_id, state in states.items()}


def live_settings(connection: psycopg.Connection, domain_id: int) -> LiveSettings:
    """The current settings of a domain; empty ones if it was removed."""
    with connection.cursor(row_factory=_as_live_settings) as cursor:
        found = cursor.execute(_SAID, {"id": domain_id}).fetchone()
    assert found is not None  # noqa: S101 — one is asked for
    return found


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
    """Store the result of fetching a robots.txt; False, with nothing written, if `worker` no longer holds the domain.

    After: the result is valid for `ttl` seconds. A failed fetch keeps the content stored before.
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


def _live_settings(
    maintenance_window: str | None,
    now: datetime,
    proxy_use: str | None,
    proxy_direct: bool | None,
    proxy_resolves: bool | None,
    proxy_country: str | None,
    proxy_sticky: timedelta | None,
) -> LiveSettings:
    wishes = ProxyOverrides(proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky)
    return LiveSettings(maintenance_window, now, wishes)


def _status(status: str) -> Status:
    return Status(status)


def _strip_params(strip_params: list[str] | None) -> tuple[str, ...]:
    return tuple(strip_params or ())


_as_live_settings: Final = by_name(_live_settings)
_as_state: Final = by_name(
    VisitState,
    status=_status,
    live_settings=_live_settings,
    clocks=PolitenessClocks,
    strip_params=_strip_params,
    templates=dict,
    robots=dict,
    pool=list,
    secrets=list,
)
