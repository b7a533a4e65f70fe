"""Handlers of operations: verify, recalculate priorities, change many domains, restart a batch, clear the frontier, purge or replay
pages, rebuild counters, retention, check and restore archives, declare a machine lost.

The rule: a handler may run twice, and reports its progress often enough that it can be stopped.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.archive.reader import ArchiveReader
from holdfast.control.verify import Verifier
from holdfast.db.verify import Finding
from holdfast.domains.records import DomainAction, DomainFilter
from holdfast.domains.service import DomainService
from holdfast.frontier.service import FrontierService
from holdfast.model.domain import Status
from holdfast.model.json_values import json_default
from holdfast.operations.service import AGAIN, ASKED_AT, Handler, Report, argument
from holdfast.pages.service import PageService
from holdfast.rebuild.service import CounterRebuilder
from holdfast.replay.records import ReplayMode
from holdfast.replay.service import ReplayRequest, ReplayService
from holdfast.retention.restore import KEEP, ArchiveService
from holdfast.retention.service import RetentionService
from holdfast.segments.service import SegmentService
from holdfast.tasks.service import TaskService

VERIFY: Final = "verify"
PRIORITIES: Final = "recalculate-priorities"
CHANGE_DOMAINS: Final = "change-domains"
RESTART_BATCH: Final = "restart-batch"
CLEAR: Final = "clear-frontier"
PURGE: Final = "purge-pages"
REPLAY: Final = "replay"
REBUILD_COUNTERS: Final = "rebuild-counters"
RETENTION: Final = "retention"
CHECK_ARCHIVE: Final = "check-archive"
RESTORE: Final = "restore-archives"
LOSE_MACHINE: Final = "lose-machine"
_TIMES: Final = ("since", "until", "as_of")
_SHOWN: Final = 20
"""Rows of a finding that are stored with the result."""


@dataclass(frozen=True, slots=True)
class OperationHandlers:
    """A handler for each kind of operation, and the services that they call."""

    domains: DomainService
    tasks: TaskService
    frontier: FrontierService
    pages: PageService
    verifier: Verifier
    archive: ArchiveReader
    """The archive; `verify` reads it if it exists and is requested."""
    replays: ReplayService
    counters: CounterRebuilder
    retention: RetentionService
    archives: ArchiveService
    segments: SegmentService

    def by_kind(self) -> Mapping[str, Handler]:
        """Return all handlers by kind."""
        return {
            VERIFY: self.verify,
            PRIORITIES: self.recalculate,
            CHANGE_DOMAINS: self.change_domains,
            RESTART_BATCH: self.restart_batch,
            CLEAR: self.clear,
            PURGE: self.purge,
            REPLAY: self.replay,
            REBUILD_COUNTERS: self.rebuild_counters,
            RETENTION: self.age,
            CHECK_ARCHIVE: self.check_archive,
            RESTORE: self.restore,
            LOSE_MACHINE: self.lose_machine,
        }

    def verify(self, arguments: Mapping[str, Any], _actor: str, report: Report) -> Mapping[str, object]:
        """Run all checks, like `holdfast verify`."""
        archive = self.archive if arguments.get("archive", True) and self.archive.exists else None
        images = self.verifier.images if arguments.get("archive", True) else None
        verifier = replace(self.verifier, archive=archive, images=images)
        findings: list[Finding] = []
        for step in verifier.run():
            report({"checks": step.number, "of": step.total, "check": step.check, "looked_at": step.looked_at})
            if step.finding is not None:
                findings.append(step.finding)
        bad = [finding for finding in findings if finding.faults]
        return {
            "ok": not bad,
            "archive": archive is not None,
            "checks": [_check(finding) for finding in findings],
            "names": {str(number): name for number, name in verifier.names_of(bad).items()},
        }

    def recalculate(self, _arguments: Mapping[str, Any], _actor: str, report: Report) -> Mapping[str, object]:
        """Compute the scores of all domains again."""
        seen = changed = 0
        for seen, changed, total in self.domains.recalculate():
            report({"domains": seen, "of": total, "changed": changed})
        return {"domains": seen, "changed": changed}

    def change_domains(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Reset, unblock or switch all domains that match a filter."""
        where = {**arguments["filter"]}
        if "status" in where:
            where["status"] = Status(where["status"])
        done = self.domains.change_matching(
            DomainAction(argument(arguments, "action")),
            DomainFilter(**where),
            argument(arguments, "reason"),
            actor=actor,
            known_at=datetime.fromisoformat(argument(arguments, ASKED_AT)),
            again=bool(arguments.get(AGAIN)),
            watch=lambda changed: report({"domains": changed}),
        )
        return {"domains": done.changed, "skipped": done.skipped}

    def restart_batch(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Restart all tasks of a batch that are not under way."""
        name = argument(arguments, "name")
        asked = datetime.fromisoformat(argument(arguments, ASKED_AT))
        restarted = self.tasks.restart_batch(
            name, actor=actor, unchanged_since=asked, on_progress=lambda done: report({"tasks": done})
        )
        return {"tasks": restarted}

    def clear(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Delete URLs that wait."""
        job, domain = arguments.get("job"), arguments.get("domain")
        asked, again = datetime.fromisoformat(argument(arguments, ASKED_AT)), bool(arguments.get(AGAIN))
        done = self.frontier.clear(
            actor=actor,
            job=job,
            domain=domain,
            asked_at=asked,
            again=again,
            watch=lambda cleared: report(asdict(cleared)),
        )
        return {**asdict(done.cleared), "ended_jobs": done.ended_jobs}

    def purge(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Delete pages and their texts."""
        job, domain = arguments.get("job"), arguments.get("domain")
        before = datetime.fromisoformat(argument(arguments, "before"))
        done = self.pages.purge(
            actor=actor, job=job, domain=domain, before=before, watch=lambda gone: report({"pages": gone})
        )
        return {"pages": done.forgotten}

    def replay(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Replay pages, like `holdfast replay`. A second run goes on: what was fetched or parsed since it was asked for is left alone."""
        times = {name: datetime.fromisoformat(arguments[name]) for name in _TIMES if arguments.get(name)}
        request = ReplayRequest(
            ReplayMode(argument(arguments, "mode")),
            arguments.get("job"),
            arguments.get("domain"),
            times.get("since"),
            times.get("until"),
            arguments.get("parser"),
            times.get("as_of") or datetime.fromisoformat(argument(arguments, ASKED_AT)),
        )

        def watch(looked_at: int, pages: int) -> None:
            report({"looked_at": looked_at, "pages": pages})

        dry_run = bool(arguments.get("dry_run"))
        done = self.replays.count(request, watch) if dry_run else self.replays.run(request, actor=actor, watch=watch)
        return _plain_record(done)

    def rebuild_counters(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Rebuild counters, like `holdfast rebuild counters`."""
        done = self.counters.run(
            domain=arguments.get("domain"),
            dry_run=bool(arguments.get("dry_run")),
            wait=timedelta(seconds=arguments.get("wait", 0)),
            actor=actor,
            watch=lambda seen: report({"domains": seen}),
        )
        return _plain_record(done)

    def age(self, arguments: Mapping[str, Any], actor: str, report: Report) -> Mapping[str, object]:
        """Archive and delete what is old, like `holdfast retention run`."""
        result = self.retention.run(
            dry_run=bool(arguments.get("dry_run")),
            actor=actor,
            watch=lambda step, rows: report({"step": step, "rows": rows}),
        )
        return _plain_record(result)

    def check_archive(self, arguments: Mapping[str, Any], _actor: str, report: Report) -> Mapping[str, object]:
        """Read all files of an archive, like `holdfast archive show --check`."""
        archive_id = int(arguments["archive"])
        files = self.archives.check(archive_id, lambda done, of: report({"files": done, "of": of}))
        return {"archive": archive_id, "files": files}

    def restore(self, arguments: Mapping[str, Any], _actor: str, report: Report) -> Mapping[str, object]:
        """Restore archives, like `holdfast archive restore`. Those that a first run restored are unchanged."""
        done = self.archives.restore_all(
            ids=arguments.get("ids", ()),
            kind=arguments.get("kind"),
            job=arguments.get("job"),
            schema=arguments.get("schema"),
            keep=timedelta(seconds=arguments["keep"]) if "keep" in arguments else KEEP,
            watch=lambda archives, of, rows: report({"archives": archives, "of": of, "rows": rows}),
        )
        return {"archives": [_plain_record(one) for one in done]}

    def lose_machine(self, arguments: Mapping[str, Any], actor: str, _report: Report) -> Mapping[str, object]:
        """Declare a machine lost, like `holdfast segments lost`. A second run finds nothing that only the machine has."""
        machine = argument(arguments, "machine")
        if arguments.get("dry_run"):
            return _plain_record(self.segments.count_lost(machine))
        return _plain_record(self.segments.lose(machine, actor=actor))


def _plain_record(value: Any) -> dict[str, object]:
    """A record as JSON, which the client reads as the same record."""
    found: dict[str, object] = json.loads(json.dumps(value, default=json_default))
    return found


def _check(finding: Finding) -> dict[str, object]:
    rows = [{key: _plain(value) for key, value in row.items()} for row in finding.rows[:_SHOWN]]
    return {
        "check": finding.check,
        "faults": finding.faults,
        "rows": rows,
        "seconds": round(finding.seconds, 3),
        "skipped": finding.skipped,
        "archived": finding.archived,
    }


def _plain(value: object) -> object:
    """A value as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
