"""Domains as people see and change them: configuration, reset, priorities, reads.

The rule: whoever changes a domain here locks its row first. Workers never come here; they write under their fence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.rows import DictRow, dict_row
from psycopg.types.datetime import TimestamptzLoader

from holdfast.db import budget, claimable, jobs, transitions
from holdfast.errors import Changed, NotFound, Refused
from holdfast.model.domain import Event, Seed, Status, status_reason
from holdfast.model.outcome import Outcome

PRIORITY_CHUNK: Final = 5_000

EDITABLE: Final[frozenset[str]] = frozenset(
    {
        "crawl_delay_seconds",
        "max_concurrent_requests",
        "parser_name",
        "user_agent",
        "is_active",
        "max_pages_per_run",
        "default_crawl_frequency",
        "maintenance_window",
        "base_url",
        "strip_params",
        "proxy_use",
        "proxy_direct",
        "proxy_resolves",
        "proxy_country",
        "proxy_sticky",
    },
)
_BUDGET: Final = "max_pages_per_run"
# Work that ended at the limit before goes on; its next visit asks for what the new one leaves.
_LIFT: Final = """
UPDATE job_domains SET state = 'open', limit_reached = NULL
WHERE domain_id = %s AND state = 'spent' AND limit_reached = 'domain_budget'
"""
_PARSER: Final = "parser_name"

# For statements that insert domains.
TREATMENT_COLUMNS: Final = """
    max_pages_per_run, parser_name, crawl_delay_seconds, max_concurrent_requests, default_crawl_frequency, user_agent
"""
TREATMENT_VALUES: Final = """
    %(max_pages_per_run)s, %(parser)s, %(crawl_delay)s, %(max_concurrent_requests)s, %(crawl_frequency)s, %(user_agent)s
"""

_ADD: Final = f"""
INSERT INTO domains (domain, parent_domain, base_url, source, priority_score, priority_computed_at, {TREATMENT_COLUMNS})
VALUES (%(domain)s, %(parent)s, %(base)s, 'person', -staleness_points(now() - interval '30 days'), now(), {TREATMENT_VALUES})
ON CONFLICT (domain) DO NOTHING
"""  # noqa: S608 — composed of constants only

# A score is shown with "now" in it; the stored one leaves it out. Jobs know the same pages, and fetch them again: what is done and known is
# that of the job which knows most.
_SHOWN: Final = """
    d.*, d.next_crawl_after = 'infinity' AS stays_blocked,
    d.priority_score + staleness_points(now()) AS priority, d.claim_expires_at <= clock_timestamp() AS claim_expired,
    COALESCE((SELECT LEAST(jd.pages, jd.done) FROM job_domains jd WHERE jd.domain_id = d.id
              ORDER BY jd.discovered DESC, jd.job_id LIMIT 1), 0) AS pages_done,
    COALESCE((SELECT max(jd.discovered) FROM job_domains jd WHERE jd.domain_id = d.id), 0) AS pages_known
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

# What the server asked for stays: no setting makes up for it.
_END_WAITS: Final = """
UPDATE job_domains jd SET not_before = NULLIF(GREATEST(d.back_off_until, d.circuit_open_until, jd.yielded_until, now()), now())
FROM domains d WHERE d.id = jd.domain_id AND d.id = ANY(%(ids)s) AND d.claimed_by IS NULL AND jd.not_before > clock_timestamp()
"""

_RECALCULATE: Final = """
WITH chunk AS MATERIALIZED (
    SELECT id, domain_score(d) AS score FROM domains d
    WHERE id > %(after)s ORDER BY id LIMIT %(chunk)s
), stale AS MATERIALIZED (
    SELECT d.id FROM domains d JOIN chunk c USING (id)
    WHERE d.priority_score IS DISTINCT FROM c.score AND d.status NOT IN ('blocked', 'unreachable')
    ORDER BY d.id FOR NO KEY UPDATE OF d SKIP LOCKED
), scored AS (
    UPDATE domains d SET priority_score = domain_score(d), priority_computed_at = clock_timestamp()
    FROM stale WHERE d.id = stale.id RETURNING d.id
)
SELECT (SELECT max(id) FROM chunk), (SELECT count(*) FROM chunk), array(SELECT id FROM scored)
"""


class _FiniteLoader(TimestamptzLoader):
    """Infinity is more than a datetime can hold: it is read as None."""

    def load(self, data: Buffer) -> datetime | None:  # type: ignore[override]
        return None if bytes(data) == b"infinity" else super().load(data)


@dataclass(frozen=True, slots=True)
class NewDomains:
    """How domains are treated that are met for the first time."""

    max_pages_per_run: int = 1000
    parser: str = "generic"
    crawl_delay: float = 1.0
    max_concurrent_requests: int = 5
    crawl_frequency: timedelta = timedelta(days=1)
    user_agent: str | None = None

    def columns(self) -> dict[str, object]:
        """The parameters of `TREATMENT_VALUES`."""
        return {
            "max_pages_per_run": self.max_pages_per_run,
            "parser": self.parser,
            "crawl_delay": self.crawl_delay,
            "max_concurrent_requests": self.max_concurrent_requests,
            "crawl_frequency": self.crawl_frequency,
            "user_agent": self.user_agent,
        }


def get(connection: psycopg.Connection, domain: str) -> dict[str, Any]:
    """A domain's row as people see it; NotFound if there is none."""
    with _as_shown(connection) as cursor:
        row = cursor.execute(f"SELECT {_SHOWN} FROM domains d WHERE d.domain = %s", (domain,)).fetchone()  # noqa: S608 — a constant
    if row is None:
        raise NotFound(f"There is no domain {domain!r}; `holdfast seeds add {domain}` makes it known.")
    return row


def id_of(connection: psycopg.Connection, domain: str) -> int:
    """The id of a domain; NotFound if there is none."""
    row = connection.execute("SELECT id FROM domains WHERE domain = %s", (domain,)).fetchone()
    if row is None:
        raise NotFound(f"There is no domain {domain!r}; `holdfast seeds add {domain}` makes it known.")
    return int(row[0])


def check_id(connection: psycopg.Connection, domain_id: int) -> None:
    """Raise NotFound unless there is a domain with this id."""
    if connection.execute("SELECT FROM domains WHERE id = %s AND removed_at IS NULL", (domain_id,)).fetchone() is None:
        raise NotFound(f"There is no domain {domain_id}.")


def ids(connection: psycopg.Connection, names: Iterable[str]) -> list[int]:
    """The ids of the domains among `names` that are known."""
    return [
        row[0]
        for row in connection.execute("SELECT id FROM domains WHERE domain = ANY(%s) ORDER BY id", (list(names),))
    ]


def listing(
    connection: psycopg.Connection, *, status: Status | None, limit: int, by_yield: bool = False
) -> list[dict[str, Any]]:
    """Domains as people see them: the ones crawled last first, or the ones that yield most images."""
    order = (
        "image_yield_rate DESC NULLS LAST, id"
        if by_yield
        else "last_visit_ended_at DESC NULLS LAST, priority_score DESC, id"
    )
    where = "image_yield_rate IS NOT NULL" if by_yield else "(%(status)s::domain_status IS NULL OR status = %(status)s)"
    with _as_shown(connection) as cursor:
        query = f"SELECT {_SHOWN} FROM domains d WHERE removed_at IS NULL AND {where} ORDER BY {order} LIMIT %(limit)s"  # noqa: S608 — constants
        return cursor.execute(query, {"status": status, "limit": limit}).fetchall()


def counts(connection: psycopg.Connection) -> dict[str, int]:
    """How many domains are in each status."""
    return dict(
        connection.execute(
            "SELECT status::text, count(*) FROM domains WHERE removed_at IS NULL GROUP BY status ORDER BY status"
        ).fetchall()
    )


def add(connection: psycopg.Connection, seed: Seed, *, defaults: NewDomains) -> bool:
    """Make a domain known, with nothing to do on it; False, with nothing changed, if it is."""
    values = {"domain": seed.domain, "parent": seed.parent_domain, "base": seed.base_url, **defaults.columns()}
    return connection.execute(_ADD, values).rowcount > 0


def edit(
    connection: psycopg.Connection, domain: str, changes: Mapping[str, object], *, version: int | None = None
) -> dict[str, Any]:
    """Change a domain's configuration; the row afterwards. With `version` only if nobody else changed it since.

    After: the columns are changed and `version` is one higher; a domain switched off is not ready, one switched on may be. What it waited
    for by its settings of before is over. With the commit a worker that holds it hears of it, and begins its visit anew.
    """
    unknown = set(changes) - EDITABLE
    assert not unknown, unknown  # noqa: S101 — names come from control, never from outside
    with connection.transaction():
        row = connection.execute(
            "SELECT id, version FROM domains WHERE domain = %s FOR NO KEY UPDATE", (domain,)
        ).fetchone()
        if row is None:
            get(connection, domain)
        elif version is not None and row[1] != version:
            raise Changed(f"{domain} was changed meanwhile (version {row[1]}, not {version}); look at it again.")
        else:
            if _BUDGET in changes:  # what a person says is a limit; nothing said is the size of a share
                changes = {**changes, "max_pages_is_limit": changes[_BUDGET] is not None}
            if _PARSER in changes:  # what a person sets is for crawls, too, not only for tasks
                parser = changes[_PARSER]
                changes = {**changes, _PARSER: parser or NewDomains().parser, "parser_chosen": parser is not None}
            assignments: list[sql.Composable] = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes]
            columns = sql.SQL(", ").join([*assignments, sql.SQL("version = version + 1")])
            query = sql.SQL("UPDATE domains SET {} WHERE id = %s").format(columns)
            connection.execute(query, [*changes.values(), row[0]])
            if _BUDGET in changes:
                connection.execute(_LIFT, (row[0],))
            end_waits(connection, [row[0]])
    return get(connection, domain)


def end_waits(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Let these domains be claimed now where they wait for anything but what their server asked for: what it was may be there.

    Before: the domain rows are locked by this transaction. After: `ready` is refreshed, too. A domain that is held is its holder's.
    """
    connection.execute(_END_WAITS, {"ids": list(domain_ids)})
    claimable.update_ready(connection, domain_ids)


def reset(connection: psycopg.Connection, domain: str, *, why: str) -> int:
    """Start a domain over, from any status; its id.

    Before: the transaction, if one is open, has locked no job and no domain. After: its completed and failed jobs are reopened, each with
    a new crawl unless one is open; it is pending and free under a higher epoch (a former holder is fenced off); cool-down, blocks,
    error streak, circuit and a robots.txt that could not be fetched are forgotten, the reason is recorded, and a wake says that all its
    pages are to be crawled again. `db/sweeper.fold_wakes_now` or the next sweep makes it ready. A pause that the server asked for
    (Retry-After) stays.
    """
    with connection.transaction():
        domain_id = id_of(connection, domain)
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
    """Let a blocked or unreachable domain be tried again without crawling all of it; its id. Refused if it is neither.

    Before: the transaction, if one is open, has locked no job and no domain. After: it is pending, its cool-down and the count of its
    stops are forgotten, and a wake says that the URLs which were refused or not reached are to be tried again, besides those that wait.
    Its completed and failed jobs are reopened. `db/sweeper.fold_wakes_now` or the next sweep makes it ready. What the server asked for
    (Retry-After) stays.
    """
    with connection.transaction():
        domain_id = id_of(connection, domain)
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
    """Reopen the completed and failed jobs of a domain, since a person gives them something to do; all its jobs but cancelled ones.

    Jobs are locked before the domain, as everywhere; also those that have not ended, lest one ends before the domain is free.
    """
    job_ids = [row[0] for row in connection.execute(_JOBS, {"id": domain_id})]
    for job_id in sorted(jobs.lock(connection, job_ids)):
        jobs.reopen(connection, job_id, why)
    jobs.ask_for_crawl(connection, job_ids)
    return job_ids


def recalculate(connection: psycopg.Connection) -> Iterator[tuple[int, int]]:
    """Rewrite the scores that changed, a chunk at a time; after each chunk (domains looked at, scores changed).

    Rows that somebody has locked are passed over: their holder scores them at release.
    """
    after: int | None = 0
    while after is not None:
        with connection.transaction():
            after, seen, changed = recalculate_chunk(connection, after)
        if seen:
            yield seen, changed


def recalculate_chunk(connection: psycopg.Connection, after: int) -> tuple[int | None, int, int]:
    """Rewrite the scores that changed of one chunk of domains; its last id (None: it was the last chunk), its size, scores changed.

    Before: a transaction is open.
    """
    row = connection.execute(_RECALCULATE, {"after": after, "chunk": PRIORITY_CHUNK}).fetchone()
    last, seen, changed = row or (None, 0, [])
    claimable.update_ready(connection, changed)
    return (last if seen == PRIORITY_CHUNK else None), seen, len(changed)


def _as_shown(connection: psycopg.Connection) -> psycopg.Cursor[DictRow]:
    cursor = connection.cursor(row_factory=dict_row)
    cursor.adapters.register_loader("timestamptz", _FiniteLoader)
    return cursor
