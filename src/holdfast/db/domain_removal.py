"""Domains that people remove: nobody finds them any more at once, and what hangs on them goes a chunk at a time.

The rule: the log and the tenures stay, since they say what was asked of servers and by whom. The row itself stays for a while, switched
off and under another name, because whoever looked the name up before may still write for it; what he writes is forgotten, too.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg

from holdfast.db import claimable, domains, request_secrets
from holdfast.db.tasks import IS_LIVE
from holdfast.errors import Refused

ROWS: Final = 10_000
"""Of the frontier, forgotten in one transaction; of other tables fewer, since more hangs on them."""
FEW: Final = 1_000
GRAVE: Final = timedelta(minutes=10)
"""How long the row stays: longer than any transaction that found it under its name."""
AT_ONCE: Final = 20
"""Domains that one sweep looks at."""
_DEADLOCK_RETRIES: Final = 5

# FOR UPDATE: whoever inserts URLs for a domain that he does not hold shares its row, and has to be waited for.
_LOCK: Final = """
SELECT id, claimed_by, COALESCE(claim_expires_at <= clock_timestamp(), false) FROM domains WHERE domain = %(domain)s FOR UPDATE
"""
_LIVE_TASKS: Final = (
    f"SELECT count(*) FROM (SELECT FROM crawl_tasks WHERE domain_id = %(id)s AND {IS_LIVE} LIMIT 1000) live"  # noqa: S608 — a constant
)
# By tasks that there are: the URL of one that was cancelled waits on, until a visit comes that takes it out.
_WANTED_BY_TASKS: Final = """
SELECT EXISTS (SELECT FROM (
    SELECT f.url_key AS key FROM url_frontier f JOIN crawl_jobs j ON j.id = f.job_id
    WHERE f.domain_id = %(id)s AND f.state = 'waiting' AND j.kind = 'tasks'
    UNION ALL SELECT w.again_key FROM domain_wakes w JOIN crawl_jobs j ON j.id = w.job_id
    WHERE w.domain_id = %(id)s AND w.again_key IS NOT NULL AND j.kind = 'tasks') wanted
    JOIN crawl_tasks t ON COALESCE(t.fetch_key, t.url_hash) = wanted.key AND t.status IN ('queued', 'crawling'))
"""
_MARK: Final = """
UPDATE domains SET removed_at = clock_timestamp(), is_active = false, domain = left(domain, 230) || ' #' || id, next_crawl_after = NULL,
    maintenance_window = NULL, proxy_use = NULL, version = version + 1
WHERE id = %(id)s
"""

_LOCK_REMOVED: Final = "SELECT FROM domains WHERE id = %(id)s AND removed_at IS NOT NULL FOR UPDATE"
_NO_WAKES: Final = "DELETE FROM domain_wakes WHERE domain_id = %(id)s"
# Fewer than the URLs that it had, and as many at a time: they are gone with the last of these.
_NO_TEMPLATES: Final = """
DELETE FROM url_templates WHERE ctid = ANY(ARRAY(SELECT ctid FROM url_templates WHERE domain_id = %(id)s LIMIT %(rows)s))
"""
_FORGET: Final = """
WITH chunk AS MATERIALIZED (
    SELECT job_id, url_key FROM url_frontier WHERE domain_id = %(id)s ORDER BY job_id, url_key LIMIT %(rows)s
)
SELECT forget_urls(array_agg(%(id)s::bigint), array_agg(job_id), array_agg(url_key)) FROM chunk
"""
# Pages that were granted to it are the crawls' again, used or not: what it had is forgotten.
_FORGET_WORK: Final = """
WITH gone AS (
    DELETE FROM job_domains WHERE domain_id = %(id)s RETURNING crawl_id, granted
), locked AS MATERIALIZED (
    SELECT c.id FROM crawls c WHERE c.id IN (SELECT crawl_id FROM gone WHERE granted > 0) AND c.state <> 'finished'
    ORDER BY c.id FOR NO KEY UPDATE
)
UPDATE crawls c SET pages_granted = c.pages_granted - g.pages
FROM (SELECT crawl_id, sum(granted)::bigint AS pages FROM gone GROUP BY crawl_id) g JOIN locked l ON l.id = g.crawl_id
WHERE c.id = g.crawl_id AND c.max_pages IS NOT NULL
"""
# Without the domain's lock, which the schedule takes while it has locked tasks.
_BESIDE: Final = {
    # Tasks elsewhere that wait for one of them would wait for ever.
    "crawl_tasks": "WITH c AS MATERIALIZED (SELECT id FROM crawl_tasks WHERE domain_id = %(id)s ORDER BY id LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED), freed AS (UPDATE crawl_tasks k SET waits_for = NULL FROM c"
    " WHERE k.parent_task_id = c.id AND k.waits_for = 'parent' AND k.domain_id <> %(id)s)"
    " DELETE FROM crawl_tasks t USING c WHERE t.id = c.id",
    "products": "DELETE FROM products t USING (SELECT id FROM products WHERE domain_id = %(id)s ORDER BY id LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "provenance": "DELETE FROM provenance t USING (SELECT id FROM provenance WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "domain_proxies": "DELETE FROM domain_proxies t USING (SELECT id FROM domain_proxies WHERE domain_id = %(id)s ORDER BY proxy_id"
    " LIMIT %(few)s FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "domain_robots": "DELETE FROM domain_robots WHERE domain_id = %(id)s",
    "domain_transitions": "DELETE FROM domain_transitions t USING (SELECT version FROM domain_transitions WHERE domain_id = %(id)s"
    " ORDER BY version LIMIT %(few)s) c WHERE t.domain_id = %(id)s AND t.version = c.version",
}
_BURY: Final = """
DELETE FROM domains d WHERE d.id = %(id)s AND d.removed_at < clock_timestamp() - %(grave)s
  AND NOT EXISTS (SELECT FROM url_frontier WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM job_domains WHERE domain_id = d.id)
  AND NOT EXISTS (SELECT FROM crawl_tasks WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM products WHERE domain_id = d.id)
"""
_GRAVES: Final = """
SELECT id FROM domains WHERE removed_at IS NOT NULL AND removed_at < clock_timestamp() - %(grave)s ORDER BY id LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Removed:
    """A domain that nobody finds any more."""

    id: int
    domain: str
    """What it was called."""


def remove(connection: psycopg.Connection, domain: str) -> Removed:
    """Remove a domain. Refused while somebody holds it, or tasks want something of it. Raises NotFound.

    Before: nothing. After (with the commit): its name is free, and nobody claims or finds it; what hangs on it is to be forgotten:
    `forget`.
    """
    with connection.transaction():
        found = _check(connection, domain)
        connection.execute(_MARK, {"id": found.id})
        request_secrets.forget_domain(connection, found.id)
        claimable.update_ready(connection, [found.id])
    return found


def graves(connection: psycopg.Connection) -> list[int]:
    """Domains that were removed a while ago, and whose rows are still there; some of them."""
    return [row[0] for row in connection.execute(_GRAVES, {"grave": GRAVE, "most": AT_ONCE})]


def forget(connection: psycopg.Connection, domain_id: int) -> int | None:
    """Forget some of what a removed domain had; how many rows. None: there is nothing left, or nothing that can be had now.

    Before: `remove`; no transaction is open. After: counters are right at every moment; the row goes a while later, by the sweep.
    """
    for _ in range(_DEADLOCK_RETRIES):  # a batch fences its own domains before it shares others
        with suppress(psycopg.errors.DeadlockDetected):
            return _forget(connection, {"id": domain_id, "rows": ROWS, "few": FEW, "grave": GRAVE})
    return _forget(connection, {"id": domain_id, "rows": ROWS, "few": FEW, "grave": GRAVE})


def _check(connection: psycopg.Connection, domain: str) -> Removed:
    """Its row, locked; whoever was inserting URLs for it has been waited for. Before: a transaction is open."""
    row = connection.execute(_LOCK, {"domain": domain}).fetchone()
    if row is None:
        domains.id_of(connection, domain)
        raise AssertionError(domain)  # id_of() has raised
    key = {"id": row[0]}
    if row[2]:
        raise Refused(f"{domain} has a claim that expired; `holdfast release-stuck-claims` frees it, then remove it.")
    if row[1] is not None:
        raise Refused(
            f"{domain} is held by worker {row[1]}. Switch it off (`holdfast domains set {domain} active=no`), take it away from the "
            f"worker (`holdfast domains reset {domain}`), and remove it then."
        )
    live = connection.execute(_LIVE_TASKS, key).fetchone()
    if live and live[0]:
        many = f"{live[0]} live tasks" if live[0] > 1 else "a live task"
        raise Refused(f"{domain} has {many}; cancel them, or wait until they have ended, and remove it then.")
    wanted = connection.execute(_WANTED_BY_TASKS, key).fetchone()
    if wanted and wanted[0]:
        raise Refused(
            f"Tasks have been led to {domain} from elsewhere; wait until they have ended, and remove it then."
        )
    return Removed(row[0], domain)


def _forget(connection: psycopg.Connection, key: dict[str, Any]) -> int | None:
    with connection.transaction():
        if connection.execute(_LOCK_REMOVED, key).fetchone() is None:
            return None
        claimable.fold_counts(connection, [key["id"]])
        connection.execute(_NO_WAKES, key)
        connection.execute(_NO_TEMPLATES, key)
        row = connection.execute(_FORGET, key).fetchone()
        if row and row[0]:
            return int(row[0])
        connection.execute(_FORGET_WORK, key)
    for statement in _BESIDE.values():
        with connection.transaction():
            if gone := connection.execute(statement, key).rowcount:
                return gone
    with connection.transaction():
        connection.execute(_LOCK_REMOVED, key)
        connection.execute(_BURY, key)  # a statement of its own sees what those did who had to be waited for
    return None
