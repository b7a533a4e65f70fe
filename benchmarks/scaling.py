"""How a crawl grows: workers, domains, dead names, a huge frontier. Prints tables; never a gate.

    python benchmarks/scaling.py [--only workers many dead restart] [--seconds 20] [--urls 10000000] [--data FOLDER] [--json FILE]

Everything runs on this machine: a simulated web, the bundled PostgreSQL in a folder of its own (removed at the end unless --data
named it) and worker processes as `holdfast crawl` starts them.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from holdfast.db import embedded
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.access_log import Hit, boot_ns
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web

PARTS = ("workers", "many", "dead", "restart")
PER_WORKER = 25
DEAD = 10
SITE = Site(pages=2000, links=20, body_bytes=3000, latency=0.02, jitter=0.03)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=20, help="how long each crawl is watched")
    parser.add_argument("--urls", type=int, default=10_000_000, help="URLs in the huge frontier")
    parser.add_argument("--data", type=Path, help="keep the databases here")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = options.data or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    figures: dict[str, Any] = {}
    try:
        if "workers" in options.only:
            figures["workers"] = bench_workers(folder, options.seconds)
        if "many" in options.only:
            figures["many"] = bench_many(folder, options.seconds)
        if "dead" in options.only:
            figures["dead"] = bench_dead(folder)
        if "restart" in options.only:
            figures["restart"] = bench_restart(folder, options.urls)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        if not options.data:
            shutil.rmtree(folder)


# Workers -------------------------------------------------------------------------------------------------------------


def bench_workers(folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Throughput of N workers, each with so many domains as are bound by their delay."""
    print(f"\nWorkers: {PER_WORKER} domains each, a request a second to each; watched for {seconds:.0f} s")
    print(f"{'workers':>7}{'pages/s':>10}{'of N x one':>12}{'closest gap':>13}{'web CPU':>9}{'workers CPU':>13}")
    results: list[dict[str, Any]] = []
    for count in (1, 2, 4, 8):
        plan = Web(1, PER_WORKER * 8, SITE)
        with WebProcess(plan) as web, store(folder / f"workers-{count}") as data:
            crawl = start(data, web.urls, "--workers", str(count), "--delay", "1", WORKER_DOMAINS=str(PER_WORKER))
            wait_until(lambda web=web, count=count: len(web.stats()["requests"]) >= PER_WORKER * count)
            time.sleep(3)  # until all have their first page behind them
            began, cpu = now(), cpu_of(crawl.pid)
            time.sleep(seconds)
            ended = now()
            spent = (cpu_of(crawl.pid) - cpu) / seconds
            web_cpu = sum(psutil.Process(web.pid).cpu_times()[:2]) / (ended - began)
            end(crawl)
            seen = pages(web.log())
        rate = sum(began <= hit.at < ended for hit in seen) / (ended - began)
        share = rate / (results[0]["rate"] * count) if results else 1.0
        gap = min(min(gaps) for host in {hit.host for hit in seen} if (gaps := log_checks.gaps(seen, host)))
        results.append({"workers": count, "rate": rate, "share": share, "gap": gap})
        print(f"{count:>7}{rate:>10.1f}{share:>12.2f}{gap:>11.3f} s{web_cpu:>9.2f}{spent:>13.2f}", flush=True)
    return results


def bench_many(folder: Path, seconds: float) -> dict[str, Any]:
    """Eight workers with 200 domains each: what holds at the end."""
    print(f"\nMany domains: 8 workers, 200 domains each, a request every 10 s to each; stopped after {seconds:.0f} s")
    with WebProcess(Web(2, 1600, SITE)) as web, store(folder / "many") as data:
        began = time.monotonic()
        crawl = start(data, web.urls, "--workers", "8", "--delay", "10", WORKER_DOMAINS="200")
        wait_until(lambda: len(web.stats()["requests"]) >= 1600, 300)
        all_begun = time.monotonic() - began
        time.sleep(seconds)
        memory = [child.memory_info().rss for child in psutil.Process(crawl.pid).children()]
        stopping = time.monotonic()
        end(crawl)
        stopped = time.monotonic() - stopping
        holders, overlaps = rows(
            data,
            "SELECT count(DISTINCT worker), (SELECT count(*) FROM claim_log a JOIN claim_log b ON a.domain_id = b.domain_id "
            "AND a.epoch < b.epoch AND (a.ended_at IS NULL OR a.ended_at > b.claimed_at)) FROM claim_log",
        )[0]
        clean = holdfast(data, "verify", "--json").returncode == 0
        close = len(log_checks.too_close(web.log(), 10))
    figures = {
        "all begun after": f"{all_begun:.1f} s",
        "stopped within": f"{stopped:.1f} s",
        "workers that held domains": holders,
        "overlapping tenures": overlaps,
        "requests too close": close,
        "verify": "clean" if clean else "NOT CLEAN",
        "largest worker": f"{max(memory) >> 20} MB",
    }
    show(figures)
    return figures


# Dead names ----------------------------------------------------------------------------------------------------------


def bench_dead(folder: Path) -> dict[str, Any]:
    """Good hosts alone, and beside names that do not exist or that no server answers for."""
    print(f"\nDead names: 20 good sites of 40 pages, alone and beside {DEAD} unknown and {DEAD} unanswered names")
    took = {}
    for beside in (False, True):
        with (
            WebProcess(Web(3, 20, Site(40, 10, 3000, latency=0.02))) as web,
            store(folder / f"dead-{beside}") as data,
            name_server() as address,
        ):
            dead = [f"http://a-{kind}{i}.example/" for kind in ("unknown", "silent") for i in range(DEAD)]
            urls = [*(dead if beside else []), *web.urls]  # by their names the dead ones are met first
            crawl = start(data, urls, "--workers", "1", "--delay", "0.1", FETCH_DNS_SERVERS=address)
            wait_until(lambda web=web: sum(web.stats()["requests"].values()) >= 20 * 41, 300)
            seen = web.log()
            took["beside" if beside else "alone"] = max(hit.ended_at for hit in seen) - seen[0].at
            end(crawl)
    took["ratio"] = took["beside"] / took["alone"]
    show({name: f"{value:.2f}{'' if name == 'ratio' else ' s'}" for name, value in took.items()})
    return took


@contextmanager
def name_server() -> Iterator[str]:
    """Says of names with "unknown" in them that they do not exist, and nothing of others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    question, client = server.recvfrom(4096)
                except TimeoutError:
                    continue
                if b"unknown" in question:
                    server.sendto(question[:2] + b"\x81\x83" + question[4:6] + b"\0" * 6 + question[12:], client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


# A huge frontier -----------------------------------------------------------------------------------------------------

# In the order of the key, and without the second index: ten million rows in a minute or two instead of ten.
_FILL = """
INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth, priority)
SELECT %(domain)s, %(job)s, substring(sha256(u.url::bytea) FROM 1 FOR 16) AS key, u.url, 3, 2
FROM (SELECT %(origin)s || '/deep/' || i AS url FROM generate_series(1, %(urls)s::bigint) i) u ORDER BY key
"""
_COUNT = """
WITH counted AS (UPDATE job_domains SET discovered = discovered + %(urls)s, waiting = waiting + %(urls)s WHERE domain_id = %(domain)s)
UPDATE domains SET pages_discovered = pages_discovered + %(urls)s, frontier_size = frontier_size + %(urls)s WHERE id = %(domain)s
"""


def bench_restart(folder: Path, urls: int) -> dict[str, Any]:
    """kill -9 with a huge frontier: how soon the same command asks for the next page, and what the worker weighs."""
    print(f"\nRestart: one domain with {urls:,} URLs waiting")
    figures: dict[str, Any] = {}
    with WebProcess(Web(4, 1, Site(50, 5, 3000, latency=0.01))) as web, store(folder / "restart") as data:
        many = "1000000000"
        words = (web.urls, "--workers", "1", "--max-pages", many, "--max-pages-per-domain", many)
        holdfast(data, "crawl", web.url(), "--workers", "1", "--max-pages", "1", "--delay", "0", PRIVATE="true")
        figures["filled in"] = f"{fill(data, web.address.origin(0), urls):.0f} s"
        crawl = start(data, *words, "--delay", "0.01")
        memory = watch(crawl, web, 20)
        figures["pages/s at full speed"] = round(memory.pop("rate"))
        figures["largest worker"] = f"{memory['rss'] / 1e6:.0f} MB"
        crawl.kill()
        crawl.wait()
        killed = now()
        for delay in ("0.01", "1"):
            crawl = start(data, *words, "--delay", delay)
            wait_until(lambda web=web, killed=killed: any(hit.at > killed for hit in web.log()))
            first = next(hit for hit in web.log() if hit.at > killed)
            figures[f"first request after kill -9, delay {delay} s"] = f"{first.at - killed:.2f} s"
            began = rows(data, "SELECT extract(epoch FROM max(started_at))::float8 FROM workers")[0][0]
            figures[f"  of that since the worker was up, delay {delay} s"] = f"{first.wall - began:.2f} s"
            time.sleep(2)  # it is in the middle of it
            crawl.kill()
            crawl.wait()
            killed = now()
        began = time.monotonic()
        clean = holdfast(data, "verify", "--no-archive", "--json").returncode == 0
        figures["verify"] = f"{'clean' if clean else 'NOT CLEAN'}, in {time.monotonic() - began:.0f} s"
    show(figures)
    return figures


def fill(data: Path, origin: str, urls: int) -> float:
    began = time.monotonic()
    with psycopg.connect(embedded.ensure_running(data).url(), autocommit=True) as connection:
        row = connection.execute("SELECT domain_id, job_id FROM job_domains").fetchone()
        assert row is not None
        key = {"domain": row[0], "job": row[1], "origin": origin, "urls": urls}
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'url_frontier_waiting'"
        ).fetchone()
        assert found is not None
        connection.execute("SET work_mem = '1GB'; SET maintenance_work_mem = '1GB'")
        with connection.transaction():
            connection.execute("DROP INDEX url_frontier_waiting")
            connection.execute(_FILL, key)
            connection.execute(found[0])
            connection.execute(_COUNT, key)
            connection.execute("UPDATE job_domains SET state = 'open' WHERE state <> 'open'")
        connection.execute("ANALYZE url_frontier")
    return time.monotonic() - began


def watch(crawl: "subprocess.Popen[bytes]", web: WebProcess, seconds: float) -> dict[str, float]:
    """Requests a second and the worker's weight, over a while."""
    before = len(web.log())
    wait_until(lambda: len(web.log()) > before, 120)
    process, most, began, first = psutil.Process(crawl.pid), 0, time.monotonic(), len(web.log())
    while time.monotonic() - began < seconds:
        most = max(most, process.memory_info().rss)
        time.sleep(0.2)
    return {"rss": most, "rate": (len(web.log()) - first) / (time.monotonic() - began)}


# What they share -----------------------------------------------------------------------------------------------------


@contextmanager
def store(data: Path) -> Iterator[Path]:
    """A data folder with a running server; stopped at the end, and gone."""
    embedded.ensure_running(data)
    try:
        yield data
    finally:
        embedded.stop(data)
        shutil.rmtree(data)


def start(data: Path, urls: list[str], *words: str, **settings: str) -> "subprocess.Popen[bytes]":
    """`holdfast crawl` in the background; what it says goes nowhere."""
    seeds = data / "seeds.txt"
    seeds.write_text("".join(f"{url}\n" for url in urls))
    command = [sys.executable, "-m", "holdfast", "--data", str(data), "crawl", "--seeds", str(seeds), "--allow-private"]
    return subprocess.Popen(
        [*command, *words], env=environment(**settings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def end(crawl: "subprocess.Popen[bytes]") -> None:
    crawl.send_signal(signal.SIGINT)
    crawl.wait(120)


def holdfast(data: Path, *words: str, PRIVATE: str = "") -> "subprocess.CompletedProcess[bytes]":  # noqa: N803
    command = [sys.executable, "-m", "holdfast", "--data", str(data), *words]
    settings = {"FETCH_ALLOW_PRIVATE": PRIVATE} if PRIVATE else {}
    return subprocess.run(command, env=environment(**settings), stdout=subprocess.DEVNULL, check=False)


def environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "ENABLE_"))}
    return kept | {f"HOLDFAST_{name}": value for name, value in settings.items()}


def rows(data: Path, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(embedded.ensure_running(data).url(), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def pages(hits: list[Hit]) -> list[Hit]:
    return [hit for hit in hits if hit.path != "/robots.txt"]


def cpu_of(pid: int) -> float:
    """Seconds that a process and its children have used."""
    process = psutil.Process(pid)
    return float(sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)]))


def now() -> float:
    return boot_ns() / 1e9


def wait_until(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("It did not come as far as that; is the machine too busy?")
        time.sleep(0.05)


def show(figures: dict[str, Any]) -> None:
    width = max(map(len, figures)) + 2
    for name, value in figures.items():
        print(f"  {name:<{width}}{value}", flush=True)


if __name__ == "__main__":
    main()
