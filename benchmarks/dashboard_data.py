"""The rest of a big store, for `benchmarks/dashboard.py`: ten thousand jobs, one big job under way, a week of log.

The rule: added to what `lists_data` made, by plain SQL. The job `default` has most pages and a domain with more than a million URLs; its
second crawl is under way and changed half of its pages. `revive` makes a store that was kept look like one at work again.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import zstandard

from benchmarks import search_data
from holdfast.crawler.document_rows import document_row
from holdfast.db import array_params, documents, page_links, stats
from holdfast.db.documents import DocumentKey
from holdfast.model.commit_batch import UrlOutcome, VisitPart
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import LinkFacts, LinkKind, RecordedLink, target_number
from holdfast.model.url import url_key

DAYS = 7
"""Days of log."""

_JOBS = """
INSERT INTO crawl_jobs (name, state, spec, schedule, next_run_at, completed_at)
SELECT 'job-' || n, state::job_state, jsonb_build_object('max_depth', n % 10, 'scope', 'host'),
       CASE WHEN n % 20 = 0 THEN '1d' END, CASE WHEN n % 20 = 0 THEN now() + n * interval '1 minute' END,
       CASE WHEN state IN ('completed', 'failed', 'cancelled') THEN now() - n * interval '1 minute' END
FROM (SELECT n, (ARRAY['completed', 'pending', 'paused', 'failed', 'cancelled', 'completed', 'completed', 'processing'])[1 + n % 8] AS state
      FROM generate_series(1001, {jobs}) n) j;

INSERT INTO crawls (job_id, state, started_at, ended_at)
SELECT id, 'finished', now() - interval '2 days', now() - interval '1 day' FROM crawl_jobs WHERE name LIKE 'job-%';

INSERT INTO job_seeds (job_id, url_key, url)
SELECT j.id, substring(sha256(d.base_url::bytea) FROM 1 FOR 16), d.base_url || '/'
FROM crawl_jobs j JOIN domains d ON d.id = (SELECT min(id) FROM domains) + j.id % {domains} WHERE j.name LIKE 'job-%';

INSERT INTO url_frontier (domain_id, job_id, url_key, url, state, discovered_at)
SELECT (SELECT min(id) FROM domains) + (j.id * 13 + n) % {domains}, j.id, substring(sha256((j.id * 100 + n)::text::bytea) FROM 1 FOR 16),
       'https://jobs.example/' || j.id || '/' || n, CASE WHEN n % 2 = 0 THEN 'waiting' ELSE 'done' END::frontier_state, now()
FROM crawl_jobs j, generate_series(1, 10) n WHERE j.id > (SELECT id FROM crawl_jobs WHERE name = 'job-1000');

INSERT INTO job_domains (domain_id, job_id, discovered, waiting, done, pages, ready)
SELECT domain_id, job_id, count(*), count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'done'),
       count(*) FILTER (WHERE state = 'done'), false
FROM url_frontier WHERE job_id > (SELECT id FROM crawl_jobs WHERE name = 'job-1000') GROUP BY domain_id, job_id;

UPDATE domains d SET pages_discovered = w.discovered, frontier_size = w.waiting, pages_crawled = w.done
FROM (SELECT domain_id, sum(discovered) AS discovered, sum(waiting) AS waiting, sum(done) AS done FROM job_domains GROUP BY domain_id) w
WHERE d.id = w.domain_id
"""
# Of the first domain: as many URLs that were not crawled as there are pages, and more than half as many that wait.
_BIG_JOB = """
INSERT INTO url_frontier (domain_id, job_id, discovered_at, depth, priority, state, url_key, url, reason)
SELECT d.id, 1, now() - ({pages} * 2 - n) * interval '3 s', n % 12, 1 + n % 3, state::frontier_state,
       substring(sha256(('big' || n)::bytea) FROM 1 FOR 16), d.base_url || '/shop/' || n % 1000 || '/item?id=' || n,
       CASE state WHEN 'denied' THEN (ARRAY['out_of_scope: another path', 'excluded: /item', 'robots_denied',
                                            'too_deep: depth 12, limit 10', 'trap: too many of a kind', 'nofollow'])[1 + n % 6]
                  WHEN 'failed' THEN (ARRAY['timeout', 'server_error: HTTP 500', 'not_found: HTTP 404'])[1 + n % 3] END
FROM (SELECT n, CASE WHEN n % 16 < 8 THEN 'denied' WHEN n % 16 < 10 THEN 'failed' ELSE 'waiting' END AS state
      FROM generate_series(1, {pages} * 8 / 5) n) u
CROSS JOIN (SELECT id, base_url FROM domains ORDER BY id LIMIT 1) d;

UPDATE job_domains jd SET discovered = w.discovered, waiting = w.waiting, denied = w.denied, failed = w.failed
FROM (SELECT count(*) AS discovered, count(*) FILTER (WHERE state = 'waiting') AS waiting,
             count(*) FILTER (WHERE state = 'denied') AS denied, count(*) FILTER (WHERE state = 'failed') AS failed
      FROM url_frontier WHERE job_id = 1 AND domain_id = (SELECT min(id) FROM domains)) w
WHERE jd.job_id = 1 AND jd.domain_id = (SELECT min(id) FROM domains);

UPDATE domains d SET pages_discovered = w.discovered, frontier_size = w.waiting
FROM (SELECT sum(discovered) AS discovered, sum(waiting) AS waiting FROM job_domains WHERE domain_id = (SELECT min(id) FROM domains)) w
WHERE d.id = (SELECT min(id) FROM domains);

UPDATE crawls SET state = 'running', ended_at = NULL WHERE id = (SELECT max(id) FROM crawls WHERE job_id = 1);

UPDATE crawl_jobs SET state = 'processing', new_crawl = false WHERE id = 1;

UPDATE job_domains jd SET pages = jd.done, bytes = jd.done * 20000, errors = jd.failed, depth_reached = 6,
    crawl_id = (SELECT max(id) FROM crawls WHERE job_id = 1), budget_used = jd.done / 2,
    state = CASE WHEN jd.waiting = 0 THEN 'done' WHEN jd.domain_id % 100 = 9 THEN 'spent' ELSE 'open' END::job_domain_state,
    not_before = CASE WHEN jd.waiting > 0 AND jd.domain_id % 40 = 1 THEN now() + interval '3 days' END,
    ready = jd.waiting > 0 AND jd.domain_id % 100 <> 9 AND jd.domain_id % 40 <> 1 AND d.claimed_by IS NULL AND d.is_active
            AND d.status IN ('pending', 'active')
FROM domains d WHERE d.id = jd.domain_id AND jd.job_id = 1;

INSERT INTO page_versions (domain_id, job_id, url_key, number, crawled_at, replaced_at, crawl_id, change, status, outcome, title,
                           content_type, content_length, content_hash, noindex)
SELECT p.domain_id, p.job_id, p.url_key, 1, p.crawled_at - interval '9 days', p.crawled_at, (SELECT max(id) FROM crawls WHERE job_id = 1),
       CASE WHEN p.outcome = 'not_found' THEN 'gone' ELSE 'changed' END, 200, 'ok', p.title || ' of old', p.content_type,
       p.content_length - 1, sha256(p.content_hash), false
FROM crawled_pages p WHERE p.job_id = 1 AND p.links_count % 2 = 0 AND p.outcome IN ('ok', 'not_modified', 'not_found')
ON CONFLICT DO NOTHING;

INSERT INTO job_rules (job_id, version, depth_limit, registrable, actor, rules)
SELECT 1, n, 10, false, 'person-1', '{{"scope": "host", "include": [], "exclude": [], "max_depth": 10}}' FROM generate_series(0, 5) n;

UPDATE crawl_jobs SET rules_version = 5 WHERE id = 1;

INSERT INTO domain_robots (domain_id, robots_txt_url, robots_txt_content, robots_txt_last_fetched, status, expires_at, reachable, problem)
SELECT id, base_url || '/robots.txt', CASE WHEN id % 50 <> 3 THEN E'User-agent: *\\nDisallow: /private\\nCrawl-delay: 1\\n' END, now(),
       CASE WHEN id % 50 <> 3 THEN 200 END, now() + interval '1 day', id % 50 <> 3, CASE WHEN id % 50 = 3 THEN 'timeout' END
FROM domains WHERE id % 2 = 1
"""
_LOG = """
SELECT ensure_crawl_log_partitions(4);

DO $$
DECLARE
    week date := date_trunc('week', now() AT TIME ZONE 'UTC')::date - 7;
    part text := 'crawl_log_' || to_char(week, 'YYYYMMDD');
BEGIN
    IF to_regclass(part) IS NULL THEN
        EXECUTE format('CREATE TABLE %I (LIKE crawl_log INCLUDING DEFAULTS)', part);
        EXECUTE format('ALTER TABLE crawl_log ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, week::timestamp AT TIME ZONE 'UTC',
                       (week + 7)::timestamp AT TIME ZONE 'UTC');
    END IF;
END
$$
"""
_LOG_ROWS = """
INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawled_at, duration_ms, bytes, status, url_key, outcome, page_url)
SELECT d.id, CASE WHEN n %% 10 = 1 THEN 2 + n / 10 %% 1000 ELSE 1 END, 3,
       %(since)s::timestamptz + n * (%(until)s::timestamptz - %(since)s) / %(rows)s, 20 + n %% 700, 15000 + n %% 9000,
       CASE o WHEN 'timeout' THEN NULL WHEN 'not_found' THEN 404 WHEN 'server_error' THEN 500 ELSE 200 END,
       substring(sha256(n::text::bytea) FROM 1 FOR 16), o, d.base_url || '/articles/' || n
FROM (SELECT n, CASE WHEN n %% 25 = 3 THEN 'not_found' WHEN n %% 100 = 4 THEN 'server_error' WHEN n %% 200 = 5 THEN 'timeout'
                     ELSE 'ok' END AS o
      FROM generate_series(1, %(rows)s) n) r
JOIN domains d ON d.id = (SELECT min(id) FROM domains) + (n * 7919::bigint) %% (SELECT count(*) FROM domains)
"""
_GAUGES = """
UPDATE stats_minute SET frontier_size = 1000000 + extract(epoch FROM at)::bigint % 86400, active_workers = 8,
                        domains = '{"pending": 40000, "active": 20000, "exhausted": 35000, "blocked": 4000, "unreachable": 1000}'
"""
_REST = """
UPDATE crawl_runs SET crawl_id = (SELECT max(id) FROM crawls WHERE job_id = 1) WHERE status = 'running';

INSERT INTO product_prices (product_id, fetched_at, seen_until, currency, price)
SELECT p.id, now() - n * interval '1 day', now() - n * interval '1 day', 'EUR', (p.price + n % 7)
FROM products p, generate_series(1, 3) n WHERE p.id % 2 = 0;

INSERT INTO product_prices (product_id, fetched_at, seen_until, currency, price)
SELECT (SELECT min(id) FROM products), now() - n * interval '1 hour', now() - n * interval '1 hour', 'EUR', 100 + n % 7
FROM generate_series(1, 5000) n;

INSERT INTO alerts (kind, subject, value, details, since, last_seen_at, resolved_at)
SELECT 'worker_silent', 'crawler-' || n, 200, '{{}}', now() - n * interval '10 minutes', now() - n * interval '9 minutes',
       CASE WHEN n > 20 THEN now() - n * interval '9 minutes' END
FROM generate_series(1, 5000) n;

INSERT INTO operations (kind, asked_by, arguments, state, ended_at, result)
SELECT 'change-domains', 'person-1', '{{}}', 'done', now() - n * interval '1 hour', '{{}}' FROM generate_series(1, 2000) n;

INSERT INTO audit_log (at, actor, action, object_kind, object_id)
SELECT now() - n * interval '5 minutes', 'person-' || n % 5, 'edit', 'job', '1' FROM generate_series(1, 2000) n
"""
# A store that was kept is at rest: its workers beat again, hold what they held, and fetched until just now.
_REVIVE = """
UPDATE workers SET heartbeat_at = now(), activity_at = now(), activity = jsonb_build_object(
    'requests', jsonb_build_object('1', 16), 'waiting', 3,
    'fetching', (SELECT jsonb_agg(jsonb_build_object('url', base_url || '/articles/1', 'job', 1, 'seconds', 1.5))
                 FROM (SELECT base_url FROM domains WHERE claimed_by = workers.name LIMIT 6) f),
    'waits', (SELECT jsonb_agg(jsonb_build_object('domain', domain, 'job', 1, 'kind', 'delay', 'seconds', 0.5, 'detail', ''))
              FROM (SELECT domain FROM domains WHERE claimed_by = workers.name LIMIT 6) w))
WHERE substr(name, 9)::integer <= 97 AND EXISTS (SELECT FROM domains WHERE claimed_by = workers.name);

UPDATE workers SET heartbeat_at = now() WHERE substr(name, 9)::integer > 400;

UPDATE domains SET claim_expires_at = now() + ((id % 61) - 5) * interval '1 minute' WHERE claimed_by IS NOT NULL;

ANALYZE workers
"""

# The keys of all other URLs are not those of their addresses, so that no page of one of them could be found.
_KNOWN_PAGE = """
INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
SELECT id, 1, substring(sha256((base_url || '/known')::bytea) FROM 1 FOR 16), base_url || '/known', 'done' FROM domains ORDER BY id LIMIT 1;

INSERT INTO crawled_pages (domain_id, job_id, url_key, crawled_at, content_length, duration_ms, links_count, status, outcome, content_hash,
                           content_type, title)
SELECT domain_id, job_id, url_key, now(), 20000, 300, 50, 200, 'ok', sha256('known'), 'text/html', 'A known page'
FROM url_frontier WHERE job_id = 1 AND domain_id = (SELECT min(id) FROM domains)
AND url_key = (SELECT substring(sha256((base_url || '/known')::bytea) FROM 1 FOR 16) FROM domains ORDER BY id LIMIT 1);

INSERT INTO page_versions (domain_id, job_id, url_key, number, crawled_at, replaced_at, crawl_id, change, status, outcome, title,
                           content_type, content_length, content_hash, noindex)
SELECT domain_id, job_id, url_key, n, now() - (21 - n) * interval '1 day', now() - (20 - n) * interval '1 day', 1, 'changed', 200, 'ok',
       'A known page', 'text/html', 20000, sha256(n::text::bytea), false
FROM crawled_pages, generate_series(1, 20) n WHERE title = 'A known page';

INSERT INTO page_parses (domain_id, job_id, url_key, fetched_at, parsed_at, archive_offset, archive_length, items, due, payload_digest,
                         parser, parser_version, archive_segment)
SELECT domain_id, job_id, url_key, crawled_at, crawled_at, 0, 1000, 30, false, content_hash, 'shop', '1', 'machine/1.warc.gz'
FROM crawled_pages WHERE title = 'A known page';

INSERT INTO items (domain_id, job_id, url_key, fetched_at, position, parser, parser_version, data)
SELECT p.domain_id, p.job_id, p.url_key, now(), n, 'shop', '1', jsonb_build_object('name', 'lamp', 'place', n)
FROM crawled_pages p, generate_series(0, 29) n WHERE p.title = 'A known page'
"""

# Every page of the job `default` has one of these sets of links; all of them lead to the known page.
_LINK_SETS = """
INSERT INTO page_links (domain_id, job_id, url_key, links, cut, targets, body)
SELECT p.domain_id, p.job_id, p.url_key, s.links, 0, s.targets::bigint[], s.body
FROM crawled_pages p
JOIN unnest(%(numbers)s::bigint[], %(links)s::int[], %(targets)s::text[], %(bodies)s::bytea[]) AS s(number, links, targets, body)
  ON s.number = get_byte(p.url_key, 0) * 4 + get_byte(p.url_key, 1) %% 4
WHERE p.job_id = 1
ON CONFLICT DO NOTHING
"""
LINK_SETS = 1024
LINKS = 12
"""Of a page, beside the one to the known page and a broken one."""
_SITEMAPS = """
INSERT INTO sitemaps (domain_id, job_id, url_key, read_at, format, entries, skipped, bytes, problem)
SELECT domain_id, job_id, url_key, now(), 'urlset', 50000, 3, 5000000, CASE WHEN row_number() OVER () % 10 = 0 THEN 'it is cut' END
FROM url_frontier WHERE job_id = 1 AND domain_id = (SELECT min(id) FROM domains) AND state = 'done' LIMIT 200
"""

STEPS = {
    "jobs": _JOBS,
    "one big job": _BIG_JOB,
    "log": _LOG,
    "prices, alerts, operations": _REST,
    "a known page": _KNOWN_PAGE,
    "sitemaps": _SITEMAPS,
}


def fill(
    connection: psycopg.Connection,
    *,
    pages: int,
    domains: int,
    jobs: int,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Add the rest to a store that `lists_data.fill` has filled."""
    sizes = {"pages": pages, "domains": domains, "jobs": jobs}
    began = time.monotonic()
    connection.execute("SET work_mem = '256MB'")
    connection.execute("SET synchronous_commit = off")
    for what, text in STEPS.items():
        for statement in text.format(**sizes).split(";\n\n"):
            connection.execute(statement.encode())
        tell(f"{what}: {time.monotonic() - began:.0f} s")
    for day in range(DAYS):
        _log(connection, pages // DAYS, timedelta(days=1), before=timedelta(days=DAYS - 1 - day))
    connection.execute(_GAUGES)
    tell(f"a week of log: {time.monotonic() - began:.0f} s")
    _links(connection)
    tell(f"links: {time.monotonic() - began:.0f} s")
    _documents(connection, pages // 50)
    tell(f"documents: {time.monotonic() - began:.0f} s")
    connection.execute("VACUUM (ANALYZE)")
    connection.execute("RESET work_mem")
    tell(f"vacuumed: {time.monotonic() - began:.0f} s")


def _links(connection: psycopg.Connection) -> None:
    """Links of all pages of the job `default`: to the known page, to one of the broken URLs, and to others."""
    row = connection.execute("SELECT id, base_url FROM domains ORDER BY id LIMIT 1").fetchone()
    assert row is not None
    domain, home = row
    sets = [_link_set(home, number) for number in range(LINK_SETS)]
    compressor = zstandard.ZstdCompressor()
    parameters = {
        "numbers": array_params.numbers(range(LINK_SETS)),
        "links": array_params.numbers(len(links) for links in sets),
        "targets": [array_params.numbers(sorted(target_number(url_key(link.url)) for link in links)) for links in sets],
        "bodies": array_params.keys(compressor.compress(json.dumps(links).encode()) for links in sets),
    }
    connection.execute(_LINK_SETS, parameters)
    broken = [
        UrlOutcome(1, url_key(url), url, 0, Outcome.NOT_FOUND, UrlState.FAILED, status=404) for url in _broken(home)
    ]
    for outcome in broken:
        outcome.link_facts = LinkFacts(None)
    page_links.record(connection, [VisitPart(domain, 1, broken)])
    options = """{"links": true, "markdown": true}"""
    connection.execute("UPDATE crawl_jobs SET spec = spec || %s::jsonb WHERE id = 1", (options,))


def _broken(home: str) -> list[str]:
    return [f"{home}/gone/{number}" for number in range(LINK_SETS)]


def _link_set(home: str, number: int) -> tuple[RecordedLink, ...]:
    targets = [f"{home}/known", f"{home}/gone/{number}"]
    targets += [f"{home}/shop/{(number * 31 + place) % 5000}" for place in range(LINKS)]
    return tuple(RecordedLink(url, f"to {url}", "", LinkKind.A) for url in targets)


def _documents(connection: psycopg.Connection, count: int) -> None:
    """The main content of these many pages of the first domain, the known page first."""
    words = {code: search_data.Words(code) for code in search_data.LANGUAGES}
    keys = connection.execute(
        "SELECT domain_id, job_id, url_key FROM crawled_pages WHERE job_id = 1 AND domain_id = (SELECT min(id) FROM domains)"
        " ORDER BY title <> 'A known page', url_key LIMIT %s",
        (count,),
    ).fetchall()
    for number, key in enumerate(keys):
        row = document_row(search_data.extracted(words[search_data.language_of(number)], number))
        assert row is not None
        documents.put(connection, DocumentKey(*key), row, datetime.now(UTC))


def revive(connection: psycopg.Connection) -> None:
    """Let the workers of the store be at work: heartbeats, claims, and a log of the last quarter of an hour with 50 requests a second."""
    for statement in _REVIVE.split(";\n\n"):
        connection.execute(statement.encode())
    _log(connection, 45_000, timedelta(minutes=15))


def _log(connection: psycopg.Connection, rows: int, span: timedelta, before: timedelta = timedelta(0)) -> None:
    """Add rows of the log, up to this long before now, and fold what is no longer fresh, as the tick does."""
    until = stats.now(connection) - before
    connection.execute(_LOG_ROWS, {"since": until - span, "until": until, "rows": rows})
    folded = stats.fold(connection, every=timedelta(0))
    assert not folded.faults, folded.faults
