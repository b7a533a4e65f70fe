"""What a worker does at this moment: requests in flight, and why its visits wait.

The rule: bounded, and safe to show. A worker writes it for people to read (live display, `status`, `jobs watch`); nothing is decided by
it. Seconds count from the moment at which it was written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.model.wait import WaitKind

MAX_FETCHING: Final = 6
"""Requests that are named, the oldest first; all are counted."""
MAX_WAITS: Final = 10
"""Waits that are named, trouble first; all are counted."""
LONGEST_URL: Final = 300
LONGEST_DETAIL: Final = 200


@dataclass(frozen=True, slots=True)
class Fetching:
    """A request in flight."""

    url: str
    job_id: int
    seconds: float
    """Since it was sent."""


@dataclass(frozen=True, slots=True)
class VisitWait:
    """A held domain that may not be asked at this moment, and why."""

    domain: str
    job_id: int
    kind: WaitKind
    seconds: float | None = None
    """Until the next attempt; None: unknown."""
    detail: str = ""
    """What the server or the system said last, if that is the cause."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What one worker does."""

    requests: Mapping[int, int] = field(default_factory=dict)
    """Requests in flight, by job."""
    fetching: tuple[Fetching, ...] = ()
    waiting: int = 0
    """Held domains that wait longer than a second."""
    waits: tuple[VisitWait, ...] = ()

    def fingerprint(self, now: float) -> tuple[object, ...]:
        """What makes it another activity: the same for as long as only time passes. `now` is the time of the observation."""
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
        """For the store; None: nothing is done."""
        if not (self.requests or self.waits):
            return None
        return {
            "requests": {str(job): count for job, count in self.requests.items()},
            "fetching": [
                {"url": printable(f.url, LONGEST_URL), "job": f.job_id, "seconds": round(f.seconds, 1)}
                for f in self.fetching[:MAX_FETCHING]
            ],
            "waiting": self.waiting,
            "waits": [
                {
                    "domain": printable(w.domain, LONGEST_URL),
                    "job": w.job_id,
                    "kind": str(w.kind),
                    "seconds": None if w.seconds is None else round(w.seconds, 1),
                    "detail": printable(w.detail, LONGEST_DETAIL),
                }
                for w in self.waits[:MAX_WAITS]
            ],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None, age: float = 0.0) -> "Activity":
        """What was stored `age` seconds ago, as it is now. Kinds that this version does not know are left out."""
        if not stored:
            return cls()
        kinds = {str(kind) for kind in WaitKind}
        return cls(
            {int(job): int(count) for job, count in stored["requests"].items()},
            tuple(Fetching(f["url"], f["job"], f["seconds"] + age) for f in stored["fetching"]),
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
    """Text that cannot steer a terminal and is not longer than `limit` characters."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
