"""The statuses of a domain, the events that change them, and the transition matrix.

The rule: `next_status` is total. It accepts every pair of status and event, and returns a status that the matrix allows. The database
enforces the same matrix by trigger, also against SQL written by hand; a test compares the two.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple


class Status(StrEnum):
    """The status of a domain, for display. Whether a domain can be claimed never depends on it."""

    PENDING = "pending"
    ACTIVE = "active"
    EXHAUSTED = "exhausted"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"


class Event(StrEnum):
    """An event of a domain. Each event leads to one status only."""

    OUTCOME = "outcome"
    """The first page was fetched or refused: the crawl of the domain has begun."""
    FRONTIER_EMPTY = "frontier_empty"
    """No URL waits any more, in any job."""
    LOGIN_REQUIRED = "login_required"
    RATE_LIMITED = "rate_limited"
    FORBIDDEN = "forbidden"
    UNAVAILABLE = "unavailable"
    ROBOTS_DENIED = "robots_denied"
    DNS_FAILURE = "dns_failure"
    CONNECTION_FAILED = "connection_failed"
    TIMEOUT = "timeout"
    TLS_FAILURE = "tls_failure"
    COOLDOWN_ENDED = "cooldown_ended"
    """A blocked or unreachable domain may be tried again."""
    REFRESH_DUE = "refresh_due"
    """The refresh of an exhausted domain is due."""
    WOKEN = "woken"
    """New URLs arrived for an exhausted domain."""
    UNBLOCKED = "unblocked"
    """An operator lets a blocked or unreachable domain be tried again."""
    RESET = "reset"
    """An operator starts it over."""


BLOCKING_EVENTS: Final = frozenset(
    {Event.LOGIN_REQUIRED, Event.RATE_LIMITED, Event.FORBIDDEN, Event.UNAVAILABLE, Event.ROBOTS_DENIED},
)
UNREACHABLE_EVENTS: Final = frozenset({Event.DNS_FAILURE, Event.CONNECTION_FAILED, Event.TIMEOUT, Event.TLS_FAILURE})
STOPPING_EVENTS: Final = BLOCKING_EVENTS | UNREACHABLE_EVENTS
"""Events that end a visit and begin a cool-down. Their names are the reason codes in the store."""

ALLOWED_TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    Status.PENDING: frozenset({Status.ACTIVE, Status.BLOCKED, Status.UNREACHABLE}),
    Status.ACTIVE: frozenset({Status.ACTIVE, Status.EXHAUSTED, Status.BLOCKED, Status.UNREACHABLE}),
    Status.EXHAUSTED: frozenset({Status.PENDING, Status.ACTIVE}),
    Status.BLOCKED: frozenset({Status.PENDING, Status.ACTIVE}),
    Status.UNREACHABLE: frozenset({Status.PENDING, Status.ACTIVE}),
}
"""The transition matrix. A reset goes to pending from every status, because it takes the claim away."""

_TARGET: Final[dict[Event, Status]] = {
    Event.OUTCOME: Status.ACTIVE,
    Event.FRONTIER_EMPTY: Status.EXHAUSTED,
    **dict.fromkeys(BLOCKING_EVENTS, Status.BLOCKED),
    **dict.fromkeys(UNREACHABLE_EVENTS, Status.UNREACHABLE),
    Event.COOLDOWN_ENDED: Status.PENDING,
    Event.REFRESH_DUE: Status.PENDING,
    Event.WOKEN: Status.PENDING,
    Event.UNBLOCKED: Status.PENDING,
    Event.RESET: Status.PENDING,
}

_VALID_FROM: Final[dict[Event, frozenset[Status]]] = {
    Event.OUTCOME: frozenset({Status.PENDING, Status.ACTIVE}),
    Event.COOLDOWN_ENDED: frozenset({Status.BLOCKED, Status.UNREACHABLE}),
    Event.REFRESH_DUE: frozenset({Status.EXHAUSTED}),
    Event.WOKEN: frozenset({Status.EXHAUSTED}),
    Event.UNBLOCKED: frozenset({Status.BLOCKED, Status.UNREACHABLE}),
    Event.RESET: frozenset(Status),
}
"""Events that are valid only in these statuses; elsewhere they change nothing."""


def next_status(status: Status, event: Event) -> Status:
    """The status after the event; the same one if the event has no meaning for it: a page that arrives late does not overwrite the decision
    of an operator or a block, and an empty frontier does not exhaust a domain that was never crawled."""
    target = _TARGET[event]
    if event is Event.RESET:
        return target
    if status not in _VALID_FROM.get(event, ALLOWED_TRANSITIONS):
        return status
    return target if target in ALLOWED_TRANSITIONS[status] else status


def status_reason(event: Event, detail: str = "") -> str:
    """The text that the store keeps with a status. It begins with the event, so two changes in a row never have the same text."""
    return f"{event}: {detail}" if detail else str(event)


class Seed(NamedTuple):
    """A seed: a URL on a domain, perhaps with its rank in a list of popular sites.

    A tuple, because there are millions of them: it is created in a third of a dataclass's time.
    """

    domain: str
    parent_domain: str
    base_url: str
    url: str
    url_key: bytes
    rank: int | None = None
    guessed: bool = False
    """No scheme was given, so the URL is https: http is tried if the server does not speak TLS."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's tenure of a domain. `epoch` fences everything that is written under it."""

    domain_id: int
    epoch: int
    domain: str
    status: Status
    expires_at: datetime
    """By the database's clock, for display. The worker counts from before it sent the claim."""
    clean: bool
    """False: the previous tenure ended without a release, so its last fetch may not be in the store, and one full delay passes before the
    first request."""
