"""What a server says of its store as a whole: how things stand, why something is where it is, whether all is well."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from holdfast.cli.remote import rows
from holdfast.cli.remote.jobs import RemoteJobs
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.client.values import Operation
from holdfast.control.explain import DomainStory, UrlStory
from holdfast.control.verify import Step
from holdfast.db.verify import Finding
from holdfast.errors import HoldfastError

_WORKER: Final = (
    "name",
    "host",
    "pid",
    "started_at",
    "heartbeat_at",
    "alive",
    "held",
    "pages",
    "in_window",
    "status",
    "current_url",
    "current_urls",
    "activity",
    "activity_at",
)
_WORKERS_READ: Final = 10_000
_WORKERS_SHOWN: Final = 50
_LOOK: Final = 0.3
_IDLE: Final = 30
"""Looks after which somebody wonders why nobody begins."""


@dataclass(frozen=True, slots=True)
class RemoteOverview:
    """As `stats/status` has it."""

    now: datetime
    jobs: list[rows.Row]
    workers: list[rows.Row]
    runs: int
    domains: dict[str, int]
    pages_per_second: float
    errors_per_second: float
    bytes_per_second: float
    due: list[rows.Row]
    stay_blocked: int
    wakes: int
    database_bytes: int

    @property
    def empty(self) -> bool:
        """Nothing has ever been asked for."""
        return not any(self.domains.values())


def overview(client: Client) -> RemoteOverview:
    """How things stand now."""
    stats, outlook = client.stats(), client.outlook()
    workers = rows.listed(client, "/api/workers", {}, _WORKERS_READ)
    at_work = [row for row in workers if row["alive"] or row["held"]]
    at_work.sort(key=lambda row: (not row["alive"], row["name"]))
    return RemoteOverview(
        now=stats.at,
        jobs=[asdict(job) for job in RemoteJobs(client).all()],
        workers=[{name: row[name] for name in _WORKER} for row in at_work[:_WORKERS_SHOWN]],
        runs=stats.runs,
        domains=stats.domains,
        pages_per_second=stats.pages_per_second,
        errors_per_second=stats.errors_per_second,
        bytes_per_second=stats.bytes_per_second,
        due=[asdict(due) for due in outlook.due],
        stay_blocked=outlook.stay_blocked,
        wakes=outlook.wakes,
        database_bytes=outlook.database_bytes,
    )


def explain(client: Client, what: str) -> UrlStory | DomainStory:
    """Explain a URL or a domain."""
    found = client.explain(what)
    return read(UrlStory, found.told) if found.kind == "url" else read(DomainStory, found.told)


class RemoteVerifier:
    """As `control/verify` has it: a background of the server does it."""

    def __init__(self, client: Client, *, archive: bool, say: Callable[[str], None]) -> None:
        self._client = client
        self._wanted = archive
        self._say = say
        self.archive: object | None = None
        """What was read of the archive, when it is done; None: nothing."""
        self._names: dict[int, str] = {}

    def run(self) -> Iterator[Step]:
        """How far it is, again and again; then every check with its finding."""
        operation = self._client.verify(archive=self._wanted)
        looks = 0
        while not operation.is_over:
            time.sleep(_LOOK)
            looks += 1
            if looks == _IDLE and operation.state == "waiting":
                self._say("It is still queued; it needs a running `holdfast background` or `holdfast serve`.")
            operation = self._client.operation(operation)
            if step := _step(operation):
                yield step
        if operation.result is None:
            raise HoldfastError(operation.problem or "The server could not verify its store.")
        self.archive = operation.result["archive"] or None
        self._names = {int(number): name for number, name in operation.result["names"].items()}
        checks = operation.result["checks"]
        for number, check in enumerate(checks, 1):
            finding = read(Finding, check)
            yield Step(number, len(checks), finding.check, finding=finding)

    def names_of(self, findings: list[Finding]) -> dict[int, str]:  # noqa: ARG002 — of all that it has found
        """The domains that the rows of findings speak of, by id. Before: `run` has come to its end."""
        return self._names


def _step(operation: Operation) -> Step | None:
    progress = operation.progress
    if not {"checks", "of", "check"} <= set(progress):
        return None
    return Step(progress["checks"], progress["of"], progress["check"], progress.get("looked_at", 0))
