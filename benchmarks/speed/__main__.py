"""How fast, and at what cost: Holdfast and its peers on the same site, in turns, each on one core. Prints tables; never a gate.

    python -m benchmarks.speed [--rounds 3] [--seconds 20] [--only Holdfast wget2 …] [--json FILE] [--work FOLDER]

nginx serves plain files of 20 KB on the first core; a crawler has the second one, with its database if it has one. Pages are counted by
nginx's log, medians of the rounds are shown. Peers are installed into `.peers/`, nginx by apt-get where it is missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.speed import box, site
from benchmarks.speed.box import Figures
from benchmarks.speed.contenders import ALL, Contender, Holdfast, HoldfastWithoutArchive, Scrapy

PAGES = 50_000
HOSTS = 8
EIGHT_HOSTS: tuple[type[Contender], ...] = (Holdfast, HoldfastWithoutArchive, Scrapy)
BASE = Scrapy.name


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a time box; half of that with eight hosts")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these contenders, by name")
    parser.add_argument("--cases", nargs="*", default=["one", "eight"], choices=["one", "eight"])
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    if problem := unfit():
        print(problem, file=sys.stderr)
        return 2
    work = options.work.resolve()
    contenders = [made for made in ALL if not options.only or made.name in options.only]
    ready = [made for made in contenders if available(made)]
    print(f"Making the sites in {work} …", flush=True)
    one = [site.generate(work / "one", PAGES, 1)]
    eight = [site.generate(work / f"host-{host}", PAGES // HOSTS, 2 + host) for host in range(HOSTS)]
    report: dict[str, object] = {"cores": os.cpu_count(), "page_bytes": site.PAGE_BYTES, "seconds": options.seconds}
    for case, roots, who, seconds in (
        ("one", one, ready, options.seconds),
        ("eight", eight, [made for made in ready if made in EIGHT_HOSTS], options.seconds / 2),
    ):
        if case in options.cases:
            figures = rounds(case, roots, who, work, options.rounds, seconds)
            print(f"\n{case} host{'s' if case == 'eight' else ''}, {seconds:g} s, medians of {options.rounds}\n")
            print("\n".join(table(figures)), flush=True)
            report[case] = {name: [asdict(each) for each in mine] for name, mine in figures.items()}
    options.json.write_text(json.dumps(report, indent=1))
    print(f"\nAll figures: {options.json}")
    return 0


def unfit() -> str | None:
    """Why nothing can be measured here."""
    if (os.cpu_count() or 1) < 2 or not hasattr(os, "sched_setaffinity"):
        return "The benchmark needs Linux and two cores: one for the server, one for the crawler."
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        subprocess.run(
            ["apt-get", "install", "--yes", "--no-install-recommends", "nginx-light"], capture_output=True, check=False
        )
        if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            return "There is no nginx, and it could not be installed; on Debian: apt-get install nginx-light"
    return None


def available(made: type[Contender]) -> bool:
    """Whether it is there now."""
    print(f"{made.name}: getting it …", end="\r", flush=True)
    why_not = made(Path()).missing()
    print(f"{made.name}: {f'left out, {why_not}' if why_not else 'ready'}\x1b[K", flush=True)
    return why_not is None


def rounds(
    case: str, roots: Sequence[Path], who: Sequence[type[Contender]], work: Path, count: int, seconds: float
) -> dict[str, list[Figures]]:
    """Every contender once a round, one after the other."""
    figures: dict[str, list[Figures]] = {made.name: [] for made in who}
    for number in range(1, count + 1):
        for made in who:
            folder = work / "run"
            shutil.rmtree(folder, ignore_errors=True)
            with site.served(work / "nginx", roots, core=box.SERVER_CORE) as server:
                try:
                    got = box.run(made(folder), server, seconds)
                except RuntimeError as problem:
                    print(f"{case} {number}/{count} {made.name}: {problem}; see {folder / 'output'}", flush=True)
                    continue
            figures[made.name].append(got)
            print(f"{case} {number}/{count} {made.name}: {got.rate:.0f} pages/s {got.said}", flush=True)
            time.sleep(1)
    return figures


def table(figures: dict[str, list[Figures]]) -> list[str]:
    """Medians, a line each."""
    rates = {name: statistics.median(f.rate for f in mine) for name, mine in figures.items() if mine}
    base = rates.get(BASE)
    lines = [f"{'':24}{'pages/s':>9}{'CPU ms/page':>13}{'memory MB':>11}{'disk KB/page':>14}{'x Scrapy':>10}"]
    for name, mine in figures.items():
        if not mine:
            lines.append(f"{name:24}  failed")
            continue
        cost = statistics.median(f.cost for f in mine)
        memory = statistics.median(f.memory for f in mine) / 1e6
        disk = statistics.median(f.disk / f.pages if f.pages else 0 for f in mine) / 1000
        ratio = f"{rates[name] / base:.1f}" if base else "-"
        lines.append(f"{name:24}{rates[name]:>9.0f}{cost:>13.2f}{memory:>11.0f}{disk:>14.1f}{ratio:>10}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
