"""The activity of a worker: its requests in flight, and why its visits wait.

The rule: bounded, and safe to show. A worker writes it for operators (live display, `status`, `jobs watch`); no decision depends on it.
Seconds count from the moment at which it was written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.model.record import record


class WaitKind(StrEnum):
    """The reason of a wait."""

    DELAY = "delay"
    """The delay between two requests: the job's, the domain's or that of robots.txt."""
    BACK_OFF = "back_off"
    """The server refused requests and gets none for a while."""
    CIRCUIT = "circuit"
    """The circuit breaker is open: the server failed several times in a row."""
    FLOOD_GUARD = "flood_guard"
    """More URLs wait than `crawl.flood_mark`, and pages of the domain add more than `crawl.discovered_per_second`."""
    RETRY = "retry"
    """Every remaining URL was tried, and its next attempt is later."""
    ROBOTS = "robots"
    """robots.txt could not be fetched and is retried."""
    PROXY = "proxy"
    """No allowed proxy is usable now."""
    LEASE = "lease"
    """The lease is too short for another request; the heartbeat renews it when the database answers."""
    STORE = "store"
    """Fetched pages are not written yet, and no more may be held in memory."""


class ProblemKind(StrEnum):
    """The kind of a problem of a worker or its machine."""

    DISK_FULL = "disk_full"
    """A disk has less room than `disk.min_free`: nothing is fetched. The value is its free bytes."""
    DISK_LOW = "disk_low"
    """A disk has less room than `disk.warn_free`. The value is its free bytes."""
    ARCHIVE = "archive"
    """The archive cannot be written: nothing is fetched. The value of this and the next two is the seconds since then."""
    IMAGES = "images"
    """Images cannot be stored: nothing is fetched."""
    DATABASE = "database"
    """The database refuses or does not answer, to some calls at least: nothing is fetched."""
    DATABASE_SLOW = "database_slow"
    """Commits take long. The value is the seconds of the median commit of the last minute."""
    DATABASE_AWAY = "database_away"
    """The database did not answer for a while, a moment ago. The value is how many seconds."""


PAUSING: Final = frozenset({ProblemKind.DISK_FULL, ProblemKind.ARCHIVE, ProblemKind.IMAGES, ProblemKind.DATABASE})
"""Problems while which a worker fetches nothing; it goes on by itself when they end."""


@record
class WorkerProblem:
    """A problem of a worker or its machine, which ends without an edit of the crawl."""

    kind: ProblemKind
    text: str
    """A sentence without its end."""
    since: datetime
    value: float = 0.0
    about: str = ""
    """What of the machine it is about: what is on the disk."""

    @property
    def pauses(self) -> bool:
        """Whether the worker fetches nothing meanwhile."""
        return self.kind in PAUSING


class Wait(NamedTuple):
    """A wait in force."""

    kind: WaitKind
    seconds: float
    """Seconds until it is over."""


class DelaySource(StrEnum):
    """The origin of the delay between two requests to a domain."""

    ROBOTS = "robots"
    """Crawl-delay of its robots.txt."""
    DOMAIN = "domain"
    """An operator set it for the domain."""
    JOB = "job"
    """The job asks for it."""
    DEFAULT = "default"
    """`domains.crawl_delay` of the settings."""
    LEARNT = "learnt"
    """The server has become slower and gets requests less often."""


@record
class WaitCondition:
    """Something that has to happen before a URL is fetched."""

    what: str
    until: datetime | None = None
    """When it ends, if that is known."""
    change: str | None = None
    """What an operator can change about it."""


MAX_FETCHING: Final = 6
"""Requests that are listed, the oldest first; all are counted."""
MAX_WAITS: Final = 10
"""Waits that are listed, problems first; all are counted."""
MAX_URL_LENGTH: Final = 300
MAX_DETAIL_LENGTH: Final = 300
MAX_PROBLEM_LENGTH: Final = 500


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """A request in flight."""

    url: str
    job_id: int
    seconds: float
    """Seconds since it was sent."""


@dataclass(frozen=True, slots=True)
class VisitWait:
    """A held domain that waits at this moment, and why."""

    domain: str
    job_id: int
    kind: WaitKind
    seconds: float | None = None
    """Seconds until the next attempt; None: unknown."""
    detail: str = ""
    """The last message of the server or the system, if that is the cause."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of one worker."""

    requests: Mapping[int, int] = field(default_factory=dict)
    """Requests in flight, by job."""
    fetching: tuple[InFlightRequest, ...] = ()
    waiting: int = 0
    """Held domains that wait longer than a second."""
    waits: tuple[VisitWait, ...] = ()
    problems: tuple[WorkerProblem, ...] = ()

    def fingerprint(self, now: float) -> tuple[object, ...]:
        """A value that stays the same while only time passes, and changes with the activity. `now` is the time of the observation."""
        return (
            tuple(sorted(self.requests.items())),
            tuple((fetch.url, fetch.job_id) for fetch in self.fetching),
            self.waiting,
            tuple(
                (w.domain, w.job_id, w.kind, w.detail, None if w.seconds is None else round(now + w.seconds))
                for w in self.waits
            ),
            tuple((problem.kind, problem.text) for problem in self.problems),
        )

    def to_json(self) -> dict[str, Any] | None:
        """The JSON to store; None: the worker is idle."""
        if not (self.requests or self.waits or self.problems):
            return None
        problems = {"problems": [_problem_json(problem) for problem in self.problems]} if self.problems else {}
        return problems | {
            "requests": {str(job): count for job, count in self.requests.items()},
            "fetching": [
                {"url": printable(f.url, MAX_URL_LENGTH), "job": f.job_id, "seconds": round(f.seconds, 1)}
                for f in self.fetching[:MAX_FETCHING]
            ],
            "waiting": self.waiting,
            "waits": [
                {
                    "domain": printable(w.domain, MAX_URL_LENGTH),
                    "job": w.job_id,
                    "kind": str(w.kind),
                    "seconds": None if w.seconds is None else round(w.seconds, 1),
                    "detail": printable(w.detail, MAX_DETAIL_LENGTH),
                }
                for w in self.waits[:MAX_WAITS]
            ],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None, age: float = 0.0) -> "Activity":
        """The activity stored `age` seconds ago, adjusted to now. Kinds that this version does not know are left out."""
        if not stored:
            return cls()
        kinds = {str(kind) for kind in WaitKind}
        return cls(
            {int(job): int(count) for job, count in stored["requests"].items()},
            tuple(InFlightRequest(f["url"], f["job"], f["seconds"] + age) for f in stored["fetching"]),
            stored["waiting"],
            tuple(
                VisitWait(
                    w["domain"],
                    w["job"],
                    WaitKind(w["kind"]),
                    None if w["seconds"] is None else max(0.0, w["seconds"] - age),
                    w["detail"],
                )
                for w in stored["waits"]
                if w["kind"] in kinds
            ),
            tuple(_problems(stored)),
        )


def problems_of(stored: Iterable[Mapping[str, Any] | None]) -> list[WorkerProblem]:
    """The problems in the activities of several workers, each once, those that pause a crawl first."""
    found = {(one.kind, one.about): one for activity in stored if activity for one in _problems(activity)}
    return sorted(found.values(), key=lambda one: (not one.pauses, one.since))


def _problem_json(problem: WorkerProblem) -> dict[str, Any]:
    return {
        "kind": str(problem.kind),
        "text": printable(problem.text, MAX_PROBLEM_LENGTH),
        "since": problem.since.astimezone(UTC).isoformat(),
        "value": round(problem.value, 1),
        "about": printable(problem.about, MAX_PROBLEM_LENGTH),
    }


def _problems(stored: Mapping[str, Any]) -> Iterable[WorkerProblem]:
    """Those of kinds that this version knows; a worker of an older version has none."""
    kinds = {str(kind) for kind in ProblemKind}
    return [
        WorkerProblem(
            ProblemKind(one["kind"]), one["text"], datetime.fromisoformat(one["since"]), one["value"], one["about"]
        )
        for one in stored.get("problems", ())
        if one["kind"] in kinds
    ]


def printable(text: str, limit: int) -> str:
    """The text without control characters, cut to `limit` characters: safe to print on a terminal."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
