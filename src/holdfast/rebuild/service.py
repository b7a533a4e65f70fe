"""Counters from the log, its roll-ups and the frontier: only those that differ are set, and each is reported.

The rule: a domain that a worker holds is left alone, since its counters are about to change; with `wait` it is tried again until it is
free. A chunk of domains is one transaction, and counting again changes nothing: so a killed rebuild is simply run again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.db import audit, claimable, domains
from holdfast.db.connection import Connection, Database
from holdfast.model.domain_name import canonical_domain
from holdfast.rebuild import queries
from holdfast.rebuild.queries import CHUNK, OF_DOMAINS, OF_JOBS, OF_RUNS, Counted
from holdfast.rebuild.records import CounterChange, RebuiltCounters

MAX_SHOWN: Final = 100
"""Changes, and held domains, that are reported; all are counted."""
_WAIT_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Report:
    domains: int = 0
    runs: int = 0
    different: int = 0
    changed: int = 0
    changes: list[CounterChange] = field(default_factory=list)
    held: dict[int, str] = field(default_factory=dict)

    def add(self, table: str, counters: Sequence[str], one: Counted) -> None:
        for counter, before, after in zip(counters, one.before, one.after, strict=True):
            if before != after:
                self.changed += 1
                if len(self.changes) < MAX_SHOWN:
                    self.changes.append(CounterChange(table, one.name, counter, before, after))


@dataclass(frozen=True, slots=True)
class CounterRebuilder:
    """Rebuilds the counters of one database."""

    database: Database
    registrable: bool = False

    def domain_id(self, domain: str | None) -> int | None:
        """Return the id of a domain; None: all domains. Raises NotFound, UsageError."""
        if domain is None:
            return None
        with self.database.session() as connection:
            return domains.id_of(connection, canonical_domain(domain, registrable=self.registrable))

    def run(
        self,
        *,
        domain: str | None = None,
        dry_run: bool = False,
        wait: timedelta = timedelta(0),
        actor: str,
        watch: Callable[[int], None] = lambda _: None,
    ) -> RebuiltCounters:
        """Rebuild the counters of a domain, or of all domains and of the runs that have ended. Raises NotFound.

        After: each counter of a free domain is what log and frontier say, also if workers run meanwhile; with `dry_run` nothing is
        changed. `watch` is called after each chunk with the number of domains so far, and while it waits.
        """
        report = _Report()
        domain_id = self.domain_id(domain)
        with self.database.session() as connection:
            after = 0
            while chunk := queries.next_domains(connection, after, domain_id):
                after = chunk[-1][0]
                self._rebuild(connection, {row[0]: row[1] for row in chunk}, report, dry_run=dry_run)
                report.domains += len(chunk)
                watch(report.domains)
            deadline = time.monotonic() + wait.total_seconds()
            while report.held and not dry_run and time.monotonic() < deadline:
                time.sleep(_WAIT_SECONDS)
                watch(report.domains)
                again, report.held = report.held, {}
                for start in range(0, len(again), CHUNK):
                    self._rebuild(connection, dict(sorted(again.items())[start : start + CHUNK]), report, dry_run=False)
            if domain is None:
                self._rebuild_runs(connection, report, dry_run=dry_run)
            if report.changed and not dry_run:
                details = {"counters": report.changed, "domain": domain}
                with connection.transaction():
                    audit.write(
                        connection,
                        actor=actor,
                        action="rebuild",
                        kind="counters",
                        object_id=domain or "*",
                        details=details,
                    )
        return RebuiltCounters(
            dry_run=dry_run,
            domains=report.domains,
            runs=report.runs,
            different=report.different,
            held=sorted(report.held.values())[:MAX_SHOWN],
            changes=report.changes,
            changed=report.changed,
        )

    def _rebuild(self, connection: Connection, names: dict[int, str], report: _Report, *, dry_run: bool) -> None:
        """Rebuild a chunk of domains. Without a lock first: most of them are right, and no transaction has to wait for that."""
        suspects = _different(queries.of_jobs(connection, list(names)), queries.of_domains(connection, list(names)))
        if not suspects:
            return
        with connection.transaction():
            # In a dry run, too: without the lock a commit may come between the two sides of a comparison.
            free = queries.lock(connection, sorted(suspects))
            different: set[int] = set()
            for one in queries.of_jobs(connection, free):
                if one.differs:
                    different.add(one.id)
                    report.add("job_domains", OF_JOBS, one)
                    if not dry_run:
                        queries.set_job(connection, one)
            for one in queries.of_domains(connection, free):
                if one.differs:
                    different.add(one.id)
                    report.add("domains", OF_DOMAINS, one)
                    if not dry_run:
                        queries.set_domain(connection, one)
            report.different += len(different)
            if different and not dry_run:
                claimable.update_ready(connection, sorted(different))
        report.held.update((domain_id, names[domain_id]) for domain_id in suspects - set(free))

    @staticmethod
    def _rebuild_runs(connection: Connection, report: _Report, *, dry_run: bool) -> None:
        after = 0
        while chunk := queries.of_runs(connection, after):
            after = chunk[-1].id
            report.runs += len(chunk)
            for one in chunk:
                if one.differs:
                    report.different += 1
                    report.add("crawl_runs", OF_RUNS, one)
                    if not dry_run:
                        queries.set_run(connection, one)


def _different(*counted: Iterable[Counted]) -> set[int]:
    return {one.id for part in counted for one in part if one.differs}
