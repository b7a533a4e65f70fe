"""Webhook messages: their content, signature, and retries.

The rule: a message is signed anew with every attempt and never changes in between; its id tells a receiver that it is the same one. Every
possible result of an attempt has one decision in `decide_delivery`.

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

from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome

SIGNATURE: Final = "Holdfast-Signature"
TOLERANCE: Final = timedelta(minutes=5)
"""Maximum age of a message for its receiver; a recorded message that is replayed later is older."""
MAX_ANSWER_BYTES: Final = 64 * 1024
"""Bytes of an answer that are read: enough to show why a message was refused."""
MAX_RETRY_AFTER: Final = timedelta(days=30)

_HEADER: Final = re.compile(r"t=(0|[1-9][0-9]{0,11})((?:,v1=[0-9a-f]{64}){1,16})", re.ASCII)
_JITTER: Final = 0.5
_PERMANENT: Final = frozenset((Outcome.ADDRESS_REFUSED, Outcome.URL_REFUSED))
"""Outcomes of addresses that we never send to, so a retry is useless."""
_TRANSIENT: Final = frozenset((408, 429))
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """The message about an event."""

    id: str
    """The same in every attempt."""
    event: str
    """The type of the event, such as task.completed."""
    created_at: datetime
    data: Mapping[str, Any]
    """JSON values: strings, whole and finite numbers, lists, maps with strings as keys."""

    def body(self) -> bytes:
        """The body as sent: the same bytes for the same message, and ASCII whatever data from the web it contains."""
        whole = {"id": self.id, "event": self.event, "created_at": _isoformat(self.created_at), "data": dict(self.data)}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def sign(body: bytes, secrets: Sequence[bytes], now: datetime) -> str:
    """The value of the signature header for *body*, one signature for each of the secrets. Before: there is at least one secret, none is
    empty."""
    if not secrets or not all(secrets):
        raise ValueError("a webhook is signed with at least one secret, and an empty one is none")
    seconds = int(now.timestamp())
    return ",".join((f"t={seconds}", *(f"v1={_signature(secret, seconds, body)}" for secret in secrets)))


def verify(header: str, body: bytes, secrets: Sequence[bytes], now: datetime, tolerance: timedelta = TOLERANCE) -> bool:
    """Whether *body* is signed by one of *secrets*, within *tolerance*. For receivers: any header has a result, and the time it takes is
    independent of how much of a signature was right."""
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


def delivery_request(
    url: str,
    message: WebhookMessage,
    secrets: Sequence[bytes],
    now: datetime,
    *,
    user_agent: str,
    allow_private: bool = False,
) -> FetchRequest:
    """The request for one attempt to deliver *message*, to be sent now."""
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
        max_bytes=MAX_ANSWER_BYTES,
        cut=True,
        allow_private=allow_private,
        post=body,
        headers=headers,
    )


class NextStep(StrEnum):
    """The consequence of an attempt."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GIVE_UP = "give_up"
    """Give up this message; the next one may succeed."""
    SWITCH_OFF = "switch_off"
    """The receiver wants no more messages."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts and the pauses between them."""

    attempts: int = 10
    first: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(hours=6)
    """Maximum pause; a Retry-After may be longer."""


class DeliveryDecision(NamedTuple):
    """The consequence of an attempt; `wait` is the time until the next one, None if there is none."""

    next: NextStep
    wait: timedelta | None = None


def decide_delivery(result: FetchResult, attempt: int, jitter: float, patience: RetryPolicy) -> DeliveryDecision:
    """The decision after attempt number *attempt*, counted from 1. *jitter*, from 0 to 1, makes the pause up to half as long again."""
    what = _next_step(result.status, result.outcome)
    if what is not NextStep.AGAIN:
        return DeliveryDecision(what)
    if attempt >= patience.attempts:
        return DeliveryDecision(NextStep.GIVE_UP)
    doublings = min(max(attempt, 1) - 1, 40)  # by then every first pause has reached the maximum
    seconds = min(patience.first.total_seconds() * 2**doublings, patience.longest.total_seconds())
    pause = timedelta(seconds=seconds * (1 + _JITTER * min(max(0.0, jitter), 1.0)))
    return DeliveryDecision(NextStep.AGAIN, max(pause, min(result.retry_after or timedelta(), MAX_RETRY_AFTER)))


def _next_step(status: int | None, outcome: Outcome) -> NextStep:
    """The meaning of a single attempt. If there is a status it counts, however the rest of the answer ended."""
    if status is None:
        return NextStep.GIVE_UP if outcome in _PERMANENT else NextStep.AGAIN
    if 200 <= status < 300:
        return NextStep.DELIVERED
    if status == _GONE:
        return NextStep.SWITCH_OFF
    return NextStep.GIVE_UP if 400 <= status < 500 and status not in _TRANSIENT else NextStep.AGAIN


def _signature(secret: bytes, seconds: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%b" % (seconds, body), "sha256").hexdigest()


def _isoformat(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
