"""What has been proven so far: a line of JSON for each crawl, so that an interrupted proof goes on where it was.

The rule: an entry that is there is not tried again, whether it went well or not. Remove the file to begin anew.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Ledger:
    """A file of entries."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Entry]:
        """All entries by name; a line that was cut by a kill is none."""
        found = {}
        if self._path.exists():
            for line in self._path.read_text("utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                found[entry["name"]] = entry
        return found

    def write(self, entry: Entry) -> None:
        """Add one. After: it survives whatever comes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            start = b"\n" if file.tell() else b""  # behind a line that was cut, if there is one
            file.write(start + json.dumps(entry).encode())
            file.flush()
            os.fsync(file.fileno())


def table(entries: Iterable[Entry], columns: Iterable[str], skipped: Mapping[str, str] | None = None) -> list[str]:
    """A line for each column: what was tried and what it showed. `skipped`: by column, why it cannot be tried here."""
    known = list(entries)
    lines = [
        f"{'column':<16}{'crawls':>7}{'faults':>8}{'landed':>8}{'repeated':>10}{'refused':>9}{'violations':>12}  shows"
    ]
    for column in columns:
        mine = [entry for entry in known if entry["column"] == column]
        if skipped and column in skipped:
            lines.append(f"{column:<16}  skipped: {skipped[column]}")
            continue
        if not mine:
            lines.append(f"{column:<16}{'not tried':>15}")
            continue
        planned, landed, repeats, refused = (
            sum(entry[what] for entry in mine) for what in ("planned", "landed", "repeats", "refused")
        )
        violations = sum(len(entry["violations"]) for entry in mine)
        shows = (
            f"a rate below {300 / landed:.1f} %"
            if landed and not violations
            else "nothing"
            if not landed
            else "a fault"
        )
        lines.append(
            f"{column:<16}{len(mine):>7}{planned:>8}{landed:>8}{repeats:>10}{refused:>9}{violations:>12}  {shows}"
        )
    return lines
