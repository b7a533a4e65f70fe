"""Statistics, alerts, the audit log, webhooks, verification and explanations of a server."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from holdfast.alerts.records import Alert
from holdfast.audit.records import AuditFilter, Entry
from holdfast.backups.records import BackupReport
from holdfast.cli.remote import page_after
from holdfast.cli.remote.jobs import RemoteJobs
from holdfast.cli.remote.operations import follow
from holdfast.client import Client, endpoints
from holdfast.client.decoding import read
from holdfast.control.explain import DomainStory, UrlStory
from holdfast.control.verify import Step
from holdfast.db.keyset_pagination import Key, Page
from holdfast.db.verify import Finding
from holdfast.operations.records import Operation
from holdfast.stats.records import Overview, Point, Stats
from holdfast.storage.records import StorageReport
from holdfast.webhooks.records import Delivery, DeliveryFilter, Outbox
from holdfast.workers.records import ActiveWorker, Worker

_MAX_WORKERS_READ: Final = 10_000
_MAX_WORKERS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class RemoteStats:
    """The statistics of a server, like `StatsService`."""

    client: Client

    def snapshot(self) -> Stats:
        """Return the current figures."""
        return self.client.stats()

    def timeseries(self, since: datetime, *, step: timedelta) -> list[Point]:
        """Return what was crawled in each step since then."""
        return self.client.timeseries(since=since, step=f"{step // timedelta(minutes=1)}m").points

    def overview(self) -> Overview:
        """Return the whole store at a glance."""
        stats, outlook = self.client.stats(), self.client.outlook()
        workers = [one for one in islice(self.client.workers(), _MAX_WORKERS_READ) if one.alive or one.held]
        workers.sort(key=lambda one: (not one.alive, one.name))
        return Overview(
            now=stats.at,
            jobs=RemoteJobs(self.client).all(),
            workers=[_active(one) for one in workers[:_MAX_WORKERS_SHOWN]],
            runs=stats.runs,
            domains=stats.domains,
            pages_per_second=stats.pages_per_second,
            errors_per_second=stats.errors_per_second,
            bytes_per_second=stats.bytes_per_second,
            due=outlook.due,
            stay_blocked=outlook.stay_blocked,
            wakes=outlook.wakes,
            database_bytes=outlook.database_bytes,
            backups=[
                str(one.details.get("why")) for one in self.client.alerts(active=True) if one.kind == "backup_failed"
            ],
        )


@dataclass(frozen=True, slots=True)
class RemoteAuditLog:
    """The audit log of a server, like `AuditService`."""

    client: Client

    def page(self, where: AuditFilter, *, after: Key | None, limit: int) -> Page[Entry]:
        """Return one page of entries, the newest first."""
        listing = endpoints.audit(actor=where.actor, kind=where.kind, object_id=where.object_id)
        return page_after(self.client, listing, after, limit)


@dataclass(frozen=True, slots=True)
class RemoteAlerts:
    """The alerts of a server, like `AlertService`."""

    client: Client

    def list(self, *, active: bool | None, before: int | None, limit: int) -> list[Alert]:
        """Return alerts, the newest first."""
        return page_after(
            self.client, endpoints.alerts(active=active), None if before is None else (before,), limit
        ).rows

    def acknowledge(self, alert_id: int, *, actor: str) -> Alert:  # noqa: ARG002 — the actor is the owner of the API key
        """Acknowledge an alert that fires, and return it."""
        return self.client.acknowledge_alert(alert_id)


@dataclass(frozen=True, slots=True)
class RemoteWebhooks:
    """The outbox of a server, like `WebhookService`. The actor is the owner of the API key."""

    client: Client

    def page(self, where: DeliveryFilter, *, after: Key | None, limit: int) -> Page[Delivery]:
        """Return one page of messages, the newest first."""
        listing = endpoints.deliveries(state=where.state, task_id=where.task, url=where.url)
        return page_after(self.client, listing, after, limit)

    def show(self, delivery_id: int) -> Delivery:
        """Return one message."""
        return self.client.delivery(delivery_id)

    def stats(self) -> Outbox:
        """Return the outbox in numbers."""
        return self.client.outbox()

    def retry(self, delivery_id: int, *, actor: str) -> bool | None:  # noqa: ARG002 — see the class
        """Send a message again; None: the server does not say whether it was due already."""
        self.client.retry_delivery(delivery_id)
        return None

    def retry_all(self, url: str, *, actor: str, progress: Callable[[int], None]) -> int:  # noqa: ARG002 — see the class
        """Send again all messages that were given up for one receiver; return their number."""
        messages = list(self.client.deliveries(state="given_up", url=url))
        for done, message in enumerate(messages, 1):
            self.client.retry_delivery(message.id)
            progress(done)
        return len(messages)


@dataclass(frozen=True, slots=True)
class RemoteStorage:
    """The storage of a server, like `StorageService`."""

    client: Client

    def report(self) -> StorageReport:
        """Return the report of the server's machine."""
        return self.client.storage()


@dataclass(frozen=True, slots=True)
class RemoteBackups:
    """The backups of a server, like `BackupService`."""

    client: Client

    def report(self) -> BackupReport:
        """Return the backups and the schedule."""
        return self.client.backups()


class RemoteVerifier:
    """The verification of a server's store, like `Verifier`: a background process of the server runs it."""

    def __init__(self, client: Client, *, archive: bool) -> None:
        self._client = client
        self._with_archive = archive
        self.archive: object | None = None
        """After `run`: not None if the archive was read."""
        self._names: dict[int, str] = {}

    def run(self) -> Iterator[Step]:
        """Yield the progress until the operation has ended, then each check with its finding. Raises HoldfastError if it failed."""
        operation = self._client.verify(archive=self._with_archive)
        for operation in follow(self._client, operation):  # noqa: B020 — the same one, later
            if step := _step(operation):
                yield step
        result = operation.result or {}
        self.archive = result["archive"] or None
        self._names = {int(number): name for number, name in result["names"].items()}
        checks = result["checks"]
        for number, check in enumerate(checks, 1):
            finding = read(Finding, check)
            yield Step(number, len(checks), finding.check, finding=finding)

    def names_of(self, findings: list[Finding]) -> dict[int, str]:  # noqa: ARG002 — the server has named those of all
        """Return the names of the domains in the rows of findings, by id. Before: `run` has ended."""
        return self._names


def _step(operation: Operation) -> Step | None:
    progress = operation.progress
    if not {"checks", "of", "check"} <= set(progress):
        return None
    return Step(progress["checks"], progress["of"], progress["check"], progress.get("looked_at", 0))


def _active(worker: Worker) -> ActiveWorker:
    """Return the fields of a worker that an overview has."""
    return ActiveWorker(**{field.name: getattr(worker, field.name) for field in fields(ActiveWorker)})


def explain(client: Client, what: str) -> UrlStory | DomainStory:
    """Explain a URL or a domain."""
    found = client.explain(what)
    return read(UrlStory, found.told) if found.kind == "url" else read(DomainStory, found.told)
