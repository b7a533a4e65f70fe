"""What the store costs at a million domains: seeds, claims, flushes. Prints tables; never a gate.

    python benchmarks/store.py [--domains 1000000] [--data FOLDER] [--json FILE]

The bundled PostgreSQL runs in a folder of its own, which is removed at the end unless --data named it.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast.db import claims, embedded, jobs
from holdfast.db.connection import Database
from holdfast.model.domain import Claim
from holdfast.model.visit_report import DomainProgress

LEASE = timedelta(minutes=30)
PROCESSES = 8
BATCH = 10
Times = list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="keep the database here, and use what is in it")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    data = options.data or folder / "data"
    figures: dict[str, Any] = {"domains": options.domains}
    try:
        figures["seeds"] = bench_seeds(folder, data, options.domains)
        database = Database(embedded.ensure_running(data).url())
        figures["plan"] = show_plan(database)
        figures["claims"] = bench_claims(database, cooling=min(100_000, options.domains // 10))
        figures["flush"] = bench_flush(database)
        figures["commands"] = bench_commands(data)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        embedded.stop(data)
        shutil.rmtree(folder)


# Seeds ---------------------------------------------------------------------------------------------------------------


def bench_seeds(folder: Path, data: Path, count: int) -> list[dict[str, Any]]:
    """Load `rank,domain` lines twice; between the two, domains learn something that the second load must not touch."""
    file = folder / "ranks.csv"
    chance = random.Random(7)
    with file.open("w") as out:
        for rank in range(1, count + 1):
            out.write(f"{rank},{chance.randrange(16**6):06x}-{rank}.{'com' if rank % 3 else 'co.uk'}\n")
    print(
        f"\nSeeds: {count:,} lines `rank,domain`\n{'':<8}{'seconds':>9}{'lines/s':>10}{'peak MB':>9}{'new domains':>13}  learnt state"
    )
    results: list[dict[str, Any]] = []
    before = ""
    for load in ("first", "again"):
        began = time.monotonic()
        answer = _holdfast(data, "seeds", "load", str(file), "--json")
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        database = Database(embedded.ensure_running(data).url(), statement_timeout=0)
        after = _fingerprint(database)
        learnt = "" if load == "first" else "unchanged" if after == before else "CHANGED"
        results.append({"load": load, "seconds": seconds, "peak_mb": peak, "new": answer["domains"], "learnt": learnt})
        print(f"{load:<8}{seconds:>9.1f}{count / seconds:>10,.0f}{peak:>9.0f}{answer['domains']:>13,}  {learnt}")
        if load == "first":
            with database.session() as connection:
                connection.execute(
                    "UPDATE domains SET pages_crawled = id % 100, total_error_count = id % 7, status = 'active',"
                    " status_reason = 'outcome: bench' WHERE id <= 1000"
                )
            before = _fingerprint(database)
    return results


def _fingerprint(database: Database) -> str:
    with database.session() as connection:
        row = connection.execute("SELECT sum(hashtextextended(d::text, 0))::text FROM domains d").fetchone()
    return str(row and row[0])


# Claims --------------------------------------------------------------------------------------------------------------


def show_plan(database: Database) -> list[str]:
    """The plan of the claim, which must walk the index of ready work and nothing else."""
    with database.session() as connection, connection.transaction(force_rollback=True):
        connection.execute("ANALYZE domains, job_domains")
        job = jobs.find(connection, jobs.DEFAULT)
        rows = connection.execute(
            f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {claims._TAKE}",
            {"worker": "plan", "job": job, "count": BATCH, "lease": LEASE, "generation": 1},
        ).fetchall()
    plan = [str(row[0]) for row in rows]
    scans = [line.strip() for line in plan if "Scan" in line and "CTE" not in line]
    print("\nThe claim reads:\n" + "\n".join(f"  {line}" for line in scans))
    return scans


def bench_claims(database: Database, cooling: int) -> list[dict[str, Any]]:
    """Eight processes claim batches, as fast as they can and paced, with more and more claims held and domains cooling."""
    print(
        f"\nClaims: {PROCESSES} processes, batches of {BATCH}; times of a claim in the server and at the client in ms"
    )
    widths = {"held": 8, "cooling": 9, "pace": 10, "taken": 8, "twice": 7, "claims/s": 10}
    times = {"server p50": 12, "server p99": 12, "client p50": 12, "client p99": 12}
    print("".join(f"{name:>{width}}" for name, width in (widths | times).items()))
    results = []
    cases = [
        (0, 0),
        (10_000, 0),
        (30_000, 0),
        (30_000, cooling),
        (0, cooling),
    ]  # the last tells growth from a slower machine
    for number, (held, cold) in enumerate(cases):
        _hold(database, held)
        if cold and not cases[number - 1][1]:
            _cool(database, cold)
        _settle(database)
        for pace in (None, 10.0):
            taken = 10_000 if pace is None else 4_000
            result = _race(database, taken, pace) | {"held": held, "cooling": cold, "pace": pace}
            results.append(result)
            print(
                f"{held:>8,}{cold:>9,}{'none' if pace is None else f'{pace:.0f}/s each':>10}{result['taken']:>8,}{result['twice']:>7}"
                f"{result['per_second']:>10,.0f}{result['server_p50']:>12.2f}{result['server_p99']:>12.2f}"
                f"{result['client_p50']:>12.2f}{result['client_p99']:>12.2f}"
            )
    return results


def _settle(database: Database) -> None:
    """Let the server finish what the load left it to do, so that its vacuum and checkpoint are not in the claims' times."""
    with Database(database.url, statement_timeout=0).session() as connection:
        for table in ("domains", "job_domains", "url_frontier"):
            connection.execute(f"VACUUM (ANALYZE) {table}")
    with psycopg.connect(database.url.replace("//holdfast@", "//postgres@"), autocommit=True) as admin:
        admin.execute("CHECKPOINT")


def _race(database: Database, wanted: int, pace: float | None) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES + 1)
    with context.Pool(PROCESSES, initializer=_remember, initargs=(start,)) as pool:
        jobs_ = [pool.apply_async(_take, (database, f"racer-{n}", wanted // PROCESSES, pace)) for n in range(PROCESSES)]
        start.wait()
        began = time.monotonic()
        parts = [job.get() for job in jobs_]
        seconds = time.monotonic() - began
    ids = Counter(i for part in parts for i in part[0])
    server = sorted(t for part in parts for t in part[1])
    client = sorted(t for part in parts for t in part[2])
    with database.session() as connection:
        _free(connection, "racer-%")
    return {
        "taken": len(ids),
        "twice": sum(n > 1 for n in ids.values()),
        "per_second": len(ids) / seconds,
        "server_p50": _quantile(server, 0.5),
        "server_p99": _quantile(server, 0.99),
        "client_p50": _quantile(client, 0.5),
        "client_p99": _quantile(client, 0.99),
    }


def _remember(start: Any) -> None:
    _take.start = start  # type: ignore[attr-defined]


def _take(database: Database, worker: str, wanted: int, pace: float | None) -> tuple[list[int], Times, Times]:
    """Claim until `wanted` domains are taken: (ids, server-side ms, client-side ms)."""
    ids: list[int] = []
    server: Times = []
    client: Times = []
    with database.connect() as connection:
        connection.prepare_threshold = 0
        job = jobs.find(connection, jobs.DEFAULT)
        parameters = {"worker": worker, "job": job, "count": BATCH, "lease": LEASE, "generation": 1}
        _take.start.wait()  # type: ignore[attr-defined]
        due = time.monotonic() + random.random() / (pace or 1)
        while len(ids) < wanted:
            if pace:
                time.sleep(max(0.0, due - time.monotonic()))
                due += 1 / pace
            asked = time.perf_counter()
            with connection.transaction():  # as `claims.claim` does it
                taken, in_take = _timed(connection, claims._TAKE, parameters)
                batch = {"ids": [row[0] for row in taken], "epochs": [row[1] for row in taken], "worker": worker}
                _, in_enter = _timed(connection, claims._ENTER, batch)
            client.append((time.perf_counter() - asked) * 1000)
            server.append(in_take + in_enter)
            ids += batch["ids"]
    return ids, server, client


def _free(connection: psycopg.Connection, workers: str) -> None:
    """Give back what these workers hold, as their releases would: free, logged, ready again."""
    end = "UPDATE claim_log SET ended_at = clock_timestamp(), why = 'released' WHERE ended_at IS NULL AND domain_id = ANY(%s)"
    with connection.transaction():
        freed = connection.execute(
            "UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL WHERE claimed_by LIKE %s RETURNING id",
            (workers,),
        )
        ids = [row[0] for row in freed]
        connection.execute(end, (ids,))
        connection.execute("UPDATE job_domains SET ready = true WHERE domain_id = ANY(%s)", (ids,))


def _timed(connection: psycopg.Connection, query: str, parameters: Any) -> tuple[list[tuple[Any, ...]], float]:
    """The rows, and the milliseconds between two looks at the server's clock, with no turn of ours in between."""
    with connection.pipeline():
        first = connection.execute("SELECT clock_timestamp()")
        rows = connection.execute(query, parameters)
        last = connection.execute("SELECT clock_timestamp()")
    begin, end = first.fetchone(), last.fetchone()
    assert begin
    assert end
    return rows.fetchall(), (end[0] - begin[0]).total_seconds() * 1000


def _hold(database: Database, count: int) -> None:
    """Let a crowd of other workers hold `count` domains."""
    with database.session() as connection:
        job = jobs.find(connection, jobs.DEFAULT)
        row = connection.execute("SELECT count(*) FROM domains WHERE claimed_by LIKE 'holder-%'").fetchone()
        missing = count - (row[0] if row else 0)
        if missing < 0:
            _free(connection, "holder-%")
        while missing > 0:
            taken = claims.claim(
                connection, worker=f"holder-{missing % 100}", job_id=job, count=min(1000, missing), lease=LEASE
            )
            missing -= len(taken)


def _cool(database: Database, count: int) -> None:
    """Let the `count` best domains be blocked and cooling down: what the claim would meet first if it looked at them."""
    with Database(database.url, statement_timeout=0).session() as connection, connection.transaction():
        connection.execute(
            "CREATE TEMPORARY TABLE cold AS SELECT domain_id AS id FROM job_domains WHERE ready ORDER BY priority DESC, domain_id LIMIT %s",
            (count,),
        )
        connection.execute(
            "UPDATE domains SET status = 'blocked', block_reason_code = 'rate_limited', status_reason = 'rate_limited: bench',"
            " next_crawl_after = now() + interval '7 days' WHERE id IN (SELECT id FROM cold)"
        )
        connection.execute("UPDATE job_domains SET ready = false WHERE domain_id IN (SELECT id FROM cold)")


# Flushes and commands ------------------------------------------------------------------------------------------------


def bench_flush(database: Database) -> dict[str, Any]:
    """2 500 flushes of held domains: every one a heap-only update, or an index names a column that it should not."""
    with database.session() as connection:
        job = jobs.find(connection, jobs.DEFAULT)
        held = claims.claim(connection, worker="flusher", job_id=job, count=25, lease=LEASE)
        _flush(connection, held, 1)  # the first makes pending domains active, which an index may notice
        before = _hot(connection)
        began = time.monotonic()
        for _ in range(100):
            _flush(connection, held, 1)
        seconds = time.monotonic() - began
        after = _hot(connection)
    updates, hot = after[0] - before[0], after[1] - before[1]
    print(
        f"\nFlush: {updates:,} updates of held domains, {hot:,} of them heap-only, {seconds * 10:.1f} ms a transaction of 25"
    )
    return {"updates": updates, "hot": hot, "ms_per_transaction": seconds * 10}


def _flush(connection: psycopg.Connection, held: list[Claim], pages: int) -> None:
    with connection.transaction():
        passed = claims.fence(connection, worker="flusher", held=[(c.domain_id, c.epoch) for c in held])
        assert len(passed) == len(held)
        progress = [DomainProgress(c.domain_id, outcomes=pages, pages_crawled=pages, images_found=3) for c in held]
        claims.flush(connection, progress=progress, lease=LEASE)


def _hot(connection: psycopg.Connection) -> tuple[int, int]:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'domains'"
    ).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def bench_commands(data: Path) -> dict[str, float]:
    """How long a person waits."""
    print("\nCommands")
    seconds = {}
    for words in (["domain-status"], ["claims"], ["top-domains"], ["recalculate-priorities"]):
        began = time.monotonic()
        _holdfast(data, *words, "--json")
        seconds[words[0]] = time.monotonic() - began
        print(f"{words[0]:<24}{seconds[words[0]]:>7.1f} s")
    return seconds


def _holdfast(data: Path, *words: str) -> Any:
    answer = subprocess.run(
        [sys.executable, "-m", "holdfast", "--data", str(data), *words],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    return json.loads(answer.stdout)


def _quantile(ordered: Times, part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


if __name__ == "__main__":
    main()
