"""What one page costs, part by part, and what it would cost at least. Prints a table; never a gate.

    python -m benchmarks.speed.cost [--seconds 15] [--json FILE] [--work FOLDER]

A crawl with everything on, as in `python -m benchmarks.speed`: first the kernel tells how much CPU each thread and PostgreSQL use, then
py-spy (`pip install py-spy`) where the threads are. Not both at once: py-spy stops what it looks at a hundred times a second, and a page
costs a quarter more meanwhile. In turns with it the libraries crawl the same site without anything around them (`limit.py`): what
that costs is the limit.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.speed import box, site
from benchmarks.speed.__main__ import PAGES, unfit
from benchmarks.speed.contenders import Holdfast

WARM: Final = 3.0
"""Seconds after the first page from which on it is watched."""
RATE: Final = 100

PARTS: Final = (
    # (part, pieces of a frame's text of which one says so); the innermost frame that fits decides.
    ("archive", ("holdfast/archive/",)),
    ("rows to PostgreSQL", ("holdfast/db/", "psycopg")),
    ("risk check", ("holdfast/parse/risk_check",)),
    ("decode", ("holdfast/parse/charset",)),
    ("parse", ("holdfast/parse/",)),
    ("fetch", ("holdfast/fetch/", "pycurl")),
    ("normalize", ("holdfast/model/url", "holdfast/model/domain_name")),
    (
        "links, dedup",
        (
            "holdfast/crawler/link_filter",
            "holdfast/politeness/crawler_traps",
            "holdfast/model/scope",
            "politeness/url_priority",
        ),
    ),
    (
        "robots, pace, lease",
        (
            "holdfast/politeness/",
            "holdfast/crawler/request_gate",
            "holdfast/crawler/robots_cache",
            "holdfast/crawler/leases",
        ),
    ),
    ("walk, batch", ("holdfast/crawler/",)),
    ("event loop", ("",)),
)
WAITING: Final = ("_worker (concurrent/futures", "Connection.wait (psycopg", "wait (threading", "Event.wait (threading")
"""Where a thread only waits, which py-spy cannot always tell from work."""
POSTGRES: Final = "PostgreSQL itself"
ROUNDS: Final = 3
"""In turns, since the machine is faster at some times than at others."""


class Bare(Holdfast):
    """The limit, with a database like the product's."""

    name = "limit"

    def command(self, urls: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "benchmarks.speed.limit", urls[0], self.address()]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}

    def afterwards(self) -> str:
        self.end()  # its rows are of a job that nobody made, so there is nothing to verify
        return ""


class Seen(NamedTuple):
    """What was seen of one crawl."""

    pages: int
    cost: dict[str, float]
    """Milliseconds of CPU a page, by part."""


def main() -> int:
    """Watch, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, default=Path("cost.json"))
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    if problem := unfit() or no_spy():
        print(problem, file=sys.stderr)
        return 2
    work = options.work.resolve()
    print(f"Making the site in {work} …", flush=True)
    root = site.generate(work / "one", PAGES, 1)
    ours, least = [], []
    for number in range(options.rounds):
        print(f"{number + 1}/{options.rounds}: a crawl, twice {options.seconds:g} s …", flush=True)
        ours.append(crawl(Holdfast, root, work, options.seconds))
        print(f"{number + 1}/{options.rounds}: the libraries alone …", flush=True)
        least.append(crawl(Bare, root, work, options.seconds))
    cost, limit = mean(ours), mean(least)
    print(f"\nmilliseconds of CPU a page, {cost.pages} pages; of the libraries alone, {limit.pages} pages\n")
    print("\n".join(table(cost.cost, limit.cost)))
    rounds = [sum(one.cost.values()) / sum(other.cost.values()) for one, other in zip(ours, least, strict=True)]
    print(f"{'in each round':24}{', '.join(f'{ratio:.2f}' for ratio in rounds)}")
    report = {"ours": [seen._asdict() for seen in ours], "limit": [seen._asdict() for seen in least]}
    options.json.write_text(json.dumps(report, indent=1))
    print(f"\nAll figures: {options.json}")
    return 0


def no_spy() -> str | None:
    """Why the crawl cannot be watched."""
    return None if shutil.which("py-spy", path=spy_path()) else "There is no py-spy; get it with: pip install py-spy"


def spy_path() -> str:
    """Where programs are looked for: ours first."""
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"


def crawl(made: type[Holdfast], root: Path, work: Path, seconds: float) -> Seen:
    """What a crawl of the site costs."""
    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    contender = made(folder)
    with site.served(work / "nginx", [root], core=box.SERVER_CORE) as server:
        with box.pinned(box.CRAWLER_CORE):
            contender.prepare()
        since = time.time()
        with box.pinned(box.CRAWLER_CORE), (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                contender.command(server.urls),
                cwd=folder,
                env={**os.environ, **contender.environment()},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            box.first_page(server, since, process)
            time.sleep(WARM)
            began, before = time.time(), used()
            time.sleep(seconds)
            ended, after = time.time(), used()
            samples = {} if made is Bare else spy(process.pid, folder / "samples", seconds)
        finally:
            box.stop(process)
        pages = sum(began <= at <= ended for at, _ in server.pages(since))
    if made is Bare:
        # It knows by itself where it was, all the time.
        told = json.loads((folder / "output").read_text())["took"]
        samples = {process.pid: Counter({part: round(took * 1_000_000) for part, took in told.items()})}
    with box.pinned(box.CRAWLER_CORE):
        print(contender.afterwards(), flush=True)
    cost: dict[str, float] = defaultdict(float)
    for (pid, thread), cpu in after.items():
        took = (cpu - before.get((pid, thread), 0.0)) * 1000 / pages
        mine = samples.get(thread) if pid == process.pid else Counter({POSTGRES: 1})
        for part, count in (mine or Counter({PARTS[-1][0]: 1})).items():
            cost[part] += took * count / (mine.total() if mine else 1)
    return Seen(pages, dict(cost))


def mean(crawls: Sequence[Seen]) -> Seen:
    """Of several crawls, each as long as the others."""
    parts = {part for seen in crawls for part in seen.cost}
    pages = sum(seen.pages for seen in crawls)
    return Seen(pages, {part: sum(seen.cost.get(part, 0.0) * seen.pages for seen in crawls) / pages for part in parts})


def used() -> dict[tuple[int, int], float]:
    """Seconds of CPU by process and thread, of what runs on the crawler's core."""
    found: dict[tuple[int, int], float] = {}
    for process in psutil.process_iter():
        try:
            if process.cpu_affinity() == [box.CRAWLER_CORE]:
                found |= {
                    (process.pid, thread.id): thread.user_time + thread.system_time for thread in process.threads()
                }
        except psutil.Error:
            continue
    return found


def spy(pid: int, file: Path, seconds: float) -> dict[int, Counter[str]]:
    """How often each thread was seen at each part."""
    program = shutil.which("py-spy", path=spy_path()) or "py-spy"
    command = [
        "taskset",
        "-c",
        str(box.SERVER_CORE),
        program,
        "record",
        "--pid",
        str(pid),
        "--duration",
        f"{seconds:.0f}",
    ]
    command += ["--rate", str(RATE), "--format", "raw", "--threads", "--output", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    samples: dict[int, Counter[str]] = {}
    for line in file.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if frames and frames[-1].startswith(WAITING):
            continue
        number = int(thread.partition("(")[2].partition(")")[0], 0)
        samples.setdefault(number, Counter())[part_of(frames)] += int(count)
    return samples


def part_of(frames: Sequence[str]) -> str:
    """The part that a stack belongs to."""
    for frame in reversed(frames):
        for part, pieces in PARTS[:-1]:
            if any(piece in frame for piece in pieces):
                return part
    return PARTS[-1][0]


def table(cost: dict[str, float], least: dict[str, float]) -> list[str]:
    """A line for each part, the dearest first."""
    lines = [f"{'':24}{'ours':>8}{'least':>8}"]
    for part, took in sorted(cost.items(), key=lambda item: -item[1]):
        alone = f"{least[part]:>8.3f}" if part in least else ""
        lines.append(f"{part:24}{took:>8.3f}{alone}")
    ours, floor = sum(cost.values()), sum(least.values())
    lines.append(f"{'sum':24}{ours:>8.3f}{floor:>8.3f}  {ours / floor:.2f} times the limit")
    return lines


if __name__ == "__main__":
    sys.exit(main())
