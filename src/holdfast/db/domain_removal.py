"""Removal of domains: a removed domain is hidden at once, and its rows are deleted in chunks.

The rule: the log and the tenures stay, since they record which worker sent which request. The row itself stays for a while as a
tombstone, inactive and under another name, because a transaction that looked the name up before may still write for it; those rows
are deleted, too.
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
"""Rows of the frontier that one transaction deletes; `FEW` of other tables, since more rows depend on each."""
FEW: Final = 1_000
TOMBSTONE_AGE: Final = timedelta(minutes=10)
"""How long the row stays: longer than any transaction that found it under its name."""
MAX_TOMBSTONES: Final = 20
"""Domains that one sweep checks."""
_DEADLOCK_RETRIES: Final = 5

# FOR UPDATE waits for workers that insert URLs for a domain they do not hold: they hold a share lock on its row.
_LOCK: Final = """
SELECT id, claimed_by, COALESCE(claim_expires_at <= clock_timestamp(), false) FROM domains WHERE domain = %(domain)s FOR UPDATE
"""
_LIVE_TASKS: Final = (
    f"SELECT count(*) FROM (SELECT FROM crawl_tasks WHERE domain_id = %(id)s AND {IS_LIVE} LIMIT 1000) live"  # noqa: S608 — a constant
)
# Only for tasks that still exist: the URL of a cancelled one waits until a visit takes it out.
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
_DELETE_WAKES: Final = "DELETE FROM domain_wakes WHERE domain_id = %(id)s"
# Fewer than the URLs that it had, and as many at a time: they are gone with the last of these.
_DELETE_TEMPLATES: Final = """
DELETE FROM url_templates WHERE ctid = ANY(ARRAY(SELECT ctid FROM url_templates WHERE domain_id = %(id)s LIMIT %(rows)s))
"""
_DELETE_URLS: Final = """
WITH chunk AS MATERIALIZED (
    SELECT job_id, url_key FROM url_frontier WHERE domain_id = %(id)s ORDER BY job_id, url_key LIMIT %(rows)s
)
SELECT forget_urls(array_agg(%(id)s::bigint), array_agg(job_id), array_agg(url_key)) FROM chunk
"""
# Pages that were granted to it go back to the crawls, used or not: its rows are gone.
_DELETE_WORK: Final = """
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
# Without the domain's lock, which the scheduler takes while it has locked tasks.
_DELETE_OTHERS: Final = {
    # Otherwise tasks of other domains that wait for one of them would wait without end.
    "crawl_tasks": "WITH c AS MATERIALIZED (SELECT id FROM crawl_tasks WHERE domain_id = %(id)s ORDER BY id LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED), freed AS (UPDATE crawl_tasks k SET waits_for = NULL FROM c"
    " WHERE k.parent_task_id = c.id AND k.waits_for = 'parent' AND k.domain_id <> %(id)s)"
    " DELETE FROM crawl_tasks t USING c WHERE t.id = c.id",
    "products": "DELETE FROM products t USING (SELECT id FROM products WHERE domain_id = %(id)s ORDER BY id LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "provenance": "DELETE FROM provenance t USING (SELECT id FROM provenance WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "image_links": "DELETE FROM image_links t USING (SELECT ctid FROM image_links WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.ctid = c.ctid",
    "domain_images": "DELETE FROM domain_images t USING (SELECT image_id FROM domain_images WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.domain_id = %(id)s AND t.image_id = c.image_id",
    # Those of URLs went with them; what a transaction wrote that had found the domain before stays.
    "page_links": "DELETE FROM page_links t USING (SELECT ctid FROM page_links WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.ctid = c.ctid",
    "link_answers": "DELETE FROM link_answers t USING (SELECT ctid FROM link_answers WHERE domain_id = %(id)s LIMIT %(few)s"
    " FOR UPDATE SKIP LOCKED) c WHERE t.ctid = c.ctid",
    "domain_proxies": "DELETE FROM domain_proxies t USING (SELECT id FROM domain_proxies WHERE domain_id = %(id)s ORDER BY proxy_id"
    " LIMIT %(few)s FOR UPDATE SKIP LOCKED) c WHERE t.id = c.id",
    "domain_robots": "DELETE FROM domain_robots WHERE domain_id = %(id)s",
    "domain_transitions": "DELETE FROM domain_transitions t USING (SELECT version FROM domain_transitions WHERE domain_id = %(id)s"
    " ORDER BY version LIMIT %(few)s) c WHERE t.domain_id = %(id)s AND t.version = c.version",
}
_DELETE_TOMBSTONE: Final = """
DELETE FROM domains d WHERE d.id = %(id)s AND d.removed_at < clock_timestamp() - %(age)s
  AND NOT EXISTS (SELECT FROM url_frontier WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM job_domains WHERE domain_id = d.id)
  AND NOT EXISTS (SELECT FROM crawl_tasks WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM products WHERE domain_id = d.id)
  AND NOT EXISTS (SELECT FROM provenance WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM domain_images WHERE domain_id = d.id)
  AND NOT EXISTS (SELECT FROM image_links WHERE domain_id = d.id) AND NOT EXISTS (SELECT FROM page_links WHERE domain_id = d.id)
  AND NOT EXISTS (SELECT FROM link_answers WHERE domain_id = d.id)
"""
_TOMBSTONES: Final = """
SELECT id FROM domains WHERE removed_at IS NOT NULL AND removed_at < clock_timestamp() - %(age)s ORDER BY id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed domain."""

    id: int
    domain: str
    """Its name before."""


def remove(connection: psycopg.Connection, domain: str) -> Removed:
    """Remove a domain. Raises Refused while a worker holds it or live tasks need it, and NotFound.

    After (with the commit): its name is free, and no query finds or claims it; `delete_chunk` deletes its rows.
    """
    with connection.transaction():
        found = _check(connection, domain)
        connection.execute(_MARK, {"id": found.id})
        request_secrets.forget_domain(connection, found.id)
        claimable.update_ready(connection, [found.id])
    return found


def problem(connection: psycopg.Connection, domain: str) -> str | None:
    """Why a domain cannot be removed now; None: it can. Raises NotFound. After: its row is not locked any more."""
    try:
        with connection.transaction():
            _check(connection, domain)
    except Refused as refused:
        return str(refused)
    return None


def tombstones(connection: psycopg.Connection) -> list[int]:
    """Ids of domains that were removed a while ago and whose rows still exist, at most `MAX_TOMBSTONES`."""
    return [row[0] for row in connection.execute(_TOMBSTONES, {"age": TOMBSTONE_AGE, "limit": MAX_TOMBSTONES})]


def delete_chunk(connection: psycopg.Connection, domain_id: int) -> int | None:
    """Delete a chunk of the rows of a removed domain. Returns their number; None: none is left, or all are locked now.

    Before: `remove`; no transaction is open. After: counters are right at every moment; the sweep deletes the row itself later.
    """
    for _ in range(_DEADLOCK_RETRIES):  # a batch fences its own domains before it shares others
        with suppress(psycopg.errors.DeadlockDetected):
            return _delete_chunk(connection, {"id": domain_id, "rows": ROWS, "few": FEW, "age": TOMBSTONE_AGE})
    return _delete_chunk(connection, {"id": domain_id, "rows": ROWS, "few": FEW, "age": TOMBSTONE_AGE})


def _check(connection: psycopg.Connection, domain: str) -> Removed:
    """Lock the row, and check that the domain may be removed. Before: a transaction is open. After: no insert for it is in flight."""
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


def _delete_chunk(connection: psycopg.Connection, key: dict[str, Any]) -> int | None:
    with connection.transaction():
        if connection.execute(_LOCK_REMOVED, key).fetchone() is None:
            return None
        claimable.fold_counts(connection, [key["id"]])
        connection.execute(_DELETE_WAKES, key)
        connection.execute(_DELETE_TEMPLATES, key)
        row = connection.execute(_DELETE_URLS, key).fetchone()
        if row and row[0]:
            return int(row[0])
        connection.execute(_DELETE_WORK, key)
    for statement in _DELETE_OTHERS.values():
        with connection.transaction():
            if gone := connection.execute(statement, key).rowcount:
                return gone
    with connection.transaction():
        connection.execute(_LOCK_REMOVED, key)
        connection.execute(
            _DELETE_TOMBSTONE, key
        )  # a statement of its own sees what was committed while the lock was waited for
    return None
