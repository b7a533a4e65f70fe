"""What storing Markdown costs: whole crawls without and with `--markdown`, in alternating rounds. Prints a table; never a gate.

    python -m benchmarks.markdown [--site corpus|generated] [--pages 1260] [--rounds 3]

The site is made of the real pages of `benchmarks/text`, as often as needed, each linked from the first page; or it is that of
`benchmarks/speed`. nginx serves it, and its log says how fast pages were fetched. "Catches up" is the time from the last fetch until the
last document was stored. CPU is user and system time of the worker, its parser processes and its bundled PostgreSQL.
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
from typing import Final, NamedTuple

from benchmarks.links import postgres, used
from benchmarks.speed import site
from benchmarks.text import corpus

_OPTIONS: Final = (
    *(
        "--delay",
        "0",
        "--concurrency",
        "16",
        "--workers",
        "1",
        "--allow-private",
        "--sitemaps",
        "no",
        "--scope",
        "host",
        "--json",
    ),
)
_CONTENDERS: Final[dict[str, Sequence[str]]] = {"plain": (), "with --markdown": ("--markdown",)}
_LAST: Final = "SELECT count(*), COALESCE(extract(epoch FROM max(extracted_at)), 0) FROM documents"


class Figures(NamedTuple):
    """What a crawl showed."""

    rate: float
    """Pages fetched a second."""
    behind: float
    """Seconds from the last fetch to the last document; 0 without documents."""
    cost: float
    """Milliseconds of CPU a page."""
    documents: int


def main() -> None:
    """Crawl in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("corpus", "generated"), default="corpus")
    parser.add_argument("--pages", type=int, default=1_260)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    work = options.work.resolve()
    root = work / f"markdown-{options.site}-{options.pages}"
    (_copy_corpus if options.site == "corpus" else _generate)(root, options.pages)
    depth = ("--max-depth", "1") if options.site == "corpus" else ()
    found: dict[str, list[Figures]] = {name: [] for name in _CONTENDERS}
    for number in range(options.rounds):
        order = list(_CONTENDERS) if number % 2 == 0 else list(reversed(_CONTENDERS))
        for name in order:
            with site.served(work / "nginx", [root]) as server:
                figures = crawl(work / "run", (*depth, *_CONTENDERS[name]), server)
            found[name].append(figures)
            print(f"round {number + 1}  {_line(name, figures)}", flush=True)
    print()
    for name, rounds in found.items():
        print(f"median   {_line(name, Figures(*map(median, zip(*rounds, strict=True))))}")
    plain, stored = found.values()
    ratios = [one.rate / other.rate for one, other in zip(stored, plain, strict=True)]
    print(f"speed with --markdown: {median(ratios):.2f} of a plain crawl ({', '.join(f'{one:.2f}' for one in ratios)})")


def _line(name: str, figures: Figures) -> str:
    return (
        f"{name:18}{figures.rate:8.1f} pages/s  catches up in {figures.behind:6.1f} s  {figures.cost:7.2f} ms of CPU a page"
        f"  {figures.documents:.0f} documents"
    )


def _generate(root: Path, pages: int) -> None:
    site.generate(root, pages, 1)


def _copy_corpus(root: Path, pages: int) -> None:
    """Write the site, once: real pages, and a first one that links to all."""
    if (root / "index.html").exists():
        return
    real = corpus.load()
    names = []
    for number in range(pages):
        page = real[number % len(real)]
        name = f"{page.kind}/{'-'.join(chr(97 + int(digit)) for digit in str(number))}.html"  # numbers would look like a trap
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(page.html)
        names.append(name)
    (root / "robots.txt").write_text("User-agent: *\nDisallow:\n")
    (root / "index.html").write_text(
        "<title>All</title>" + "".join(f'<a href="/{name}">{name}</a>\n' for name in names)
    )


def crawl(folder: Path, more: Sequence[str], server: site.Server) -> Figures:
    """Crawl the site to its end, in a new data folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("holdfast")), "--data", str(folder / "data")]
    environment = {**os.environ, "HOLDFAST_CRAWL_DISCOVERED_PER_SECOND": "0"}
    subprocess.run([*command, "db", "upgrade"], check=True, capture_output=True, env=environment)
    try:
        database = postgres(folder)
        since, before, began = time.time(), used(database), os.times()
        done = subprocess.run(
            [*command, "crawl", server.urls[0], *_OPTIONS, *more],
            check=True,
            capture_output=True,
            env=environment,
            cwd=folder,
        )
        ended = os.times()
        time.sleep(1)  # backends end, and their time is the server's
        cpu = ended.children_user + ended.children_system - began.children_user - began.children_system
        cost = (used(database) - before + cpu) / json.loads(done.stdout)["pages"] * 1000
        fetched = [at for at, _ in server.pages(since)]
        said = subprocess.run([*command, "db", "psql", "--", "-Atc", _LAST], check=True, capture_output=True, text=True)
        count, last = said.stdout.strip().split("|")
        behind = max(0.0, float(last) - fetched[-1]) if int(count) else 0.0
        return Figures((len(fetched) - 1) / (fetched[-1] - fetched[0]), behind, cost, int(count))
    finally:
        subprocess.run([*command, "db", "stop"], check=True, capture_output=True, env=environment)


if __name__ == "__main__":
    main()
