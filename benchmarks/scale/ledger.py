"""The file of figures: what was measured, when, and of which state of the code.

The rule: a figure is in the file as soon as it is known, and what is in the file is not measured again.
"""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

Entry = dict[str, Any]


class Ledger:
    """Entries by kind; each has a key of its own among those of its kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, list[Entry]] = json.loads(path.read_text()) if path.exists() else {}

    def of(self, kind: str) -> list[Entry]:
        """What is known of a kind, in the order in which it was measured."""
        return self._entries.get(kind, [])

    def has(self, kind: str, **key: object) -> bool:
        """Whether this was measured; says so if it was."""
        for entry in self.of(kind):
            if key.items() <= entry.items():
                which = "".join(
                    f", {value:,} {name}" if isinstance(value, int) else f", {value}" for name, value in key.items()
                )
                print(f"{kind}{which}: measured {entry['measured']}; without {self.path} it is measured again")
                return True
        return False

    def add(self, kind: str, entry: Entry) -> None:
        """After: it is on disk."""
        facts = {"measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "commit": _commit(), "machine": _machine()}
        self._entries.setdefault(kind, []).append(entry | facts)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.new")
        beside.write_text(json.dumps(self._entries, indent=1) + "\n")
        beside.replace(self.path)

    @property
    def commits(self) -> set[str]:
        """Of which states of the code the figures are."""
        return {entry["commit"] for entries in self._entries.values() for entry in entries}


def _commit() -> str:
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"cores: {cores}, memory: {psutil.virtual_memory().total / 2**30:.0f} GB"
