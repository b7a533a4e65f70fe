"""SQL of domains as people see and change them: lists, all columns of one, configuration, reset, unblock, priorities.

The rule: a function that changes a domain locks its row first; workers write under their fence, in `db`. No list is sorted by a column
that a flush changes: an index on one of those would cost every flush of every crawl.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

import psycopg
from psycopg import sql

from holdfast.db import budget, claimable, domains, jobs, transitions
from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, SortColumn
from holdfast.db.rows import by_name
from holdfast.domains.records import (
    Domain,
    DomainColumns,
    DomainSettings,
    DomainWork,
    MaintenanceWindow,
    StatusChange,
    StoredRobots,
    Tenure,
    Transition,
)
from holdfast.errors import Changed, Refused, UsageError
from holdfast.model.domain import Event, Seed, Status, status_reason
from holdfast.model.maintenance_window import MaintenanceWindows
from holdfast.model.outcome import Outcome

EDITABLE: Final = frozenset(DomainSettings.__annotations__)
"""Columns that `edit` changes."""
_BUDGET: Final = "max_pages_per_run"
_PARSER: Final = "parser_name"

# A score is shown with "now" in it; the stored one leaves it out. Jobs know the same pages, and fetch them again: what is done and known is
# that of the job which knows most.
_LISTED: Final = """
    t.id, t.domain, t.parent_domain, t.status::text, t.status_reason, t.block_reason_code, t.block_reason, t.is_active,
    t.claimed_by, t.claim_expires_at, COALESCE(t.claim_expires_at <= clock_timestamp(), false) AS claim_expired,
    t.pages_discovered, t.pages_crawled,
    COALESCE((SELECT LEAST(jd.pages, jd.done) FROM job_domains jd WHERE jd.domain_id = t.id
              ORDER BY jd.discovered DESC, jd.job_id LIMIT 1), 0) AS pages_done,
    COALESCE((SELECT max(jd.discovered) FROM job_domains jd WHERE jd.domain_id = t.id), 0) AS pages_known,
    t.frontier_size, t.images_found, t.images_stored, t.image_yield_rate, t.total_error_count, t.consecutive_error_count, t.error_rate,
    t.priority_score + staleness_points(now()) AS priority, t.seed_rank, t.first_seen_at, t.last_crawled_at, t.last_visit_ended_at,
    NULLIF(t.next_crawl_after, 'infinity') AS next_crawl_after, COALESCE(t.next_crawl_after = 'infinity', false) AS stays_blocked,
    t.base_url, t.parser_name, t.crawl_delay_seconds, t.max_concurrent_requests, t.maintenance_window, t.proxy_use, t.version
"""
_COLUMNS: Final = f"""
SELECT {_LISTED}, t.claim_epoch, t.crawl_depth_reached, t.frontier_updated_at, t.updated_at, t.priority_score, t.priority_computed_at,
    t.retry_count, t.last_crawl_run_id, t.first_blocked_at, t.source, t.max_pages_per_run, t.max_pages_is_limit, t.default_crawl_frequency,
    t.user_agent, t.frontier_checkpoint_id, t.avg_images_per_page, t.next_request_at, t.back_off_until, t.back_off_level, t.response_ms,
    t.best_response_ms, t.circuit_failures, t.circuit_successes, t.circuit_open_until, t.proxy_direct, t.proxy_resolves, t.proxy_country,
    t.proxy_sticky, t.removed_at, t.strip_params, t.retried_at, t.parser_chosen, t.refusal_streak, t.settings_version,
    t.pace_delay_seconds, t.pace_delay_source
FROM domains t
"""  # noqa: S608 — a constant
_JOBS_OF: Final = """
SELECT j.name AS job, j.state::text AS job_state, job_wants_refresh(j) AS refresh, jd.state::text, jd.ready, jd.not_before,
       jd.discovered, jd.waiting, jd.done, jd.denied, jd.failed
FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id WHERE jd.domain_id = %(id)s ORDER BY j.id
"""
_PAGES_OF: Final = "SELECT COALESCE(sum(LEAST(pages, done)), 0) FROM job_domains WHERE domain_id = %(id)s"
_TRANSITIONS: Final = """
SELECT at, from_status::text, to_status::text, reason, worker FROM domain_transitions
WHERE domain_id = %(id)s ORDER BY version DESC LIMIT %(limit)s
"""
_TENURES: Final = """
SELECT epoch, worker, claimed_at, ended_at, why FROM claim_log WHERE domain_id = %(id)s ORDER BY epoch DESC LIMIT %(limit)s
"""
_ROBOTS: Final = """
SELECT robots_txt_url AS url, status, robots_txt_content AS content, reachable, problem, robots_txt_last_fetched AS fetched_at,
       expires_at AS fresh_until, COALESCE(expires_at > clock_timestamp(), false) AS fresh
FROM domain_robots WHERE domain_id = %(id)s ORDER BY robots_txt_url
"""

_ADD: Final = f"""
INSERT INTO domains (domain, parent_domain, base_url, source, priority_score, priority_computed_at, {TREATMENT_COLUMNS})
VALUES (%(domain)s, %(parent)s, %(base)s, 'person', -staleness_points(now() - interval '30 days'), now(), {TREATMENT_VALUES})
ON CONFLICT (domain) DO NOTHING
"""  # noqa: S608 — composed of constants only
# Work that ended at the limit before goes on; its next visit asks for what the new one leaves.
_LIFT: Final = """
UPDATE job_domains SET state = 'open', limit_reached = NULL
WHERE domain_id = %s AND state = 'spent' AND limit_reached = 'domain_budget'
"""
# A change of status has raised epoch and version already, and taken the claim away.
_RESET: Final = """
UPDATE domains SET
    claimed_by = NULL, claim_expires_at = NULL, claim_epoch = claim_epoch + %(rise)s, version = version + %(rise)s,
    retry_count = 0, consecutive_error_count = 0, refusal_streak = 0, next_crawl_after = NULL, first_blocked_at = NULL,
    status_reason = %(reason)s, circuit_open_until = NULL, circuit_failures = 0, circuit_successes = 0
WHERE id = %(id)s
"""
_END_TENURE: Final = """
UPDATE claim_log SET ended_at = GREATEST(clock_timestamp(), claimed_at), why = 'reset' WHERE domain_id = %(id)s AND ended_at IS NULL
"""
_START_OVER: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, retry)
SELECT jd.domain_id, jd.job_id, 0, ''::bytea, %(retry)s::text[] FROM job_domains jd
WHERE jd.domain_id = %(id)s AND jd.job_id = ANY(%(jobs)s)
"""
_JOBS: Final = """
SELECT j.id FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
WHERE jd.domain_id = %(id)s AND j.state <> 'cancelled' AND j.deleted_at IS NULL AND j.kind = 'crawl' ORDER BY j.id
"""
_STOPPED: Final = "SELECT status::text, block_reason_code FROM domains WHERE id = %(id)s FOR NO KEY UPDATE"
_FORGIVE: Final = """
UPDATE domains SET retry_count = 0, first_blocked_at = NULL, circuit_open_until = NULL, circuit_failures = 0, circuit_successes = 0
WHERE id = %(id)s
"""
# Also a file that was fetched: it may be the one that denies everything.
_FORGET_ROBOTS: Final = """
UPDATE domain_robots r SET expires_at = LEAST(r.expires_at, GREATEST(clock_timestamp(), d.retried_at))
FROM domains d WHERE d.id = r.domain_id AND d.id = %(id)s
"""

_NAME: Final = SortColumn("t.domain", str)
_ID: Final = SortColumn("t.id", int)
_ID_DOWN: Final = SortColumn("t.id", int, descending=True)


def _name(name: str) -> str:
    return name


DOMAINS: Final = Listing(
    "domains",
    _LISTED,
    Domain,
    {
        "status": Equals("t.status", "%(status)s::domain_status"),
        "active": "t.is_active",
        "inactive": "NOT t.is_active",
        "held": "t.claimed_by IS NOT NULL",
        "free": "t.claimed_by IS NULL",
        "worker": Equals("t.claimed_by", "%(worker)s::text"),
        # A name is ASCII, and ~ comes after every character of a name.
        "prefix": Range("t.domain", "%(prefix)s::text", "%(prefix)s::text || '~'"),
        "parent": Equals("t.parent_domain", "%(parent)s::text"),
        "sub": "t.parent_domain <> t.domain",
        "windows": "t.maintenance_window IS NOT NULL",
    },
    {
        "name": Order(
            (_NAME,),
            (("parent", "sub"), ("windows",), ("inactive",), ("status",), ()),
            frozenset({"prefix"}),
        ),
        "crawled": Order((SortColumn("t.last_visit_ended_at", datetime, descending=True, nullable=True), _ID_DOWN)),
        "priority": Order((SortColumn("t.priority_score", int, descending=True), _ID_DOWN)),
        "oldest": Order((_ID,), (("worker",), ())),
        "newest": Order((_ID_DOWN,), (("worker",), ())),
    },
    condition="t.removed_at IS NULL",
    selective=frozenset({"status", "inactive", "held", "worker", "prefix", "parent", "sub", "windows"}),
)
"""The list of domains."""
MATCHING: Final = Listing(
    "domains",
    "t.domain AS name",
    _name,
    {
        **DOMAINS.filters,
        "stopped": "t.status IN ('blocked', 'unreachable')",
        "known_at": "t.first_seen_at <= %(known_at)s::timestamptz",
        "not_retried_since": "(t.retried_at IS NULL OR t.retried_at < %(not_retried_since)s::timestamptz)",
    },
    {"oldest": DOMAINS.orders["oldest"]},
    condition=DOMAINS.condition,
    selective=DOMAINS.selective | {"stopped"},
)
"""The names of the domains that an action changes, the oldest first."""
COUNT_LIMIT: Final = 100_000
"""Domains that are looked at to count those that a filter matches."""
TRANSITIONS: Final = Listing(
    "domain_transitions",
    "t.version, t.at, t.from_status::text, t.to_status::text, t.reason, t.worker, t.claim_epoch AS epoch",
    Transition,
    {"domain": Equals("t.domain_id", "%(domain)s::bigint")},
    {"newest": Order((SortColumn("t.version", int, descending=True),), (("domain",),))},
)
"""The list of the changes of a domain's status."""
TENURES: Final = Listing(
    "claim_log",
    "t.epoch, t.worker, t.claimed_at, t.ended_at, t.why",
    Tenure,
    {"domain": Equals("t.domain_id", "%(domain)s::bigint")},
    {"newest": Order((SortColumn("t.epoch", int, descending=True),), (("domain",),))},
)
"""The list of the workers that held a domain."""


def _maintenance_window(domain: str, window: str, is_active: bool, version: int, now: datetime) -> MaintenanceWindow:
    windows = _parse_windows(window)
    opens = windows.closed_until(now)
    return MaintenanceWindow(domain, window, opens is None, opens, windows.next_close(opens or now), is_active, version)


@lru_cache(maxsize=1024)
def _parse_windows(text: str) -> MaintenanceWindows:
    try:
        return MaintenanceWindows.parse(text)
    except UsageError:  # written by SQL, without our checks: it closes nothing
        return MaintenanceWindows()


WINDOWS: Final = Listing(
    "domains",
    "t.domain, t.maintenance_window AS window, t.is_active, t.version, clock_timestamp() AS now",
    _maintenance_window,
    {"prefix": DOMAINS.filters["prefix"]},
    {"name": Order((_NAME,), range_filters=frozenset({"prefix"}))},
    condition="t.maintenance_window IS NOT NULL AND t.removed_at IS NULL",
)
"""The list of domains with maintenance windows."""


def _origin(url: str) -> str:
    return url.removesuffix("/robots.txt")


_as_columns: Final = by_name(DomainColumns)
_as_work: Final = by_name(DomainWork)
_as_change: Final = by_name(StatusChange)
_as_tenure: Final = by_name(Tenure)
_as_robots: Final = by_name(StoredRobots, origin=_origin)


def get(connection: psycopg.Connection, domain: str) -> DomainColumns:
    """Return a domain. Raises NotFound."""
    with connection.cursor(row_factory=_as_columns) as cursor:
        row = cursor.execute(f"{_COLUMNS} WHERE t.domain = %s", (domain,)).fetchone()
    if row is None:
        raise domains.unknown(domain)
    return row


def recent(connection: psycopg.Connection, *, status: Status | None, limit: int) -> list[DomainColumns]:
    """Return domains, the last crawled first."""
    query = f"""
        {_COLUMNS} WHERE t.removed_at IS NULL AND (%(status)s::domain_status IS NULL OR t.status = %(status)s)
        ORDER BY t.last_visit_ended_at DESC NULLS LAST, t.priority_score DESC, t.id LIMIT %(limit)s
    """
    with connection.cursor(row_factory=_as_columns) as cursor:
        return cursor.execute(query, {"status": status, "limit": limit}).fetchall()


def by_yield(connection: psycopg.Connection, *, limit: int) -> list[DomainColumns]:
    """Return crawled domains, those with the most stored images per page first."""
    query = f"""
        {_COLUMNS} WHERE t.removed_at IS NULL AND t.image_yield_rate IS NOT NULL
        ORDER BY t.image_yield_rate DESC NULLS LAST, t.id LIMIT %(limit)s
    """
    with connection.cursor(row_factory=_as_columns) as cursor:
        return cursor.execute(query, {"limit": limit}).fetchall()


def count_matching(connection: psycopg.Connection, filters: Mapping[str, object]) -> tuple[int, int, bool]:
    """Count the domains that match filters of `MATCHING`, and those of them that are held; the last value is False if there are more
    domains than `COUNT_LIMIT` to look at."""
    found = filters.keys() & MATCHING.selective
    where = " AND ".join([MATCHING.condition, *(f"({MATCHING.filters[name]})" for name in sorted(found))])
    fits = " AND ".join(["true", *(f"({MATCHING.filters[name]})" for name in sorted(filters.keys() - found))])
    query = f"""
        SELECT count(*) FILTER (WHERE fits), count(*) FILTER (WHERE fits AND held), count(*) <= {COUNT_LIMIT} FROM (
            SELECT ({fits}) IS TRUE AS fits, t.claimed_by IS NOT NULL AS held FROM domains t WHERE {where} LIMIT {COUNT_LIMIT + 1}) seen
    """  # noqa: S608 — constants
    row = connection.execute(query.encode(), filters, prepare=False).fetchone()
    assert row is not None  # noqa: S101 — an aggregate answers with a row
    domains_found, held, exact = row
    return (domains_found if exact else min(domains_found, COUNT_LIMIT)), held, exact


def matching(
    connection: psycopg.Connection, filters: Mapping[str, object], *, after: Key | None, limit: int
) -> Page[str]:
    """Return one page of the names of domains that match filters of `MATCHING`, the oldest first."""
    return MATCHING.page(connection, filters, order="oldest", after=after, limit=limit)


def pages_of(connection: psycopg.Connection, domain_id: int) -> int:
    """Return how many pages the jobs of a domain have, at most."""
    row = connection.execute(_PAGES_OF, {"id": domain_id}).fetchone()
    return int(row[0]) if row else 0


def work_of(connection: psycopg.Connection, domain_id: int) -> list[DomainWork]:
    """Return the work of each job on a domain."""
    with connection.cursor(row_factory=_as_work) as cursor:
        return cursor.execute(_JOBS_OF, {"id": domain_id}).fetchall()


def transitions_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[StatusChange]:
    """Return the last changes of a domain's status, newest first."""
    with connection.cursor(row_factory=_as_change) as cursor:
        return cursor.execute(_TRANSITIONS, {"id": domain_id, "limit": limit}).fetchall()


def tenures_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[Tenure]:
    """Return the last tenures of a domain, newest first."""
    with connection.cursor(row_factory=_as_tenure) as cursor:
        return cursor.execute(_TENURES, {"id": domain_id, "limit": limit}).fetchall()


def robots_of(connection: psycopg.Connection, domain_id: int) -> list[StoredRobots]:
    """Return the robots.txt of each origin of a domain that was requested."""
    with connection.cursor(row_factory=_as_robots) as cursor:
        return cursor.execute(_ROBOTS, {"id": domain_id}).fetchall()


def add(connection: psycopg.Connection, seed: Seed, *, defaults: NewDomains) -> bool:
    """Insert a domain without work. False: it exists already, and is unchanged."""
    values = {"domain": seed.domain, "parent": seed.parent_domain, "base": seed.base_url, **defaults.columns()}
    return connection.execute(_ADD, values).rowcount > 0


def edit(
    connection: psycopg.Connection,
    domain: str,
    changes: Mapping[str, object],
    *,
    version: int | None = None,
    settings_version: int | None = None,
) -> DomainColumns:
    """Change a domain's configuration, and return the domain. With `version` only if it was not changed since that version, else Changed;
    with `settings_version` only if no operator has edited it since that one, whatever its status did.

    After: the columns are changed and `version` is one higher; a domain switched off is not ready, one switched on may be. Waits that
    followed from its former settings are over. With the commit a worker that holds it is notified, and begins its visit anew.
    """
    unknown = set(changes) - EDITABLE
    assert not unknown, unknown  # noqa: S101 — names come from the service, never from outside
    with connection.transaction():
        row = connection.execute(
            "SELECT id, version, settings_version FROM domains WHERE domain = %s FOR NO KEY UPDATE", (domain,)
        ).fetchone()
        if row is None:
            return get(connection, domain)
        if version is not None and row[1] != version:
            raise Changed(f"{domain} was changed meanwhile (version {row[1]}, not {version}); look at it again.")
        if settings_version is not None and row[2] != settings_version:
            raise Changed(f"The settings of {domain} were changed meanwhile; look at them again.")
        if _BUDGET in changes:  # a number that a person sets is a limit; the default is the size of a share
            changes = {**changes, "max_pages_is_limit": changes[_BUDGET] is not None}
        if _PARSER in changes:  # a parser that a person sets also parses the pages of crawls, not only those of tasks
            parser = changes[_PARSER]
            changes = {**changes, _PARSER: parser or NewDomains().parser, "parser_chosen": parser is not None}
        assignments: list[sql.Composable] = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes]
        columns = sql.SQL(", ").join([*assignments, sql.SQL("version = version + 1")])
        query = sql.SQL("UPDATE domains SET {} WHERE id = %s").format(columns)
        connection.execute(query, [*changes.values(), row[0]])
        if _BUDGET in changes:
            connection.execute(_LIFT, (row[0],))
        domains.end_waits(connection, [row[0]])
    return get(connection, domain)


def reset(connection: psycopg.Connection, domain: str, *, why: str) -> int:
    """Reset a domain, from any status; returns its id.

    Before: the transaction, if one is open, has locked no job and no domain. After: its completed and failed jobs are reopened, each with
    a new crawl unless one is open; it is pending and free under a higher epoch (a former holder is fenced off); cool-down, blocks,
    error streak, circuit and a robots.txt that could not be fetched are forgotten, the reason is recorded, and a wake requests that all
    its pages are crawled again. `db/sweeper.fold_wakes_now` or the next sweep makes it ready. A pause that the server asked for
    (Retry-After) stays.
    """
    with connection.transaction():
        domain_id = domains.id_of(connection, domain)
        job_ids = _reopen_jobs(connection, domain_id, f"{domain} was reset")
        connection.execute("SELECT FROM domains WHERE id = %s FOR NO KEY UPDATE", (domain_id,))
        words = status_reason(Event.RESET, why)
        key = {"id": domain_id, "reason": words, "jobs": job_ids, "retry": None}
        connection.execute(_END_TENURE, key)
        others = set(Status) - {Status.PENDING}
        changed = transitions.change(connection, [domain_id], Status.PENDING, only_from=others, reason=words)
        connection.execute(_RESET, key | {"rise": 0 if changed else 1})
        claimable.mark_retried(connection, [domain_id])
        claimable.expire_failed_robots(connection, [domain_id])
        budget.return_unused(connection, [domain_id])
        claimable.reset_budgets(connection, [domain_id])
        claimable.rescore(connection, [domain_id])
        connection.execute(_START_OVER, key)
    return domain_id


def unblock(connection: psycopg.Connection, domain: str, *, why: str) -> int:
    """Try a blocked or unreachable domain again without crawling all of it; returns its id. Raises Refused if it is neither.

    Before: the transaction, if one is open, has locked no job and no domain. After: it is pending, its cool-down and the count of its
    stops are forgotten, and a wake requests that URLs which were refused or not reached are tried again, besides those that wait.
    Its completed and failed jobs are reopened. `db/sweeper.fold_wakes_now` or the next sweep makes it ready. A pause that the server
    asked for (Retry-After) stays.
    """
    with connection.transaction():
        domain_id = domains.id_of(connection, domain)
        job_ids = _reopen_jobs(connection, domain_id, f"{domain} was unblocked")
        status, code = connection.execute(_STOPPED, {"id": domain_id}).fetchone() or (None, None)
        stopped = [Status.BLOCKED, Status.UNREACHABLE]
        if status not in stopped:
            raise Refused(
                f"{domain} is {status}, not blocked; `holdfast domains reset {domain}` crawls all of it again."
            )
        retry = claimable.NETWORK_REASONS | claimable.REFUSAL_REASONS
        if code == Event.ROBOTS_DENIED:
            retry |= {str(Outcome.ROBOTS_DENIED)}
        key = {"id": domain_id, "jobs": job_ids, "retry": sorted(retry)}
        words = status_reason(Event.UNBLOCKED, why)
        transitions.change(connection, [domain_id], Status.PENDING, only_from=stopped, reason=words)
        connection.execute(_FORGIVE, key)
        claimable.mark_retried(connection, [domain_id])
        connection.execute(_FORGET_ROBOTS, key)
        claimable.rescore(connection, [domain_id])
        connection.execute(_START_OVER, key)
    return domain_id


def _reopen_jobs(connection: psycopg.Connection, domain_id: int, why: str) -> list[int]:
    """Reopen the completed and failed jobs of a domain, since they have work again; returns all its jobs but cancelled ones.

    Jobs are locked before the domain, as everywhere; also those that have not ended, so that none ends before the domain is free.
    """
    job_ids = [row[0] for row in connection.execute(_JOBS, {"id": domain_id})]
    for job_id in sorted(jobs.lock(connection, job_ids)):
        jobs.reopen(connection, job_id, why)
    jobs.ask_for_crawl(connection, job_ids)
    return job_ids


def recalculate(connection: psycopg.Connection) -> Iterator[tuple[int, int]]:
    """Rewrite the scores that changed, a chunk at a time; yields after each chunk (domains read, scores changed).

    Locked rows are skipped: their holder scores them at release.
    """
    after: int | None = 0
    while after is not None:
        with connection.transaction():
            after, seen, changed = domains.recalculate_chunk(connection, after)
        if seen:
            yield seen, changed
