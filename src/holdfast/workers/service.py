"""Workers, runs and claims: list, show, release claims (stuck ones, of a worker, of a domain, all), close silent runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.db import audit, domains, jobs, runs, sweeper, workers
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.errors import NotFound, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.workers import queries
from holdfast.workers.records import (
    Claim,
    ClaimFilter,
    ClaimSummary,
    Run,
    RunFilter,
    Worker,
    WorkerClaims,
    WorkerFilter,
)

_EXPIRED_SHOWN = 100


def check_target(*, force: bool, worker: str | None, all_active: bool, domain: str | None = None) -> None:
    """Raise UsageError for an invalid combination of options. Needs no database, so that a mistake starts none."""
    if all_active and not force:
        raise UsageError("--all-active requires --force.")
    if worker is not None and not force:
        raise UsageError(
            "--worker-id requires --force; without it only claims that expired or whose worker is dead are released."
        )
    if domain is not None and not force:
        raise UsageError(
            "--domain requires --force; without it only claims that expired or whose worker is dead are released."
        )
    targets = [worker is not None, domain is not None, all_active]
    if force and not any(targets):
        raise UsageError("--force needs a target: --worker-id ID, --domain NAME or --all-active.")
    if sum(targets) > 1:
        raise UsageError("Give one of --worker-id, --domain and --all-active, not several.")


@dataclass(frozen=True, slots=True)
class WorkerService:
    """The workers, runs and claims of one database."""

    database: Database
    registrable: bool = False

    # Lists. In each, `after` is the `next` of the page before.

    def page(
        self,
        where: WorkerFilter | None = None,
        *,
        after: Key | None = None,
        limit: int = 100,
        silence: timedelta = workers.DEAD_AFTER,
    ) -> Page[Worker]:
        """Return one page of workers, by name; one without a heartbeat for `silence` is not alive. Raises UsageError."""
        filters = (where or WorkerFilter()).given()
        return self._page(queries.WORKERS, filters, "name", after, limit, {"silence": silence})

    def show(self, name: str, *, silence: timedelta = workers.DEAD_AFTER) -> Worker:
        """Return one worker by its name. Raises NotFound, UsageError."""
        filters = WorkerFilter(name=name).given()
        found = self._page(queries.WORKERS, filters, "name", None, 1, {"silence": silence}).rows
        if not found:
            raise NotFound(f"There is no worker called {name!r}.")
        worker: Worker = found[0]
        return worker

    def runs(self, where: RunFilter | None = None, *, after: Key | None = None, limit: int = 100) -> Page[Run]:
        """Return one page of runs, newest first. Raises UsageError, NotFound."""
        return self._page(queries.RUNS, (where or RunFilter()).given(), "newest", after, limit)

    def claims(self, where: ClaimFilter | None = None, *, after: Key | None = None, limit: int = 100) -> Page[Claim]:
        """Return one page of claims, by worker. Raises UsageError."""
        return self._page(queries.CLAIMS, (where or ClaimFilter()).given(), "worker", after, limit)

    def _page(
        self,
        listing: Listing[Any],
        filters: dict[str, object],
        order: str,
        after: Key | None,
        limit: int,
        extra: Mapping[str, object] | None = None,
    ) -> Page[Any]:
        check_page_size(limit)
        listing.order(order).check(after)
        with self.database.session() as connection:
            job = filters.get("job")
            if isinstance(job, str):
                filters["job"] = jobs.find(connection, job)
            return listing.page(connection, filters, order=order, after=after, limit=limit, extra=extra)

    # Runs

    def run(self, run_id: int) -> Run:
        """Return one run. Raises NotFound."""
        if not 0 < run_id < 2**63:
            raise UsageError(f"{run_id} is not the id of a run.")
        with self.database.session() as connection:
            return queries.run(connection, run_id)

    def silent_runs(self, older_than: timedelta) -> list[Run]:
        """Return runs in state running without a heartbeat for `older_than`."""
        with self.database.session() as connection:
            return queries.silent_runs(connection, older_than=older_than)

    def close_silent_runs(self, older_than: timedelta, *, actor: str) -> list[int]:
        """Mark silent runs as failed; returns their ids."""
        with self.database.session() as connection, connection.transaction():
            closed = runs.fail_silent(connection, older_than=older_than, message="Marked stale: no activity timeout")
            if closed:
                audit.write(
                    connection, actor=actor, action="close", kind="runs", object_id="*", details={"runs": closed}
                )
            return closed

    # Claims

    def summary(self) -> ClaimSummary:
        """Return claims by worker, expired claims, and the number of domains that wait."""
        with self.database.session() as connection:
            return ClaimSummary(
                workers=queries.claims_by_worker(connection),
                expired=queries.expired_claims(connection, limit=_EXPIRED_SHOWN),
                waiting=queries.waiting_domains(connection),
                cooling=queries.cooling_domains(connection),
            )

    def releasable(self, *, force: bool, worker: str | None, domain: str | None = None) -> list[WorkerClaims]:
        """Return the claims that a release would free, by worker: expired ones, or with `force` all of a worker, on a domain, or all.

        All claims of a dead worker count as expired, whatever their leases are. Raises NotFound if `worker` holds none, or none holds
        `domain`.
        """
        with self.database.session() as connection:
            if domain is not None:
                found = queries.claims_on_domain(connection, self._domain_id(connection, domain))
                return choose_releasable(found, force=force, worker=worker, domain=domain)
            dead = set(workers.dead(connection))
            found = [
                replace(row, expired=row.claims) if row.worker in dead else row
                for row in queries.claims_by_worker(connection, worker)
            ]
        return choose_releasable(found, force=force, worker=worker)

    def release(self, *, force: bool, worker: str | None, actor: str, domain: str | None = None) -> int:
        """Release claims that have expired or whose worker is dead, or with `force` those of a worker, on a domain, or all; returns how
        many. Later writes of a worker that lost its claims are fenced off. Raises NotFound if there is no such domain."""
        with self.database.session() as connection:
            if not force:
                return sweeper.release_expired(connection, actor=actor)
            if domain is None:
                return sweeper.force_release(connection, worker=worker, actor=actor)
            return sweeper.force_release(
                connection,
                worker=None,
                domain_id=self._domain_id(connection, domain),
                subject=self._canonical(domain),
                actor=actor,
            )

    def _domain_id(self, connection: Connection, domain: str) -> int:
        return domains.id_of(connection, self._canonical(domain))

    def _canonical(self, domain: str) -> str:
        return canonical_domain(domain, registrable=self.registrable)


def choose_releasable(
    found: list[WorkerClaims], *, force: bool, worker: str | None, domain: str | None = None
) -> list[WorkerClaims]:
    """Choose the workers whose claims a release would free. Raises NotFound if `worker` holds none, or none holds `domain`."""
    if domain is not None and not found:
        raise NotFound(f"No worker holds {domain}.")
    if worker is not None and not found:
        raise NotFound(f"No worker called {worker!r} holds a claim.")
    return found if force else [row for row in found if row.expired]
