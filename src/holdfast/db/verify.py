"""Invariants of the store, which hold whenever no transaction is open: one query for each that the database alone can prove.

The rule: a row in the result of a query is a fault. The queries scan and join whole tables and never loop over rows, so that they are
feasible with ten million URLs, and all of them see one snapshot, so that workers may run meanwhile. `holdfast verify`, the crash tests
and the simulation use the same queries; each name begins with the invariant of docs/testing.md that it proves.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.model.outcome import PAGES, TREATMENT, UrlState
from holdfast.model.proxy import ProxyVerdict

ROWS_SHOWN: Final = 5

_PAGES: Final = sorted(PAGES)
_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
_DONE: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.state is UrlState.DONE)
_VERDICTS: Final = {
    name: sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.verdict is verdict)
    for name, verdict in (
        ("successes", ProxyVerdict.SUCCESS),
        ("refusals", ProxyVerdict.REFUSED),
        ("failures", ProxyVerdict.FAILED),
    )
}

# For whole tables: no time limit, and memory for hash joins. Only these: without statistics the planner prefers nested loops, and merges by
# the domain alone, and both are quadratic in the pages of a domain: minutes for one with 60 000.
_PLANNER: Final = (
    "SET LOCAL statement_timeout = 0; SET LOCAL work_mem = '128MB';"
    "SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off"
)
# The count makes the planner plan for all rows; a bare LIMIT would let it choose loops that are fast only if there are many faults.
_FIRST: Final = "SELECT v.*, count(*) OVER () AS faults FROM ({}) v LIMIT {}"

STRUCTURE: Final[dict[str, str]] = {
    "I1 every URL that was counted is in the frontier, and the other way round": """
        WITH counted AS (
            SELECT domain_id, job_id, sum(n)::bigint AS counted FROM (
                SELECT domain_id, job_id, discovered AS n FROM job_domains
                UNION ALL SELECT domain_id, job_id, inserted FROM domain_wakes) both_kinds GROUP BY domain_id, job_id
        ), found AS (SELECT domain_id, job_id, count(*) AS found FROM url_frontier GROUP BY domain_id, job_id)
        SELECT domain_id, job_id, COALESCE(counted, 0) AS counted, COALESCE(found, 0) AS found
        FROM counted FULL JOIN found USING (domain_id, job_id) WHERE COALESCE(counted, 0) <> COALESCE(found, 0)
    """,
    "I1 every URL belongs to work that a claim can find": """
        SELECT domain_id, job_id FROM (SELECT domain_id, job_id FROM url_frontier GROUP BY domain_id, job_id) f
        WHERE NOT EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = f.domain_id AND jd.job_id = f.job_id)
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = f.domain_id AND w.job_id = f.job_id)
    """,
    "I1 nothing hangs on a domain or a job that is not there": """
        SELECT jd.domain_id, jd.job_id FROM job_domains jd
        WHERE NOT EXISTS (SELECT FROM domains d WHERE d.id = jd.domain_id) OR NOT EXISTS (SELECT FROM crawl_jobs j WHERE j.id = jd.job_id)
    """,
    "I1 discovered = waiting + done + denied + failed": """
        SELECT domain_id, job_id, discovered, waiting, done, denied, failed
        FROM job_domains WHERE discovered <> waiting + done + denied + failed
    """,
    "I1 the counts of a job's work are those of its frontier": """
        SELECT domain_id, job_id, jd.done, COALESCE(f.done, 0) AS found_done, jd.denied, COALESCE(f.denied, 0) AS found_denied,
               jd.failed, COALESCE(f.failed, 0) AS found_failed
        FROM job_domains jd LEFT JOIN (
            SELECT domain_id, job_id, count(*) FILTER (WHERE state = 'done') AS done, count(*) FILTER (WHERE state = 'denied') AS denied,
                   count(*) FILTER (WHERE state = 'failed') AS failed
            FROM url_frontier GROUP BY domain_id, job_id) f USING (domain_id, job_id)
        WHERE (jd.done, jd.denied, jd.failed) IS DISTINCT FROM (COALESCE(f.done, 0), COALESCE(f.denied, 0), COALESCE(f.failed, 0))
    """,
    "I1 a domain discovered what its jobs and the roll-up discovered, and waits for what waits in them": """
        SELECT d.id AS domain_id, d.pages_discovered, COALESCE(jd.discovered, 0) AS discovered, d.frontier_size,
               COALESCE(jd.waiting, 0) AS waiting
        FROM domains d LEFT JOIN (
            SELECT domain_id, sum(discovered)::bigint AS discovered, sum(waiting)::bigint AS waiting
            FROM (SELECT domain_id, discovered, waiting FROM job_domains
                  UNION ALL SELECT domain_id, discovered, 0 FROM crawl_log_rollups) parts
            GROUP BY domain_id) jd ON jd.domain_id = d.id
        WHERE d.pages_discovered <> COALESCE(jd.discovered, 0) OR d.frontier_size <> COALESCE(jd.waiting, 0)
    """,
    "I1 templates count no more URLs than there are": """
        SELECT domain_id, job_id, t.urls, COALESCE(jd.discovered, 0) AS discovered
        FROM (SELECT domain_id, job_id, sum(urls)::bigint AS urls FROM url_templates GROUP BY domain_id, job_id) t
        LEFT JOIN job_domains jd USING (domain_id, job_id) WHERE t.urls > COALESCE(jd.discovered, 0)
    """,
    "I1 no domain is exhausted with a URL waiting and no wake to say so": """
        SELECT d.id AS domain_id FROM domains d WHERE d.status = 'exhausted'
        AND EXISTS (SELECT FROM url_frontier f JOIN crawl_jobs j ON j.id = f.job_id
                    WHERE f.domain_id = d.id AND f.state = 'waiting' AND j.state <> 'cancelled' AND j.kind = 'crawl')
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id)
    """,
    "I1 work that waits can be found: ready, held, cooling, delayed, parked, switched off or about to be woken": """
        SELECT jd.domain_id, jd.job_id, jd.waiting
        FROM job_domains jd JOIN domains d ON d.id = jd.domain_id JOIN runnable_jobs j ON j.id = jd.job_id
        WHERE jd.waiting > 0 AND jd.state = 'open' AND NOT jd.ready AND d.is_active AND d.claimed_by IS NULL
        AND j.parked_after IS NULL AND d.next_crawl_after IS NULL AND jd.not_before IS NULL
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id)
    """,
    "I1 a task that is queued or crawled has a URL that waits, or will": """
        SELECT t.id AS task_id, t.status::text FROM crawl_tasks t JOIN crawl_jobs j ON j.kind = 'tasks'
        LEFT JOIN url_frontier f ON f.job_id = j.id AND f.url_key = COALESCE(t.fetch_key, t.url_hash) AND f.state = 'waiting'
        WHERE t.status IN ('queued', 'crawling') AND f.url_key IS NULL
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.again_key = COALESCE(t.fetch_key, t.url_hash))
    """,
    "I1 the address of every page is in the frontier": """
        SELECT p.domain_id, p.job_id, p.url_key FROM crawled_pages p WHERE NOT EXISTS (
            SELECT FROM url_frontier f WHERE f.domain_id = p.domain_id AND f.job_id = p.job_id AND f.url_key = p.url_key)
    """,
    "I4 a held domain has one open tenure, under its epoch": """
        SELECT d.id AS domain_id, d.claimed_by, d.claim_epoch FROM domains d WHERE d.claimed_by IS NOT NULL AND NOT EXISTS (
            SELECT FROM claim_log l WHERE l.domain_id = d.id AND l.epoch = d.claim_epoch AND l.worker = d.claimed_by AND l.ended_at IS NULL)
    """,
    "I4 a free domain has no open tenure, no other domain has an old one open, and none is ahead of its domain": """
        SELECT l.domain_id, l.epoch, d.claim_epoch, l.worker FROM claim_log l JOIN domains d ON d.id = l.domain_id
        WHERE l.epoch > d.claim_epoch OR (l.ended_at IS NULL AND (d.claimed_by IS NULL OR d.claim_epoch <> l.epoch))
    """,
    "I4 tenures do not overlap and epochs grow with time": """
        SELECT domain_id, epoch FROM (
            SELECT domain_id, epoch, claimed_at, lag(ended_at) OVER w AS before, lag(epoch) OVER w AS epoch_before
            FROM claim_log WINDOW w AS (PARTITION BY domain_id ORDER BY epoch)) t
        WHERE epoch_before IS NOT NULL AND (before IS NULL OR before > claimed_at)
    """,
    "I4 no work of a held domain is ready": """
        SELECT jd.domain_id, jd.job_id, d.claimed_by FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
        WHERE jd.ready AND d.claimed_by IS NOT NULL
    """,
    "I5 every log row lies in the tenure of its epoch": """
        SELECT c.domain_id, c.job_id, c.url_key, c.claim_epoch, c.crawled_at FROM crawl_log c WHERE NOT EXISTS (
            SELECT FROM claim_log l WHERE l.domain_id = c.domain_id AND l.epoch = c.claim_epoch AND c.crawled_at >= l.claimed_at
            AND (l.ended_at IS NULL OR c.crawled_at <= l.ended_at))
        AND NOT COALESCE(c.crawled_at < (SELECT log_begins_at FROM retention_state), false)
    """,
    "I6 every status is the last one in the history of its changes": """
        SELECT d.id AS domain_id, d.status::text, t.to_status::text FROM domains d JOIN (
            SELECT DISTINCT ON (domain_id) domain_id, to_status FROM domain_transitions ORDER BY domain_id, version DESC) t
        ON t.domain_id = d.id WHERE d.status <> t.to_status
    """,
    "I6 each change begins where the last one ended": """
        SELECT domain_id, version FROM (
            SELECT domain_id, version, from_status, lag(to_status) OVER (PARTITION BY domain_id ORDER BY version) AS before
            FROM domain_transitions) t
        WHERE before IS NOT NULL AND before <> from_status
    """,
    "I7 no domain used more pages of a crawl than it was granted": """
        SELECT jd.domain_id, jd.job_id, jd.crawl_id, jd.budget_used, jd.granted FROM job_domains jd JOIN crawls c ON c.id = jd.crawl_id
        WHERE c.max_pages IS NOT NULL AND c.state <> 'finished' AND jd.budget_used > jd.granted
    """,
    "I7 no share of a round began after what its domain has used": """
        SELECT jd.domain_id, jd.job_id, jd.round_start, jd.budget_used FROM job_domains jd JOIN crawls c ON c.id = jd.crawl_id
        WHERE c.state <> 'finished' AND jd.round_start > jd.budget_used
    """,
    # A limit may be lowered while a crawl is stopped: what was used by then stays used.
    "I7 a crawl granted what its domains were granted, and no more than it has": """
        SELECT c.id AS crawl_id, c.max_pages, c.pages_granted, COALESCE(g.granted, 0) AS granted
        FROM crawls c LEFT JOIN (SELECT crawl_id, sum(granted)::bigint AS granted, sum(budget_used)::bigint AS used
                                 FROM job_domains GROUP BY crawl_id) g ON g.crawl_id = c.id
        WHERE c.max_pages IS NOT NULL AND c.state <> 'finished'
        AND (c.pages_granted <> COALESCE(g.granted, 0) OR c.pages_granted > GREATEST(c.max_pages, g.used))
    """,
    "I7 all days together are the totals": """
        SELECT requests, total_requests, bytes, total_bytes
        FROM (SELECT COALESCE(sum(requests), 0) AS requests, COALESCE(sum(bytes), 0) AS bytes FROM stats_day) d,
             (SELECT COALESCE(sum(value) FILTER (WHERE name = 'outcome'), 0) AS total_requests,
                     COALESCE(sum(value) FILTER (WHERE name = 'bytes'), 0) AS total_bytes FROM stats_total) t
        WHERE requests <> total_requests OR bytes <> total_bytes
    """,
    "I11 every reference to the archive is whole": """
        SELECT domain_id, job_id, url_key, number FROM (
            SELECT domain_id, job_id, url_key, NULL::integer AS number, archive_segment, archive_offset, archive_length, payload_digest
            FROM crawled_pages
            UNION ALL SELECT domain_id, job_id, url_key, number, archive_segment, archive_offset, archive_length, payload_digest
            FROM page_versions) r
        WHERE archive_segment IS NOT NULL AND NOT COALESCE(
            archive_offset >= 0 AND archive_length > 0 AND octet_length(payload_digest) = 32, false)
    """,
    "I11 no page was lost with the machine that had its segment (archive_lost)": """
        SELECT r.domain_id, r.job_id, (SELECT f.url FROM url_frontier f WHERE f.domain_id = r.domain_id AND f.job_id = r.job_id
               AND f.url_key = r.url_key) AS url, r.number AS version, r.archive_segment AS segment, m.name AS machine,
               'archive_lost' AS problem
        FROM (SELECT domain_id, job_id, url_key, NULL::integer AS number, archive_segment FROM crawled_pages
              UNION ALL SELECT domain_id, job_id, url_key, number, archive_segment FROM page_versions) r
        JOIN archive_segments s ON s.segment = r.archive_segment AND s.state = 'lost' JOIN archive_machines m ON m.id = s.machine_id
    """,
    "I11 every version of a page belongs to a page": """
        SELECT v.domain_id, v.job_id, v.url_key, v.number FROM page_versions v WHERE NOT EXISTS (
            SELECT FROM crawled_pages p WHERE p.domain_id = v.domain_id AND p.job_id = v.job_id AND p.url_key = v.url_key)
    """,
    "I11 every text that is kept belongs to a page": """
        SELECT t.domain_id, t.job_id, t.url_key FROM page_texts t WHERE NOT EXISTS (
            SELECT FROM crawled_pages p WHERE p.domain_id = t.domain_id AND p.job_id = t.job_id AND p.url_key = t.url_key)
    """,
    "I11 a page that was parsed has all items that its parser found": """
        SELECT r.domain_id, r.job_id, r.url_key, r.parser, r.items AS found, count(i.url_key) AS kept
        FROM page_parses r LEFT JOIN items i
          ON i.domain_id = r.domain_id AND i.url_key = r.url_key AND i.job_id = r.job_id AND i.parser = r.parser
        WHERE r.parsed_at IS NOT NULL GROUP BY r.domain_id, r.job_id, r.url_key, r.parser HAVING r.items <> count(i.url_key)
    """,
    "I11 every image has a file whose name is its hash": """
        SELECT id AS image_id, name, file FROM (SELECT id, encode(sha256, 'hex') AS name, file FROM images) i
        WHERE file IS NULL OR split_part(file, '.', 1) <> substr(name, 1, 2) || '/' || substr(name, 3, 2) || '/' || name
    """,
    "I11 every image on a page, and every URL that led to one, has its image": """
        SELECT 'provenance' AS table_name, domain_id, image_id FROM provenance p
        WHERE NOT EXISTS (SELECT FROM images i WHERE i.id = p.image_id)
        UNION ALL SELECT 'image_urls', NULL, image_id FROM image_urls u
        WHERE image_id IS NOT NULL AND NOT EXISTS (SELECT FROM images i WHERE i.id = u.image_id)
    """,
    "I7 a domain stored as many images as its pages have": """
        SELECT domain_id, COALESCE(counted, 0) AS counted, COALESCE(listed, 0) AS listed, COALESCE(found, 0) AS found
        FROM (SELECT domain_id, sum(n)::bigint AS counted FROM (
                SELECT id AS domain_id, images_stored AS n FROM domains WHERE images_stored <> 0 AND removed_at IS NULL
                UNION ALL SELECT domain_id, images_stored FROM domain_wakes WHERE images_stored <> 0
                UNION ALL SELECT domain_id, -images_stored FROM crawl_log_rollups WHERE images_stored <> 0) all_kinds GROUP BY domain_id) c
        FULL JOIN (SELECT domain_id, count(*) AS listed FROM domain_images GROUP BY domain_id) l USING (domain_id)
        FULL JOIN (SELECT domain_id, count(DISTINCT image_id) AS found FROM provenance GROUP BY domain_id) p USING (domain_id)
        WHERE (COALESCE(counted, 0), COALESCE(listed, 0)) IS DISTINCT FROM (COALESCE(found, 0), COALESCE(found, 0))
          AND domain_id NOT IN (SELECT id FROM domains WHERE removed_at IS NOT NULL)
    """,
    "I11 no page waits for an image that is stored": """
        SELECT l.domain_id, l.job_id, l.image_key FROM image_links l JOIN image_urls u ON u.url_key = l.image_key
        WHERE u.image_id IS NOT NULL
    """,
    "I11 no page waits for a URL of an image that was redirected": """
        SELECT l.domain_id, l.job_id, l.image_key FROM image_links l JOIN image_urls u ON u.url_key = l.image_key
        JOIN image_urls target ON target.url_key = u.moved_to AND target.moved_to IS NULL
    """,
    "I13 no URL was tried more often than `politeness.retries` allows": """
        SELECT domain_id, job_id, url_key, attempts FROM url_frontier WHERE attempts > %(attempts)s
    """,
}
"""Invariants that need no log."""

# Counter = roll-up + log: rows of the log that are gone, or never were in it, are in the roll-up.
_LOGGED: Final = """
    SELECT domain_id, job_id, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages,
           count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors
    FROM crawl_log GROUP BY domain_id, job_id
    UNION ALL SELECT domain_id, job_id, pages, errors FROM crawl_log_rollups
"""

LOG: Final[dict[str, str]] = {
    "I1 every URL that is done has an answer in the log": """
        SELECT f.domain_id, f.job_id, f.url_key FROM url_frontier f WHERE f.state = 'done' AND NOT EXISTS (
            SELECT FROM crawl_log l WHERE l.domain_id = f.domain_id AND l.job_id = f.job_id AND l.url_key = f.url_key
            AND l.outcome = ANY(%(done)s))
        AND NOT COALESCE(COALESCE(f.settled_at, f.discovered_at) < (SELECT log_begins_at + interval '1 hour' FROM retention_state), false)
    """,
    # In one tenure and one run nothing sets a URL back to waiting: a reset takes the claim away, a new crawl begins a new run. (But for
    # tasks: one that is started anew while its URL is being fetched wants it once more.)
    "I3 no page was counted twice in a tenure": """
        SELECT domain_id, job_id, claim_epoch, url_key, count(*) AS times FROM crawl_log
        WHERE outcome = ANY(%(pages)s) AND job_id <> ALL(SELECT id FROM crawl_jobs WHERE kind = 'tasks')
        GROUP BY domain_id, job_id, claim_epoch, crawl_run_id, url_key HAVING count(*) > 1
    """,
    "I3 every page in the log is kept, unless its job was deleted, its domain removed, or the page purged": """
        SELECT DISTINCT m.domain_id, m.job_id, m.url_key FROM (
            SELECT l.domain_id, l.job_id, l.url_key, l.crawled_at FROM crawl_log l
            JOIN crawl_jobs j ON j.id = l.job_id AND j.deleted_at IS NULL JOIN domains d ON d.id = l.domain_id AND d.removed_at IS NULL
            WHERE l.outcome = ANY(%(pages)s) AND NOT EXISTS (
                SELECT FROM crawled_pages p WHERE p.domain_id = l.domain_id AND p.job_id = l.job_id AND p.url_key = l.url_key)
            OFFSET 0) m
        WHERE NOT EXISTS (SELECT FROM page_purges g WHERE m.crawled_at < g.before AND (g.job_id IS NULL OR g.job_id = m.job_id)
                          AND (g.domain_id IS NULL OR g.domain_id = m.domain_id))
    """,
    "I3 every page that is kept is in the log": """
        SELECT p.domain_id, p.job_id, p.url_key, p.outcome FROM crawled_pages p WHERE NOT EXISTS (
            SELECT FROM crawl_log l WHERE l.domain_id = p.domain_id AND l.job_id = p.job_id AND l.url_key = p.url_key
            AND l.outcome = p.outcome)
        AND NOT COALESCE(p.crawled_at < (SELECT log_begins_at FROM retention_state), false)
    """,
    "I7 a domain's pages and errors are those of the log and its roll-up": f"""
        SELECT d.id AS domain_id, d.pages_crawled, COALESCE(l.pages, 0) AS logged_pages, d.total_error_count,
               COALESCE(l.errors, 0) AS logged_errors
        FROM domains d LEFT JOIN (
            SELECT domain_id, sum(pages)::bigint AS pages, sum(errors)::bigint AS errors FROM ({_LOGGED}) parts GROUP BY domain_id
        ) l ON l.domain_id = d.id
        WHERE d.pages_crawled <> COALESCE(l.pages, 0) OR d.total_error_count <> COALESCE(l.errors, 0)
    """,  # noqa: S608 — a constant
    "I7 a job's pages and errors on a domain are those of the log and its roll-up": f"""
        SELECT jd.domain_id, jd.job_id, jd.pages, COALESCE(l.pages, 0) AS logged_pages, jd.errors, COALESCE(l.errors, 0) AS logged_errors
        FROM job_domains jd LEFT JOIN (
            SELECT domain_id, job_id, sum(pages)::bigint AS pages, sum(errors)::bigint AS errors FROM ({_LOGGED}) parts
            GROUP BY domain_id, job_id) l ON l.domain_id = jd.domain_id AND l.job_id = jd.job_id
        WHERE jd.pages <> COALESCE(l.pages, 0) OR jd.errors <> COALESCE(l.errors, 0)
    """,  # noqa: S608 — a constant
    "I7 a run's pages and errors are those of the log": """
        SELECT r.id AS run_id, r.pages_crawled, COALESCE(l.pages, 0) AS logged_pages, r.errors, COALESCE(l.errors, 0) AS logged_errors
        FROM crawl_runs r LEFT JOIN (
            SELECT crawl_run_id, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages,
                   count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors
            FROM crawl_log GROUP BY crawl_run_id) l ON l.crawl_run_id = r.id
        WHERE CASE WHEN r.started_at < (SELECT log_begins_at FROM retention_state)
                   THEN r.pages_crawled < COALESCE(l.pages, 0) OR r.errors < COALESCE(l.errors, 0)
                   ELSE r.pages_crawled <> COALESCE(l.pages, 0) OR r.errors <> COALESCE(l.errors, 0) END
    """,
    # A proxy, or a domain, that was removed took its figures along, but not the log.
    "I7 what a domain's proxies did is what the log says": """
        SELECT domain_id, proxy_id, m.requests, l.requests AS logged, m.success_count, l.successes, m.total_failures, l.refusals,
               m.proxy_failures, l.failures, m.bytes, l.bytes AS logged_bytes
        FROM (SELECT m.* FROM domain_proxies m JOIN domains d ON d.id = m.domain_id AND d.removed_at IS NULL) m FULL JOIN (
            SELECT domain_id, proxy_id, sum(requests)::bigint AS requests, sum(successes)::bigint AS successes,
                   sum(refusals)::bigint AS refusals, sum(failures)::bigint AS failures, sum(bytes)::bigint AS bytes
            FROM (SELECT domain_id, proxy_id, count(*) AS requests, count(*) FILTER (WHERE outcome = ANY(%(successes)s)) AS successes,
                         count(*) FILTER (WHERE outcome = ANY(%(refusals)s)) AS refusals,
                         count(*) FILTER (WHERE outcome = ANY(%(failures)s)) AS failures, COALESCE(sum(bytes), 0)::bigint AS bytes
                  FROM crawl_log WHERE proxy_id IS NOT NULL GROUP BY domain_id, proxy_id
                  UNION ALL SELECT * FROM (SELECT domain_id, proxy_id, requests, successes, refusals, failures, bytes
                                           FROM proxy_log_rollups WHERE requests > 0) r) parts
            WHERE proxy_id IN (SELECT id FROM proxies) AND domain_id IN (SELECT id FROM domains WHERE removed_at IS NULL)
            GROUP BY domain_id, proxy_id) l USING (domain_id, proxy_id)
        WHERE (COALESCE(m.requests, 0), COALESCE(m.success_count, 0), COALESCE(m.total_failures, 0), COALESCE(m.proxy_failures, 0))
              <> (COALESCE(l.requests, 0), COALESCE(l.successes, 0), COALESCE(l.refusals, 0), COALESCE(l.failures, 0))
           OR COALESCE(m.bytes, 0) < COALESCE(l.bytes, 0)
    """,
    # Minutes are kept for a week, the log until the operator deletes it. Fresh rows belong to their minute already.
    "I7 the figures of every minute are those of the log": """
        SELECT at, c.requests, l.requests AS logged_requests, c.pages, l.pages AS logged_pages, c.errors, l.errors AS logged_errors,
               c.bytes, l.bytes AS logged_bytes
        FROM (SELECT at, sum(requests) AS requests, sum(pages) AS pages, sum(errors) AS errors, sum(bytes) AS bytes FROM (
                SELECT at, requests, pages, errors, bytes FROM stats_minute
                UNION ALL SELECT date_bin('1 minute', at, 'epoch'), n, CASE WHEN label = ANY(%(pages)s) THEN n ELSE 0 END,
                                 CASE WHEN label = ANY(%(errors)s) THEN n ELSE 0 END, bytes
                FROM stats_fresh WHERE kind = 'fetch') s GROUP BY at) c
        FULL JOIN (
            SELECT date_bin('1 minute', crawled_at, 'epoch') AS at, count(*) AS requests,
                   count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages, count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors,
                   COALESCE(sum(bytes), 0) AS bytes
            FROM crawl_log WHERE crawled_at >= now() - interval '7 days' GROUP BY 1) l USING (at)
        WHERE at >= now() - interval '6 days 23 hours'
          AND at >= (SELECT date_bin('1 minute', min(crawled_at), 'epoch') FROM crawl_log)
          AND (COALESCE(c.requests, 0), COALESCE(c.pages, 0), COALESCE(c.errors, 0), COALESCE(c.bytes, 0))
              <> (COALESCE(l.requests, 0), COALESCE(l.pages, 0), COALESCE(l.errors, 0), COALESCE(l.bytes, 0))
    """,
    "I7 every row of the log belongs to a run": """
        SELECT crawl_run_id AS run_id, rows FROM (SELECT crawl_run_id, count(*) AS rows FROM crawl_log GROUP BY crawl_run_id) l
        WHERE NOT EXISTS (SELECT FROM crawl_runs r WHERE r.id = l.crawl_run_id)
    """,
}
"""Invariants that the log proves: every counter agrees with it."""

CHECKS: Final = dict(sorted({**STRUCTURE, **LOG}.items(), key=lambda check: int(check[0].split()[0][1:])))
"""All of them, in the order of the invariants."""

_REFERENCES: Final = """
SELECT p.domain_id, p.job_id, p.url_key, NULL::integer AS number, p.archive_segment, p.archive_offset, p.archive_length,
       p.payload_digest, f.url
FROM crawled_pages p LEFT JOIN url_frontier f USING (domain_id, job_id, url_key)
WHERE (p.domain_id, p.job_id, p.url_key) > (%(domain)s, %(job)s, %(key)s) AND p.archive_segment IS NOT NULL
ORDER BY p.domain_id, p.job_id, p.url_key LIMIT %(chunk)s
"""
_VERSION_REFERENCES: Final = """
SELECT v.domain_id, v.job_id, v.url_key, v.number, v.archive_segment, v.archive_offset, v.archive_length, v.payload_digest, f.url
FROM page_versions v LEFT JOIN url_frontier f USING (domain_id, job_id, url_key)
WHERE (v.domain_id, v.job_id, v.url_key, v.number) > (%(domain)s, %(job)s, %(key)s, %(number)s) AND v.archive_segment IS NOT NULL
ORDER BY v.domain_id, v.job_id, v.url_key, v.number LIMIT %(chunk)s
"""
_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check: the number of faults, and the first of them as rows."""

    check: str
    faults: int
    rows: list[dict[str, Any]]
    seconds: float
    skipped: int = 0
    """Rows that cannot be checked from this machine."""
    archived: int = 0
    """Rows whose bytes are in the store of archives."""


def verify(
    connection: psycopg.Connection, *, retries: int, checks: dict[str, str] | None = None
) -> Generator[Finding, None, None]:
    """Run the checks (all by default), one after the other, on one snapshot; yields a finding after each.

    Before: no transaction is open. After: nothing is changed. While it runs, its snapshot is open: see docs/operations.md.
    """
    values = parameters(retries=retries)
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(_PLANNER)
        for name, query in (CHECKS if checks is None else checks).items():
            started = time.monotonic()
            rows = cursor.execute(_FIRST.format(query, ROWS_SHOWN), values).fetchall()
            faults = rows[0]["faults"] if rows else 0
            for row in rows:
                del row["faults"]
            yield Finding(name, faults, rows, time.monotonic() - started)


def parameters(*, retries: int) -> dict[str, Any]:
    """Parameters of the checks."""
    return {"attempts": retries + 1, "pages": _PAGES, "errors": _ERRORS, "done": _DONE, **_VERDICTS}


def references(connection: psycopg.Connection) -> Iterator[list[dict[str, Any]]]:
    """Yield all references to the archive with the URLs of their pages, in chunks, each in a short transaction: those of the last
    answers (`number` is None), then those of the versions before.

    No snapshot is needed: a row never refers to bytes that are not written yet, and bytes are never deleted.
    """
    for query in (_REFERENCES, _VERSION_REFERENCES):
        after: dict[str, Any] = {"domain": 0, "job": 0, "key": b"", "number": 0}
        while True:
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = cursor.execute(query, after | {"chunk": _CHUNK}).fetchall()
            if rows:
                last = rows[-1]
                after = {"domain": last["domain_id"], "job": last["job_id"], "key": last["url_key"]}
                after["number"] = last["number"] or 0
                yield rows
            if len(rows) < _CHUNK:
                break
