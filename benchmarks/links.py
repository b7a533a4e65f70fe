"""What recording links costs: CPU seconds of whole crawls without and with `--links`, in alternating rounds. Prints a table; never a gate.

    python -m benchmarks.links [--pages 4000] [--rounds 3] [--before PATH]

The site is that of `benchmarks/speed`, served by nginx. CPU is user and system time of the worker and of its bundled PostgreSQL, so other
work on the machine counts little. `--before` names the `holdfast` program of another version, which takes part without the option.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.speed import site

_OPTIONS: Final = (
    "--delay",
    "0",
    "--concurrency",
    "16",
    "--workers",
    "1",
    "--allow-private",
    "--sitemaps",
    "no",
    "--json",
)


def main() -> None:
    """Crawl in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    work = options.work.resolve()
    root = site.generate(work / f"links-{options.pages}", options.pages, 1)
    ours = Path(sys.executable).with_name("holdfast")
    contenders: dict[str, tuple[Path, Sequence[str]]] = {"without": (ours, ()), "with --links": (ours, ("--links",))}
    if options.before is not None:
        contenders = {"before": (options.before, ()), **contenders}
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    with site.served(work / "nginx", [root]) as server:
        for number in range(options.rounds):
            order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
            for name in order:
                cost, disk = crawl(work / "run", *contenders[name], server.urls[0], options.pages)
                costs[name].append(cost)
                print(
                    f"round {number + 1}  {name:14}{cost:8.3f} ms of CPU a page  {disk / options.pages:8.0f} bytes a page",
                    flush=True,
                )
    base = costs[next(iter(costs))]
    for name, found in costs.items():
        ratios = [one / other for one, other in zip(found, base, strict=True)]
        print(
            f"{name:14}{median(found):8.3f} ms  ratio {median(ratios):.3f}  ({', '.join(f'{one:.3f}' for one in ratios)})"
        )


def crawl(folder: Path, program: Path, more: Sequence[str], url: str, pages: int) -> tuple[float, int]:
    """Milliseconds of CPU that a page costs, and the bytes of the links in the database."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(program), "--data", str(folder / "data")]
    environment = {**os.environ, "HOLDFAST_CRAWL_DISCOVERED_PER_SECOND": "0"}
    subprocess.run([*command, "db", "upgrade"], check=True, capture_output=True, env=environment)
    try:
        server = postgres(folder)
        before = used(server)
        began = os.times()
        crawled = subprocess.run(
            [*command, "crawl", url, *_OPTIONS, *more],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
        )
        ended = os.times()
        time.sleep(1)  # backends end, and their time is the server's
        cost = (
            used(server)
            - before
            + ended.children_user
            + ended.children_system
            - began.children_user
            - began.children_system
        )
        done = json.loads(crawled.stdout)
        assert done["pages"] >= pages, done
        query = "SELECT COALESCE(pg_total_relation_size(to_regclass('page_links')), 0)"
        asked = subprocess.run(
            [*command, "db", "psql", "--", "-Atc", query], check=False, capture_output=True, text=True
        )
        return cost / done["pages"] * 1000, int(asked.stdout.strip() or 0)
    finally:
        subprocess.run([*command, "db", "stop"], check=True, capture_output=True, env=environment)


def postgres(folder: Path) -> psutil.Process:
    """The server of a data folder."""
    pid = next(folder.rglob("postmaster.pid")).read_text().splitlines()[0]
    return psutil.Process(int(pid))


def used(server: psutil.Process) -> float:
    """CPU seconds of the server and all its processes, those that have ended included."""
    times = [server.cpu_times(), *(child.cpu_times() for child in server.children())]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


if __name__ == "__main__":
    main()
