"""How long a store of a million pages has to pause when it moves to another server. Prints a table; never a gate.

    python benchmarks/move.py [--pages 1000000] [--to URL] [--json FILE]

The bundled PostgreSQL runs in a folder of its own, which is removed at the end. Without --to the store moves to a second bundled server.
The store has three URLs a page, a domain for 1 000 pages, and a log of ten weeks of which one is open.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from holdfast.control.store_move import Destination, MoveService
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database

_FILL = """
INSERT INTO domains (id, domain, parent_domain, base_url, status, status_reason, pages_crawled, pages_discovered) OVERRIDING SYSTEM VALUE
    SELECT n, 'site-' || n || '.example', 'site-' || n || '.example',
           'https://site-' || n || '.example/', 'active', 'outcome: bench', 1000, 3000
    FROM generate_series(1, {domains}) n;
SELECT setval(pg_get_serial_sequence('domains', 'id'), {domains});
INSERT INTO job_domains (domain_id, job_id, state, ready, discovered, waiting, done, pages)
    SELECT n, 1, 'open', true, 3000, 1000, 2000, 1000 FROM generate_series(1, {domains}) n;
INSERT INTO url_frontier (domain_id, job_id, depth, state, url_key, parent_key, url, reason)
    SELECT 1 + n % {domains}, 1, n % 7, (ARRAY['done', 'waiting', 'denied'])[1 + n % 3]::frontier_state, decode(md5(n::text), 'hex'),
           decode(md5((n / 3)::text), 'hex'),
           'https://site-' || 1 + n % {domains} || '.example/section/' || n % 97 || '/page-' || n || '.html',
           CASE n % 3 WHEN 2 THEN 'out_of_scope' END
    FROM generate_series(0, 3 * {pages} - 1) n;
INSERT INTO crawled_pages (domain_id, job_id, crawled_at, content_length, archive_offset, archive_length, duration_ms, links_count,
                           depth, status, url_key, content_hash, payload_digest, outcome, content_type, archive_segment, etag, title,
                           description)
    SELECT 1 + n % {domains}, 1, now() - n * interval '6 seconds', 20000, n, 8000, 80, 50, n % 7, 200, decode(md5(n::text), 'hex'),
           decode(md5(n::text || 'c'), 'hex'), decode(md5(n::text || 'd'), 'hex'), 'ok', 'text/html', 'w1/20260101-000001.warc.gz',
           '"' || md5(n::text) || '"', 'The title of page ' || n,
           'A description of this page that is about as long as descriptions are, number ' || n
    FROM generate_series(0, 3 * {pages} - 1, 3) n;
INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawled_at, duration_ms, bytes, status, url_key, outcome, page_url)
    SELECT 1 + n % {domains}, 1, 1, now() - n * interval '2 seconds', 80, 8000, 200, decode(md5(n::text), 'hex'), 'ok',
           'https://site-' || 1 + n % {domains} || '.example/section/' || n % 97 || '/page-' || n || '.html'
    FROM generate_series(0, 3 * {pages} - 1, 3) n;
"""
_WEEKS = """
DO $$
DECLARE week timestamptz;
BEGIN
    FOR i IN 1 .. 13 LOOP
        week := (date_trunc('week', now() AT TIME ZONE 'UTC') - i * interval '7 days') AT TIME ZONE 'UTC';
        EXECUTE format('CREATE TABLE %I PARTITION OF crawl_log FOR VALUES FROM (%L) TO (%L)',
            'crawl_log_' || to_char(week AT TIME ZONE 'UTC', 'YYYYMMDD'), week, week + interval '7 days');
    END LOOP;
END
$$
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--to", help="an empty database of another server")
    parser.add_argument(
        "--nice", type=int, default=0, help="priority of the move, on a machine that is busy with other things"
    )
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    data, second = folder / "data", folder / "second"
    try:
        source = Database(embedded.ensure_running(data).url(), statement_timeout=0, idle_timeout=0)
        migrate.upgrade(source)
        fill(source, options.pages)
        if options.nice:
            renice(options.nice, [os.getpid(), embedded.ensure_running(data).pid])
        url = options.to or embedded.ensure_running(second).url()
        figures = move(source, Database(url), data)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    finally:
        for place in (data, second):
            if place.exists():
                embedded.stop(place)
        shutil.rmtree(folder)


def fill(database: Database, pages: int) -> None:
    """Make a store of so many pages."""
    began = time.monotonic()
    with database.session() as connection:
        connection.execute(_WEEKS)
        for statement in _FILL.format(pages=pages, domains=max(1, pages // 1000)).split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")
    print(f"A store of {pages:,} pages, made in {time.monotonic() - began:.0f} s")


def processor_seconds(servers: Sequence[int]) -> float:
    """What this process and these servers have used of the processors, with the processes that have ended."""
    total = time.process_time()
    for server in map(psutil.Process, servers):
        times = server.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
        total += sum(child.cpu_times().user + child.cpu_times().system for child in server.children(recursive=True))
    return total


def renice(nice: int, processes: Sequence[int]) -> None:
    """Give these processes, and what they start from now on, a priority."""
    for process in processes:
        os.setpriority(os.PRIO_PROCESS, process, nice)


def move(source: Database, target: Database, data: Path) -> dict[str, object]:
    """Move it, and print what that took."""
    estimates: list[float] = []
    service = MoveService(source, Destination(lambda: target, "bench", "-"), data=data, actor="bench", say=print)
    plan = service.plan()
    load = os.getloadavg()[0]
    servers = [server.pid for folder in (data, data.with_name("second")) if (server := embedded.find(folder))]
    cpu = processor_seconds(servers)
    result = service.run(confirm=estimates.append)
    print(
        f"\n{'tables':<20}{result.tables:>12,}\n{'rows':<20}{result.rows:>12,}\n{'MB with indexes':<20}{plan.bytes / 1e6:>12,.0f}"
    )
    print(f"{'rows copied ahead':<20}{result.ahead_rows:>12,}\n{'estimate, s':<20}{estimates[0]:>12.1f}")
    print(f"{'pause, s':<20}{result.pause_seconds:>12.1f}")
    for name, seconds in result.steps.items():
        print(f"  {name:<18}{seconds:>12.1f}")
    cpu = processor_seconds(servers) - cpu
    print(f"{'processor, s':<20}{cpu:>12.1f}  (this process and the bundled servers)")
    print(f"{'in all, s':<20}{result.seconds:>12.1f}\n{'load before, after':<20}{load:>8.1f}{os.getloadavg()[0]:>8.1f}")
    figures = {
        **asdict(result),
        "estimate": estimates[0],
        "bytes": plan.bytes,
        "cpu": cpu,
        "load": load,
    }
    return dict(figures)


if __name__ == "__main__":
    main()
