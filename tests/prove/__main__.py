"""`make prove`: every column, or one, from where it was.

python -m tests.prove [--column NAME] [--kills N] [--ledger FILE]
"""

import argparse
import sys
import time
from pathlib import Path

from tests.prove.columns import FULL, entries, open_trials
from tests.prove.ledger import Ledger, table


def main() -> int:
    """Try what has not been tried; 0 if nothing was violated by anything that was."""
    parser = argparse.ArgumentParser(prog="make prove", description=__doc__)
    parser.add_argument("--column", default="", help="only this one")
    parser.add_argument("--kills", type=int, default=FULL, help=f"faults of the largest columns ({FULL})")
    parser.add_argument("--ledger", type=Path, default=Path(".prove/ledger.jsonl"))
    options = parser.parse_args()
    columns = entries(options.kills)
    if options.column and options.column not in columns:
        parser.error(f"there is no column {options.column!r}; there are: {', '.join(columns)}")
    wanted = [options.column] if options.column else list(columns)
    ledger = Ledger(options.ledger)
    known = ledger.read()
    # An entry of a smaller proof is another entry.
    todo = [
        (column, f"{column}/{name} of {options.kills}", run)
        for column in wanted
        for name, run in columns[column].items()
        if f"{column}/{name} of {options.kills}" not in known
    ]
    skipped: dict[str, str] = {}
    print(f"{len(todo)} crawls to go; what is done is in {options.ledger}", flush=True)
    if todo:
        with open_trials(lambda line: print(f"  {line}", flush=True)) as trials:
            for column, name, run in todo:
                print(name, flush=True)
                began = time.monotonic()
                entry = run(trials, lambda line: print(f"  {line}", flush=True))
                if "skipped" in entry:  # not in the ledger: it is tried again where it can be
                    skipped[column] = entry["skipped"]
                    print(f"  skipped: {entry['skipped']}", flush=True)
                    continue
                ledger.write({"name": name, "column": column, **entry, "took": round(time.monotonic() - began, 1)})
                for violation in entry["violations"]:
                    print(f"  VIOLATION {violation}", flush=True)
    mine = [entry for entry in ledger.read().values() if entry["name"].endswith(f" of {options.kills}")]
    print("\n".join(["", *table(mine, columns, skipped)]))
    return int(any(entry["violations"] for entry in mine if entry["column"] in wanted))


if __name__ == "__main__":
    sys.exit(main())
