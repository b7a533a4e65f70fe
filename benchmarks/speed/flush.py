"""What it costs to commit in the middle of a crawl: the same crawl with a commit every hundred pages, and with as few as there can be.

    python -m benchmarks.speed.flush [--rounds 3] [--seconds 15] [--work FOLDER]

At full speed on one core, which is the worst case: a crawl that waits for its sites has time to commit. Prints both rates, in turns, and
the share of the crawl's time that the commits take; never a gate.
"""

import argparse
import shutil
import statistics
import sys
from pathlib import Path

from benchmarks.speed import box, site
from benchmarks.speed.__main__ import PAGES, unfit
from benchmarks.speed.contenders import Contender, Holdfast


class Seldom(Holdfast):
    """Commits when a visit has nothing else to do, or memory demands it."""

    name = "only when it must"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "HOLDFAST_FLUSH_PAGES": "0"}


class Often(Holdfast):
    """As it is by default."""

    name = "every 100 pages"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.flush", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    if problem := unfit():
        print(problem, file=sys.stderr)
        return 2
    work = options.work.resolve()
    print(f"Making the site in {work} …", flush=True)
    root = site.generate(work / "one", PAGES, 1)
    rates: dict[str, list[float]] = {}
    contenders: tuple[type[Contender], ...] = (Often, Seldom)
    for number in range(1, options.rounds + 1):
        for made in contenders:
            folder = work / "run"
            shutil.rmtree(folder, ignore_errors=True)
            with site.served(work / "nginx", [root], core=box.SERVER_CORE) as server:
                got = box.run(made(folder), server, options.seconds)
            rates.setdefault(made.name, []).append(got.rate)
            print(f"{number}/{options.rounds} {made.name}: {got.rate:.0f} pages/s {got.said}", flush=True)
    often, seldom = (statistics.median(rates[made.name]) for made in contenders)
    print(
        f"\n{Often.name}: {often:.0f} pages/s; {Seldom.name}: {seldom:.0f}; the share of the flush: {1 - often / seldom:.1%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
