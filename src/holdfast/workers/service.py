"""What operators do about claims and runs: look, free what is stuck, close what is dead."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.db import audit, operator_reports, runs, sweeper, workers
from holdfast.db.connection import Database
from holdfast.errors import NotFound, UsageError

_EXPIRED_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Overview:
    """Who holds what, what has expired, what waits."""

    workers: list[operator_reports.WorkerClaims]
    expired: list[dict[str, Any]]
    waiting: dict[str, int]
    cooling: int


def check_target(*, force: bool, worker: str | None, all_active: bool) -> None:
    """Raise UsageError for a release that cannot be meant. Needs no database, so a slip of the pen starts none."""
    if all_active and not force:
        raise UsageError("--all-active requires --force.")
    if worker is not None and not force:
        raise UsageError(
            "--worker-id requires --force; without it only claims that expired or whose worker is dead are released."
        )
    if force and worker is None and not all_active:
        raise UsageError("--force needs a target: --worker-id ID or --all-active.")
    if worker is not None and all_active:
        raise UsageError("Give either --worker-id or --all-active, not both.")


@dataclass(frozen=True, slots=True)
class ClaimDesk:
    """Claims and runs of one store."""

    database: Database

    def overview(self) -> Overview:
        """The three questions of an operator, answered."""
        with self.database.session() as connection:
            return Overview(
                workers=operator_reports.claims_by_worker(connection),
                expired=operator_reports.expired_claims(connection, limit=_EXPIRED_SHOWN),
                waiting=operator_reports.waiting_domains(connection),
                cooling=operator_reports.cooling_domains(connection),
            )

    def targets(self, *, force: bool, worker: str | None) -> list[operator_reports.WorkerClaims]:
        """Which claims a release would free, by worker: expired ones, or with `force` all of a worker or of all (None).

        All claims of a dead worker count as expired: its lease does not matter any more.
        """
        with self.database.session() as connection:
            dead = set(workers.dead(connection))
            found = [
                replace(row, expired=row.claims) if row.worker in dead else row
                for row in operator_reports.claims_by_worker(connection, worker)
            ]
        if worker is not None and not found:
            raise NotFound(f"No worker called {worker!r} holds a claim.")
        return found if force else [row for row in found if row.expired]

    def release_expired(self, *, actor: str) -> int:
        """Free claims whose lease ended, and those of dead workers; how many."""
        with self.database.session() as connection:
            return sweeper.release_expired(connection, actor=actor)

    def force_release(self, worker: str | None, *, actor: str) -> int:
        """Take the claims of a worker, or of all, away from them; how many. Their later writes are fenced off."""
        with self.database.session() as connection:
            return sweeper.force_release(connection, worker=worker, actor=actor)

    def silent_runs(self, older_than: timedelta) -> list[runs.SilentRun]:
        """Runs that say they run and have not been heard of."""
        with self.database.session() as connection:
            return runs.silent(connection, older_than=older_than)

    def close_silent_runs(self, older_than: timedelta, *, actor: str) -> list[int]:
        """Mark them as failed; their ids."""
        with self.database.session() as connection, connection.transaction():
            closed = runs.fail_silent(connection, older_than=older_than, message="Marked stale: no activity timeout")
            if closed:
                audit.write(
                    connection, actor=actor, action="close", kind="runs", object_id="*", details={"runs": closed}
                )
            return closed
