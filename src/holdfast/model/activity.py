"""The activity of a worker: its requests in flight, and why its visits wait.

The rule: bounded, and safe to show. A worker writes it for operators (live display, `status`, `jobs watch`); no decision depends on it.
Seconds count from the moment at which it was written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.model.wait import WaitKind

MAX_FETCHING: Final = 6
"""Requests that are listed, the oldest first; all are counted."""
MAX_WAITS: Final = 10
"""Waits that are listed, problems first; all are counted."""
MAX_URL_LENGTH: Final = 300
MAX_DETAIL_LENGTH: Final = 200


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
        )

    def to_json(self) -> dict[str, Any] | None:
        """The JSON to store; None: the worker is idle."""
        if not (self.requests or self.waits):
            return None
        return {
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
        )


def printable(text: str, limit: int) -> str:
    """The text without control characters, cut to `limit` characters: safe to print on a terminal."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
