"""A crawl with a parser on, beside one without: is it held up, is what is due caught up, what do kills do? Prints a table.

    python benchmarks/parsers.py [--pages 3000] [--kills 8]

Holdfast crawls four sites of the simulated web on this machine at full speed: without a parser, with one that yields five items a page,
with one that hangs on a page, and with one while every process of the crawl is killed with SIGKILL again and again. The exit code is 1 if
items differ between the runs, or if the page that hangs costs anything but itself.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web

SITES = 4
PARSER = """
import time
from holdfast.parse.plugin_api import join, text, tree

version = "1"


def parse(page):
    time.sleep({sleep} * page.url.endswith({hangs!r}))
    page_tree = tree(page)
    title = page_tree.css_first("title")
    links = [join(page.url, a.attributes.get("href")) for a in page_tree.css("a")]
    for number in range(5):
        yield {{"title": title.text() if title else None, "number": number, "links": len(links), "size": len(page.body)}}
"""
OPTIONS = [
    "--allow-private",
    "--delay",
    "0",
    "--concurrency",
    "16",
    "--max-depth",
    "1000",
    "--workers",
    "2",
    "--job",
    "bench",
]


@dataclass
class Run:
    """The result of one crawl."""

    name: str
    pages: int
    crawled: float
    """Seconds from the first page to the last."""
    behind: float
    """Seconds from the last page to the end of the command."""
    items: list[str]
    kills: int = 0
    errors: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=8)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-parsers-"))
    try:
        with WebProcess(Web(7, SITES, Site(given.pages // SITES, 8, 4000))) as web:
            urls = [web.url(number) for number in range(SITES)]
            good, hangs = folder / "good.py", folder / "hangs.py"
            good.write_text(PARSER.format(sleep=0, hangs="never"))
            hangs.write_text(PARSER.format(sleep=60, hangs=urls[0].removeprefix("http:")))
            runs = [
                crawl(folder, "no parser", urls, None),
                crawl(folder, "parser", urls, good),
                crawl(folder, "parser hangs on a page", urls, hangs),
                crawl(folder, "parser, killed", urls, good, kills=given.kills),
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{'run':<24} {'pages':>6} {'pages/s':>8} {'crawled s':>10} {'caught up s':>12} {'items':>7} {'errors':>7} {'kills':>6}"
    )
    for run in runs:
        print(
            f"{run.name:<24} {run.pages:>6} {run.pages / run.crawled:>8.0f} {run.crawled:>10.1f} {run.behind:>12.1f} "
            f"{len(run.items):>7} {run.errors:>7} {run.kills:>6}"
        )
    return judged(*runs[1:])


def judged(good: Run, hangs: Run, killed: Run) -> int:
    """Compare the items of the runs; the exit code."""
    faults = []
    if len(good.items) != 5 * good.pages:
        faults.append(f"{good.pages} pages have {len(good.items)} items, not {5 * good.pages}")
    if killed.items != good.items:
        faults.append(f"after the kills there are {len(killed.items)} items, and not the same")
    if (len(hangs.items), hangs.errors) != (len(good.items) - 5, 1):
        faults.append(f"the page that hangs cost {len(good.items) - len(hangs.items)} items and {hangs.errors} errors")
    for fault in faults:
        print(f"FAULT: {fault}")
    if not faults:
        print("All items are there once.")
    return 1 if faults else 0


def crawl(folder: Path, name: str, urls: list[str], parser: Path | None, kills: int = 0) -> Run:
    """One crawl in a data folder of its own."""
    data = folder / name.replace(" ", "-").replace(",", "")
    environment = {**os.environ, "HOLDFAST_PARSING_TIMEOUT": "3s"}
    program = [sys.executable, "-m", "holdfast", "--data", str(data)]

    def run(*words: str) -> str:
        done = subprocess.run([*program, *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    run("status")
    command = ["crawl", *urls, *OPTIONS, *(["--parser", str(parser)] if parser else [])]
    killed = 0
    while True:
        process = subprocess.Popen(
            [*program, *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(4 if killed < kills else None)
        except subprocess.TimeoutExpired:
            end_all(process.pid)
            process.wait()
            killed += 1
            continue
        break
    ended = time.time()
    query = """
        SELECT count(*), extract(epoch FROM max(crawled_at)), extract(epoch FROM max(crawled_at) - min(crawled_at))
        FROM crawled_pages WHERE outcome = 'ok'
    """
    pages, last, crawled = run("db", "psql", "-At", "-c", query).strip().split("|")
    errors = run("db", "psql", "-At", "-c", "SELECT count(*) FROM page_parses WHERE error IS NOT NULL").strip()
    items = sorted(map(plain, run("export", "items", "-", "--job", "bench").splitlines()))
    run("verify")
    run("db", "stop")
    return Run(name, int(pages), float(crawled), ended - float(last), items, killed, int(errors))


def end_all(pid: int) -> None:
    """Kill a crawl and every process below it."""
    import psutil

    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in family:
        if "postgres" not in process.name():
            process.send_signal(signal.SIGKILL)


def plain(line: str) -> str:
    """An item without its times."""
    item: dict[str, Any] = json.loads(line)
    return json.dumps({name: value for name, value in item.items() if not name.endswith("_at")}, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
