"""A store as a big crawl leaves it, for `benchmarks/lists.py`: made by plain SQL in a minute, its counters right.

The rule: what a list has to cope with is in it. One domain has a tenth of all pages, most rows are alike and few are rare, times are
spread over months, and rows lie in the order in which a crawl would have written them.
"""

import time
from collections.abc import Callable

import psycopg

_JOBS = """
INSERT INTO crawl_jobs (name, state)
SELECT 'job-' || n, (ARRAY['pending', 'processing', 'paused', 'completed'])[1 + n % 4]::job_state FROM generate_series(1, 1000) n;

INSERT INTO workers (name, host, pid, heartbeat_at)
SELECT 'crawler-' || n, 'host-' || n % 20, n, now() - n * interval '1 second' FROM generate_series(1, 500) n;

INSERT INTO crawl_runs (job_id, worker, status, started_at, completed_at, error_message, pages_crawled)
SELECT CASE WHEN n % 3 > 0 THEN (SELECT min(id) FROM crawl_jobs) + n % 900 END, 'crawler-' || 1 + n % 500,
       CASE WHEN n > {runs} - 100 THEN 'running' WHEN n % 200 = 0 THEN 'failed' ELSE 'completed' END::run_status,
       now() - ({runs} - n) * interval '3 minutes', CASE WHEN n <= {runs} - 100 THEN now() - ({runs} - n) * interval '2 minutes' END,
       CASE WHEN n % 200 = 0 AND n <= {runs} - 100 THEN 'No sign of life.' END, n % 5000
FROM generate_series(1, {runs}) n
"""
_DOMAINS = """
INSERT INTO domains (domain, parent_domain, base_url, source, status, block_reason_code, status_reason, is_active, claimed_by,
    claim_expires_at, claim_epoch, last_crawled_at, last_visit_ended_at, next_crawl_after, first_seen_at, priority_score,
    maintenance_window, proxy_use)
SELECT name, CASE WHEN n % 10 = 0 THEN 'shared-' || n / 1000 || '.example' ELSE name END, 'https://' || name, 'benchmark',
       status::domain_status, CASE status WHEN 'blocked' THEN 'forbidden' WHEN 'unreachable' THEN 'timeout' END, 'benchmark',
       n % 200 <> 3, CASE WHEN n % 50 = 7 THEN 'crawler-' || 1 + n % 97 END,
       CASE WHEN n % 50 = 7 THEN now() + ((n % 61) - 5) * interval '1 minute' END, 3,
       CASE WHEN status <> 'pending' THEN now() - age * interval '90 days' END,
       CASE WHEN status <> 'pending' THEN now() - age * interval '90 days' END,
       CASE status WHEN 'blocked' THEN 'infinity' WHEN 'exhausted' THEN now() + random() * interval '9 days'
                   WHEN 'unreachable' THEN now() + interval '7 days' END,
       now() - random() * interval '120 days', (random() * 3000)::int - 100000,
       CASE WHEN n % 500 = 9 THEN '22:00-06:00 Europe/Berlin' END, CASE WHEN n % 100 = 11 THEN 'pool' END
FROM (SELECT n, random() AS age,
             substring(md5(n::text) FROM 1 FOR 6) || '-' || n || CASE WHEN n % 3 = 0 THEN '.co.uk' ELSE '.example' END AS name,
             CASE WHEN n % 100 < 40 THEN 'pending' WHEN n % 100 < 60 THEN 'active' WHEN n % 100 < 95 THEN 'exhausted'
                  WHEN n % 100 < 99 THEN 'blocked' ELSE 'unreachable' END AS status
      FROM generate_series(1, {domains}) n) d;

INSERT INTO claim_log (domain_id, epoch, claimed_at, ended_at, worker, why)
SELECT id, e, now() - (4 - e) * interval '1 day', CASE WHEN e < 3 OR claimed_by IS NULL THEN now() - (4 - e) * interval '23 hours' END,
       COALESCE(claimed_by, 'crawler-1'), CASE WHEN e < 3 OR claimed_by IS NULL THEN 'released' END
FROM domains, generate_series(1, 3) e;

INSERT INTO claim_log (domain_id, epoch, claimed_at, ended_at, worker, why)
SELECT (SELECT min(id) FROM domains), -e, now() - (e + 200) * interval '1 hour', now() - (e + 200) * interval '1 hour', 'crawler-1',
       'released' FROM generate_series(1, {pages} / 10) e;

INSERT INTO domain_transitions (domain_id, version, at, from_status, to_status, reason, claim_epoch)
SELECT id, v, now() - v * interval '1 day', 'pending', 'active', 'benchmark', 1 FROM domains, generate_series(1, 2) v;

INSERT INTO domain_transitions (domain_id, version, at, from_status, to_status, reason, claim_epoch)
SELECT (SELECT min(id) FROM domains), v, now() - v * interval '1 hour', 'pending', 'active', 'benchmark', 1
FROM generate_series(3, {pages} / 10) v
"""
# A tenth of everything is of the first domain; a tenth of the rest is of small jobs.
_URLS = """
CREATE TABLE benchmark_urls AS
SELECT n, d.id AS domain_id, d.base_url || '/articles/' || n AS url, substring(sha256(n::text::bytea) FROM 1 FOR 16) AS url_key,
       (SELECT min(id) FROM crawl_jobs) + CASE WHEN n % 10 = 1 THEN 2 + n / 10 % 1000 ELSE 0 END AS job_id,
       CASE WHEN n <= {pages} THEN 'done' WHEN n % 100 < 80 THEN 'waiting' WHEN n % 100 < 99 THEN 'denied' ELSE 'failed' END AS state
FROM generate_series(1, {pages} + {pages} / 2) n
JOIN domains d ON d.id = (SELECT min(id) FROM domains) + CASE WHEN n % 10 = 0 THEN 0 ELSE (n * 7919::bigint + n / 10) % {domains} END;

INSERT INTO url_frontier (domain_id, job_id, url_key, url, state, kind, priority, depth, discovered_at, not_before, reason)
SELECT domain_id, job_id, url_key, url, state::frontier_state,
       CASE WHEN n % 20 = 2 THEN 'refresh' ELSE 'discovery' END::frontier_kind, 1 + n % 3, n % 7,
       now() - ({pages} * 2 - n) * interval '5 s', CASE WHEN n % 50 = 0 AND state = 'waiting' THEN now() + interval '1 hour' END,
       CASE WHEN state IN ('denied', 'failed') THEN 'out_of_scope: benchmark' END
FROM benchmark_urls ORDER BY n;

INSERT INTO crawled_pages (domain_id, job_id, url_key, crawled_at, content_length, duration_ms, links_count, depth, status, outcome,
                           content_hash, content_type, title, description)
SELECT domain_id, job_id, url_key, now() - ({pages} - n) * interval '7 s', 20000 + n % 5000, n % 900, n % 90, n % 7,
       CASE WHEN n % 25 = 3 THEN 404 WHEN n % 1000 = 4 THEN 500 ELSE 200 END,
       CASE WHEN n % 25 = 3 THEN 'not_found' WHEN n % 1000 = 4 THEN 'server_error' WHEN n % 20 = 2 THEN 'not_modified' ELSE 'ok' END,
       sha256((n / 3)::text::bytea), CASE WHEN n % 5000 = 5 THEN 'application/pdf' ELSE 'text/html; charset=utf-8' END,
       'Article ' || n || ' on the keeping of places', 'What was found there'
FROM benchmark_urls WHERE n <= {pages} ORDER BY n;

INSERT INTO job_domains (domain_id, job_id, discovered, waiting, done, denied, failed)
SELECT domain_id, job_id, count(*), count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'done'),
       count(*) FILTER (WHERE state = 'denied'), count(*) FILTER (WHERE state = 'failed')
FROM benchmark_urls GROUP BY domain_id, job_id;

UPDATE domains d SET pages_discovered = w.discovered, frontier_size = w.waiting, pages_crawled = w.done
FROM (SELECT domain_id, sum(discovered) AS discovered, sum(waiting) AS waiting, sum(done) AS done FROM job_domains GROUP BY domain_id) w
WHERE d.id = w.domain_id;

DROP TABLE benchmark_urls
"""
# Two crawls of the first job: the second found every tenth page changed, a few gone or failed, and every hundredth new.
_CRAWLS = """
INSERT INTO crawls (job_id, state, started_at, ended_at)
SELECT (SELECT min(id) FROM crawl_jobs), 'finished', now() - n * interval '{pages} s' * 8, now() - (n - 1) * interval '{pages} s' * 8
FROM generate_series(2, 1, -1) n;

INSERT INTO page_versions (domain_id, job_id, url_key, number, crawled_at, replaced_at, crawl_id, change, status, outcome, title,
                           content_type, content_length, content_hash, noindex)
SELECT p.domain_id, p.job_id, p.url_key, v, p.crawled_at - (3 - v) * interval '9 days', p.crawled_at - (2 - v) * interval '9 days',
       (SELECT max(id) FROM crawls) - 2 + v,
       CASE WHEN p.outcome = 'not_found' THEN 'gone' WHEN p.outcome = 'server_error' THEN 'failed' ELSE 'changed' END, 200, 'ok',
       p.title || ' of old', p.content_type, p.content_length - v, sha256(p.content_hash || v::text::bytea), false
FROM crawled_pages p, generate_series(1, 2) v
WHERE p.job_id = (SELECT min(id) FROM crawl_jobs) AND (p.links_count % 10 = 3 OR p.outcome = 'server_error');

UPDATE crawled_pages SET new_in_crawl = (SELECT max(id) FROM crawls)
WHERE job_id = (SELECT min(id) FROM crawl_jobs) AND links_count = 7 AND outcome IN ('ok', 'not_modified')
"""
# A parser for every fifth page, with three items on each.
_ITEMS = """
INSERT INTO page_parses (domain_id, job_id, url_key, fetched_at, parsed_at, archive_offset, archive_length, items, due, payload_digest,
                         parser, parser_version, archive_segment)
SELECT domain_id, job_id, url_key, crawled_at, crawled_at, 0, 1000, 3, false, content_hash,
       CASE WHEN links_count % 10 = 0 THEN 'rare' ELSE 'shop' END, '1', 'machine/1.warc.gz'
FROM crawled_pages WHERE links_count % 5 = 0;

INSERT INTO items (domain_id, job_id, url_key, fetched_at, position, parser, parser_version, data)
SELECT domain_id, job_id, url_key, fetched_at, n, parser, '1', jsonb_build_object('name', 'lamp', 'place', n)
FROM page_parses, generate_series(0, 2) n
"""
_IMAGES = """
INSERT INTO images (sha256, first_seen_at, last_seen_at, size, dhash, width, height, format, media_type, near_duplicate_of, file)
SELECT sha256(n::text::bytea), now() - n * interval '1 minute', now(), n, hashtextextended(n::text, 1), 1 + n % 1000, 1 + n % 700,
       CASE WHEN n % 10 = 0 THEN 'png' ELSE 'jpeg' END, 'image/jpeg', CASE WHEN n % 7 = 1 AND n > 7 THEN n / 7 END, 'aa/aa/' || n || '.jpg'
FROM generate_series(1, {pages} / 5) n;

INSERT INTO provenance (domain_id, image_id, source_page_url, page_key, job_id, image_key, image_url, found_in)
SELECT d.first + CASE WHEN i.id % 10 = 0 THEN 0 ELSE i.id % {domains} END, i.id, 'https://x.example/' || i.id,
       substr(sha256(i.id::text::bytea), 1, 16), j.first + i.id % 900, substr(i.sha256, 1, 16), 'https://i.example/' || i.id, 'img'
FROM images i, (SELECT min(id) AS first FROM domains) d, (SELECT min(id) AS first FROM crawl_jobs) j;

INSERT INTO domain_images SELECT domain_id, image_id FROM provenance
"""
_TASKS = """
INSERT INTO crawl_batches (name) SELECT 'batch ' || n FROM generate_series(1, 500) n;

INSERT INTO crawl_tasks (domain_id, url, url_hash, status, completed_at, priority, batch_id, created_at, scheduled_at)
SELECT (SELECT min(id) FROM domains) + n % {domains} / 3, 'https://tasks.example/' || n,
       substring(sha256((-n)::text::bytea) FROM 1 FOR 16), status::task_status,
       CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN now() END, 1 + n % 10,
       CASE WHEN n % 4 = 0 THEN (SELECT min(id) FROM crawl_batches) + n % 500 END, now() - n * interval '1 s', now()
FROM (SELECT n, CASE WHEN n % 100 < 60 THEN 'completed' WHEN n % 1000 < 620 THEN 'failed' WHEN n < {tasks} / 3 * 2 THEN 'cancelled'
                     ELSE 'pending' END AS status FROM generate_series(1, {tasks}) n) t;

INSERT INTO products (domain_id, first_seen_at, last_seen_at, last_task_id, availability, page_key, identity_key, currency, price, name,
                      brand, page_url, identity)
SELECT (SELECT min(id) FROM domains) + n % LEAST(5000, {domains}), now(), now(), n,
       (ARRAY['in_stock', 'sold_out'])[1 + n % 2]::product_availability, substring(sha256(n::text::bytea) FROM 1 FOR 16),
       substring(sha256(n::text::bytea) FROM 1 FOR 16), 'EUR', n % 10000,
       (ARRAY['red', 'green', 'blue', 'plain'])[1 + n % 4] || ' lamp ' || CASE WHEN n > {products} / 2 THEN 'oak' ELSE 'steel' END || n,
       CASE WHEN n % 1000 = 1 THEN 'Rare' ELSE 'Acme ' || n % 50 END, 'https://shop.example/' || n, 'sku:' || n
FROM generate_series(1, {products}) n;

INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, delivered_at, gave_up_at, attempts)
SELECT n, 1, 'task.completed', 'https://receiver.example/' || n % 10, '{{}}', CASE WHEN n % 1000 = 1 THEN now() END,
       CASE WHEN n % 1000 > 2 THEN now() END, CASE WHEN n % 1000 IN (0, 2) THEN now() END, 1
FROM generate_series(1, {products}) n
"""
_PROXIES = """
INSERT INTO proxies (proxy_url, proxy_port, provider, country_code, is_active, disabled_by)
SELECT 'p' || n || '.example', 8080, 'provider ' || n % 20, (ARRAY['DE', 'FR', 'US'])[1 + n % 3], n % 50 <> 1,
       CASE WHEN n % 50 = 1 THEN 'health' END FROM generate_series(1, 2000) n;

INSERT INTO domain_proxies (domain_id, proxy_id, priority, success_count, requests)
SELECT (SELECT min(id) FROM domains) + 100 * d + 10, (SELECT min(id) FROM proxies) + (d * 37 + p * 53) % 2000, 1 + p % 10, 90, 100
FROM generate_series(0, LEAST({domains} / 100, 1000) - 1) d, generate_series(1, 30) p;

INSERT INTO audit_log (at, actor, action, object_kind, object_id)
SELECT now() - ({deeds} - n) * interval '20 s', CASE WHEN n % 10000 = 3 THEN 'rare' ELSE 'person-' || n % 5 END, 'edit',
       CASE WHEN n % 20000 = 4 THEN 'pool' ELSE (ARRAY['domain', 'job', 'task'])[1 + n % 3] END, (n % 1000)::text
FROM generate_series(1, {deeds}) n
"""

STEPS = {
    "jobs, workers, runs": _JOBS,
    "domains": _DOMAINS,
    "URLs and pages": _URLS,
    "crawls and versions": _CRAWLS,
    "items": _ITEMS,
    "images": _IMAGES,
    "tasks, products, webhooks": _TASKS,
    "proxies, audit log": _PROXIES,
}


def fill(
    connection: psycopg.Connection, *, pages: int, domains: int, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Fill an empty store. Before: it has the schema, and statements may take as long as they do."""
    sizes = {
        "pages": pages,
        "domains": domains,
        "runs": max(1000, pages // 20),
        "tasks": pages * 3 // 10,
        "products": pages // 5,
        "deeds": pages // 2,
    }
    connection.execute("SET work_mem = '256MB'")
    connection.execute("SET synchronous_commit = off")
    began = time.monotonic()
    for what, text in STEPS.items():
        for statement in text.format(**sizes).split(";\n\n"):
            connection.execute(statement.encode())
        tell(f"{what}: {time.monotonic() - began:.0f} s")
    connection.execute("VACUUM (ANALYZE)")
    connection.execute("RESET work_mem")
    tell(f"vacuumed: {time.monotonic() - began:.0f} s")
