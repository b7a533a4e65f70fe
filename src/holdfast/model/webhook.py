"""A message that we send to somebody's web server when something happened: what is in it, who vouches for it, when it is sent again.

The rule: a message is signed anew with every attempt and never changes in between; its id tells a receiver that it is the same one.
Everything that can come of an attempt has one answer in `verdict`.

The signature is the header `Holdfast-Signature: t=SECONDS,v1=HEX`: an HMAC-SHA256 over the seconds, a full stop and the body. While a
secret is replaced there is one `v1` for each.
"""

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchRequest, FetchResult

SIGNATURE: Final = "Holdfast-Signature"
TOLERANCE: Final = timedelta(minutes=5)
"""How old a message may be for its receiver; one that was recorded and is sent again later is older."""
ANSWER_BYTES: Final = 64 * 1024
"""Of an answer that are read: enough to show a person why a message was refused."""
LONGEST_RETRY_AFTER: Final = timedelta(days=30)

_HEADER: Final = re.compile(r"t=(0|[1-9][0-9]{0,11})((?:,v1=[0-9a-f]{64}){1,16})", re.ASCII)
_JITTER: Final = 0.5
_NEVER: Final = frozenset((Outcome.ADDRESS_REFUSED, Outcome.URL_REFUSED))
"""We do not send there, and shall not next time."""
_TRANSIENT: Final = frozenset((408, 429))
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Message:
    """What happened."""

    id: str
    """The same in every attempt."""
    event: str
    """In one word, such as task.completed."""
    created_at: datetime
    data: Mapping[str, Any]
    """What JSON has: texts, whole and finite numbers, lists, maps with texts as keys."""

    def body(self) -> bytes:
        """As it is sent: the same bytes for the same message, and ASCII whatever the web put into it."""
        whole = {"id": self.id, "event": self.event, "created_at": _written(self.created_at), "data": dict(self.data)}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def sign(body: bytes, secrets: Sequence[bytes], now: datetime) -> str:
    """The value of the header that vouches for *body*, one signature for each of the secrets. Before: there is one, none is empty."""
    if not secrets or not all(secrets):
        raise ValueError("a webhook is signed with at least one secret, and an empty one is none")
    seconds = int(now.timestamp())
    return ",".join((f"t={seconds}", *(f"v1={_signature(secret, seconds, body)}" for secret in secrets)))


def verify(header: str, body: bytes, secrets: Sequence[bytes], now: datetime, tolerance: timedelta = TOLERANCE) -> bool:
    """Whether one of *secrets* vouches for *body*, and not long ago. For receivers: any header has an answer, and how long it takes
    says nothing about how much of a signature was right."""
    found = _HEADER.fullmatch(header)
    if found is None:
        return False
    seconds = int(found[1])
    signatures = [part.removeprefix("v1=") for part in found[2].split(",")[1:]]
    good = False
    for secret in filter(None, secrets):
        expected = _signature(secret, seconds, body)
        for signature in signatures:
            good |= hmac.compare_digest(signature, expected)
    return good and abs(now.timestamp() - seconds) <= tolerance.total_seconds()


def request(
    url: str, message: Message, secrets: Sequence[bytes], now: datetime, *, user_agent: str, allow_private: bool = False
) -> FetchRequest:
    """One attempt to deliver *message*, to be sent now."""
    body = message.body()
    headers = (
        ("Content-Type", "application/json"),
        ("Holdfast-Event", message.event),
        ("Holdfast-Delivery", message.id),
        (SIGNATURE, sign(body, secrets, now)),
    )
    return FetchRequest(
        url,
        user_agent,
        any_type=True,
        max_bytes=ANSWER_BYTES,
        cut=True,
        allow_private=allow_private,
        post=body,
        headers=headers,
    )


class Next(StrEnum):
    """What follows from an attempt."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GIVE_UP = "give_up"
    """This message; the next one may fare better."""
    SWITCH_OFF = "switch_off"
    """The receiver wants no more of them."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a message is sent, and how long to wait in between."""

    attempts: int = 10
    first: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(hours=6)
    """Of the pauses; a Retry-After may be longer."""


class Verdict(NamedTuple):
    """What follows; `wait` is how long until the next attempt, None where there is none."""

    next: Next
    wait: timedelta | None = None


def verdict(result: FetchResult, attempt: int, jitter: float, patience: Patience) -> Verdict:
    """What follows from attempt number *attempt*, counted from 1. *jitter*, from 0 to 1, makes the pause up to half as long again."""
    what = _meaning(result.status, result.outcome)
    if what is not Next.AGAIN:
        return Verdict(what)
    if attempt >= patience.attempts:
        return Verdict(Next.GIVE_UP)
    doublings = min(max(attempt, 1) - 1, 40)  # beyond that the longest pause is reached from any first one
    seconds = min(patience.first.total_seconds() * 2**doublings, patience.longest.total_seconds())
    pause = timedelta(seconds=seconds * (1 + _JITTER * min(max(0.0, jitter), 1.0)))
    return Verdict(Next.AGAIN, max(pause, min(result.retry_after or timedelta(), LONGEST_RETRY_AFTER)))


def _meaning(status: int | None, outcome: Outcome) -> Next:
    """Of an attempt for itself. Where there is a status it counts, whatever became of the rest of the answer."""
    if status is None:
        return Next.GIVE_UP if outcome in _NEVER else Next.AGAIN
    if 200 <= status < 300:
        return Next.DELIVERED
    if status == _GONE:
        return Next.SWITCH_OFF
    return Next.GIVE_UP if 400 <= status < 500 and status not in _TRANSIENT else Next.AGAIN


def _signature(secret: bytes, seconds: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%b" % (seconds, body), "sha256").hexdigest()


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
