"""What operations do: each kind by its name, with the desks that do it.

The rule: each deed bears to be done twice, and says how far it is often enough that it can be stopped.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from holdfast.control.verify import Verifier
from holdfast.db.verify import Finding
from holdfast.domains.service import DomainService
from holdfast.frontier.service import FrontierService
from holdfast.operations.service import AGAIN, ASKED_AT, Deed, Watch, argument
from holdfast.pages.service import PageService
from holdfast.tasks.service import TaskService

VERIFY: Final = "verify"
PRIORITIES: Final = "recalculate-priorities"
RESTART_BATCH: Final = "restart-batch"
CLEAR: Final = "clear-frontier"
PURGE: Final = "purge-pages"
_SHOWN: Final = 20
"""Rows of a finding that are kept with the result."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """The desks that do it."""

    domains: DomainService
    tasks: TaskService
    frontier: FrontierService
    pages: PageService
    verifier: Verifier
    archive: Path
    """Of this machine; it is read if it is there and wanted."""

    def by_kind(self) -> Mapping[str, Deed]:
        """All that can be asked for."""
        return {
            VERIFY: self.verify,
            PRIORITIES: self.recalculate,
            RESTART_BATCH: self.restart_batch,
            CLEAR: self.clear,
            PURGE: self.purge,
        }

    def verify(self, arguments: Mapping[str, Any], _actor: str, watch: Watch) -> Mapping[str, object]:
        """Every check, as `holdfast verify` does it."""
        wanted = self.archive if arguments.get("archive", True) and self.archive.is_dir() else None
        verifier = replace(self.verifier, archive=wanted)
        findings: list[Finding] = []
        for step in verifier.run():
            watch({"checks": step.number, "of": step.total, "check": step.check, "looked_at": step.looked_at})
            if step.finding is not None:
                findings.append(step.finding)
        bad = [finding for finding in findings if finding.faults]
        return {
            "ok": not bad,
            "archive": wanted is not None,
            "checks": [_check(finding) for finding in findings],
            "names": {str(number): name for number, name in verifier.names_of(bad).items()},
        }

    def recalculate(self, _arguments: Mapping[str, Any], _actor: str, watch: Watch) -> Mapping[str, object]:
        """The scores of all domains anew."""
        seen = changed = 0
        for seen, changed, total in self.domains.recalculate():
            watch({"domains": seen, "of": total, "changed": changed})
        return {"domains": seen, "changed": changed}

    def restart_batch(self, arguments: Mapping[str, Any], actor: str, watch: Watch) -> Mapping[str, object]:
        """Every task of a batch that rests, from the beginning."""
        name = argument(arguments, "name")
        asked = datetime.fromisoformat(argument(arguments, ASKED_AT))
        restarted = self.tasks.restart_batch(
            name, actor=actor, unchanged_since=asked, on_progress=lambda done: watch({"tasks": done})
        )
        return {"tasks": restarted}

    def clear(self, arguments: Mapping[str, Any], actor: str, watch: Watch) -> Mapping[str, object]:
        """URLs that wait, forgotten."""
        job, domain = arguments.get("job"), arguments.get("domain")
        asked, again = datetime.fromisoformat(argument(arguments, ASKED_AT)), bool(arguments.get(AGAIN))
        done = self.frontier.clear(
            actor=actor,
            job=job,
            domain=domain,
            asked_at=asked,
            again=again,
            watch=lambda cleared: watch(asdict(cleared)),
        )
        return {**asdict(done.cleared), "ended_jobs": done.ended_jobs}

    def purge(self, arguments: Mapping[str, Any], actor: str, watch: Watch) -> Mapping[str, object]:
        """Pages and their texts, forgotten."""
        job, domain = arguments.get("job"), arguments.get("domain")
        before = datetime.fromisoformat(argument(arguments, "before"))
        done = self.pages.purge(
            actor=actor, job=job, domain=domain, before=before, watch=lambda gone: watch({"pages": gone})
        )
        return {"pages": done.forgotten}


def _check(finding: Finding) -> dict[str, object]:
    rows = [{key: _plain(value) for key, value in row.items()} for row in finding.rows[:_SHOWN]]
    told = {"check": finding.check, "faults": finding.faults, "rows": rows}
    return told | {"seconds": round(finding.seconds, 3), "skipped": finding.skipped}


def _plain(value: object) -> object:
    """As JSON can have it."""
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
