"""How fast `holdfast backfill` imports a messy log: seconds, validation, and a second run. Prints a table; never a gate.

    python -m benchmarks.backfill [--rows 1000000] [--domains 300000]

Half of the rows are of a hundred large domains, the others are spread over all; each domain is written in several ways (capitals, `www.`, a
port, a final dot, as a URL), rows have statuses of all kinds, times in three forms, and one in ten thousand is damaged.
"""

import argparse
import csv
import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

_STATUSES: Final = (200, 200, 200, 200, 200, 301, 404, 403, 500, "")
_LARGE: Final = 100


def main() -> int:
    """Generate, import, validate, import again, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--domains", type=int, default=300_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="holdfast-backfill-") as name:
        folder = Path(name)
        log = folder / "crawl_log.csv.gz"
        print(f"writing {options.rows:,} rows …", file=sys.stderr)
        write_log(log, options.rows, options.domains)
        store = ("--data", str(folder / "data"))
        _run(*store, "db", "upgrade")
        figures: dict[str, Any] = {"rows": options.rows, "domains": options.domains}
        for step, arguments in (
            ("first", ("backfill", str(log))),
            ("check", ("backfill", "--check")),
            ("second", ("backfill", str(log))),
        ):
            before = _totals(store)
            began = time.monotonic()
            code, last = _run(*store, *arguments)
            figures[step] = {"seconds": round(time.monotonic() - began, 1), "exit": code, "last": last}
            figures[step]["changed"] = _totals(store) != before
        figures["stored"] = _totals(store)
        _run(*store, "db", "stop")
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for step in ("first", "check", "second"):
            print(
                f"{step:<8} {figures[step]['seconds']:>7.1f} s  exit {figures[step]['exit']}  {figures[step]['last']}"
            )
        print(f"stored   {figures['stored']}")
    # Damaged rows are reported, so the first import ends with 1.
    right = figures["first"]["exit"] == 1 and figures["check"]["exit"] == 0 and not figures["second"]["changed"]
    return int(not right)


def write_log(path: Path, rows: int, domains: int) -> None:
    """Write a log of so many rows, the same each time."""
    with gzip.open(path, "wt", encoding="utf-8", newline="", compresslevel=1) as file:
        out = csv.writer(file)
        out.writerow(("domain", "page_url", "status", "images_found", "crawled_at"))
        out.writerows(_rows(rows, domains))


def _rows(rows: int, domains: int) -> Iterator[tuple[object, ...]]:
    chosen = random.Random(1)
    for number in range(rows):
        which = chosen.randrange(_LARGE if number % 2 else domains)
        name = f"site-{which}.example"
        if number % 10_000 == 9_999:
            yield ("not a domain", "", "?", "many", "yesterday")
            continue
        forms = (name, name.upper(), f"www.{name}", f"{name}:443", f"{name}.", f"https://{name}/")
        at = 1_700_000_000 + number
        times = (str(at), str(at * 1000), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)))
        status = chosen.choice(_STATUSES)
        yield (
            forms[number % len(forms)],
            f"https://{name}/page/{number}",
            status,
            chosen.randrange(4),
            times[number % 3],
        )


def _run(*arguments: str) -> tuple[int, str]:
    """Run a command of ours; return its exit code and last line."""
    program = Path(sys.executable).with_name("holdfast")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def _totals(store: tuple[str, ...]) -> str:
    """What the counters of all domains sum up to."""
    query = "SELECT count(*), sum(pages_discovered), sum(pages_crawled), sum(images_found), sum(version) FROM domains"
    return _run(*store, "db", "psql", "-Atc", query)[1]


if __name__ == "__main__":
    sys.exit(main())
