"""Domains as the crawl path and other nouns need them: defaults of new ones, ids by name, ends of waits, scores.

The rule: a function that changes a domain locks its row first. What people see and change is in `domains/queries`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db import claimable
from holdfast.errors import NotFound

PRIORITY_CHUNK: Final = 5_000

# For statements that insert domains.
TREATMENT_COLUMNS: Final = """
    max_pages_per_run, parser_name, crawl_delay_seconds, max_concurrent_requests, default_crawl_frequency, user_agent
"""
TREATMENT_VALUES: Final = """
    %(max_pages_per_run)s, %(parser)s, %(crawl_delay)s, %(max_concurrent_requests)s, %(crawl_frequency)s, %(user_agent)s
"""

# Pauses that the server asked for stay.
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


@dataclass(frozen=True, slots=True)
class NewDomains:
    """The configuration of new domains."""

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


def unknown(domain: str) -> NotFound:
    """The error for a domain that does not exist."""
    return NotFound(f"There is no domain {domain!r}; `holdfast seeds add {domain}` makes it known.")


def id_of(connection: psycopg.Connection, domain: str) -> int:
    """Return the id of a domain. Raises NotFound."""
    row = connection.execute("SELECT id FROM domains WHERE domain = %s", (domain,)).fetchone()
    if row is None:
        raise unknown(domain)
    return int(row[0])


def check_id(connection: psycopg.Connection, domain_id: int) -> None:
    """Raise NotFound unless there is a domain with this id."""
    if connection.execute("SELECT FROM domains WHERE id = %s AND removed_at IS NULL", (domain_id,)).fetchone() is None:
        raise NotFound(f"There is no domain {domain_id}.")


def ids(connection: psycopg.Connection, names: Iterable[str]) -> list[int]:
    """Return the ids of the known domains among `names`."""
    return [
        row[0]
        for row in connection.execute("SELECT id FROM domains WHERE domain = ANY(%s) ORDER BY id", (list(names),))
    ]


def counts(connection: psycopg.Connection) -> dict[str, int]:
    """Count domains by status."""
    return dict(
        connection.execute(
            "SELECT status::text, count(*) FROM domains WHERE removed_at IS NULL GROUP BY status ORDER BY status"
        ).fetchall()
    )


def end_waits(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """End the waits of these domains, except those that their server asked for: the reason of the others may be gone.

    Before: the domain rows are locked by this transaction. After: `ready` is refreshed, too. Domains that a worker holds are unchanged.
    """
    connection.execute(_END_WAITS, {"ids": list(domain_ids)})
    claimable.update_ready(connection, domain_ids)


def recalculate_chunk(connection: psycopg.Connection, after: int) -> tuple[int | None, int, int]:
    """Rewrite the changed scores of one chunk of domains; returns its last id (None: it was the last chunk), its size, scores changed.

    Before: a transaction is open.
    """
    row = connection.execute(_RECALCULATE, {"after": after, "chunk": PRIORITY_CHUNK}).fetchone()
    last, seen, changed = row or (None, 0, [])
    claimable.update_ready(connection, changed)
    return (last if seen == PRIORITY_CHUNK else None), seen, len(changed)
