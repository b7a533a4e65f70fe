"""Domains of a server, and its workers with their claims and runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from holdfast.cli.remote.operations import follow
from holdfast.cli.remote.seeds import as_sent
from holdfast.client import Client
from holdfast.domains.records import Domain, DomainDetails, DomainFacts, DomainReset
from holdfast.model.domain import Status
from holdfast.model.domain_name import canonical_domain
from holdfast.model.request_secrets import RequestSecrets
from holdfast.workers.records import ClaimSummary, Run, WorkerClaims
from holdfast.workers.service import choose_releasable

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RemoteDomains:
    """The methods of `domains/service`, over HTTP. The actor is the user of the API key, not `actor`."""

    client: Client

    def recent(self, status: Status | None, limit: int) -> Sequence[Domain]:
        """Domains, the last crawled first."""
        found = list(islice(self.client.domains(status=status, order="crawled"), limit))
        found.sort(key=lambda one: (one.last_visit_ended_at or _NEVER, one.priority, -one.id), reverse=True)
        return found

    def counts(self) -> dict[str, int]:
        """The number of domains in each status; every status is named."""
        return dict.fromkeys(Status, 0) | self.client.stats().domains

    def info(self, name: str) -> DomainFacts:
        """Everything about one domain."""
        return self.client.domain(canonical_domain(name))

    def reset(self, name: str, why: str, *, actor: str) -> DomainReset:  # noqa: ARG002 — see above; likewise below
        """Reset a domain, from any status."""
        return self.client.reset_domain(canonical_domain(name), reason=why)

    def unblock(self, name: str, why: str, *, actor: str) -> DomainReset:  # noqa: ARG002
        """Try a blocked or unreachable domain again."""
        return self.client.unblock_domain(canonical_domain(name), reason=why)

    def configure(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        actor: str,  # noqa: ARG002
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> DomainDetails:
        """Change columns of a domain's configuration, and the secrets that are sent to it; returns the domain."""
        sent: dict[str, Any] = {**(as_sent(secrets) or {}), "plain_http": plain_http} if secrets else {}
        return self.client.configure_domain(canonical_domain(name), **changes, **sent).facts

    def recalculate(self) -> Iterator[tuple[int, int, int]]:
        """Recalculate all priorities in the background of the server; yields (domains read, scores changed, all domains)."""
        operation = self.client.recalculate_priorities()
        for operation in follow(self.client, operation):  # noqa: B020 — the same one, later
            if {"domains", "changed", "of"} <= set(operation.progress):
                yield operation.progress["domains"], operation.progress["changed"], operation.progress["of"]
        result = operation.result or {}
        yield result["domains"], result["changed"], result["domains"]


@dataclass(frozen=True, slots=True)
class RemoteWorkers:
    """The methods of `workers/service`, over HTTP. The actor is the user of the API key, not `actor`."""

    client: Client

    def summary(self) -> ClaimSummary:
        """Claims by worker, expired claims, and the number of domains that wait."""
        return self.client.claim_summary()

    def releasable(self, *, force: bool, worker: str | None, domain: str | None = None) -> list[WorkerClaims]:
        """The claims that a release would free, by worker. Those of a dead worker count when they expire: only the server knows that it
        is dead."""
        if domain is not None:
            return choose_releasable(self._claims_on(domain), force=force, worker=worker, domain=domain)
        found = [row for row in self.client.claim_summary().workers if worker in (None, row.worker)]
        return choose_releasable(found, force=force, worker=worker)

    def _claims_on(self, domain: str) -> list[WorkerClaims]:
        facts = self.client.domain(canonical_domain(domain)).facts
        if facts.claimed_by is None or facts.claim_expires_at is None:
            return []
        return [WorkerClaims(facts.claimed_by, 1, int(facts.claim_expired), facts.claim_expires_at)]

    def release(self, *, force: bool, worker: str | None, actor: str, domain: str | None = None) -> int:  # noqa: ARG002 — see above
        """Release claims; returns how many."""
        name = None if domain is None else canonical_domain(domain)
        all_active = force and worker is None and name is None
        return self.client.release_claims(force=force, worker=worker, domain=name, all_active=all_active)

    def silent_runs(self, older_than: timedelta) -> list[Run]:
        """Runs in state running without a heartbeat for `older_than`."""
        limit = self.client.stats().at - older_than
        return sorted(
            (run for run in self.client.runs(status="running") if run.heartbeat_at < limit), key=lambda run: run.id
        )

    def close_silent_runs(self, older_than: timedelta, *, actor: str) -> list[int]:  # noqa: ARG002
        """Mark silent runs as failed; returns their ids."""
        return self.client.close_silent_runs(older_than_minutes=older_than // timedelta(minutes=1))
