"""Why a visit waits before its next request: the kinds of waits, and one wait with its length."""

from enum import StrEnum
from typing import NamedTuple


class WaitKind(StrEnum):
    """What a visit waits for."""

    DELAY = "delay"
    """The delay between two requests: the job's, the domain's or that of robots.txt."""
    BACK_OFF = "back_off"
    """The server refused requests, and is left alone for a while."""
    CIRCUIT = "circuit"
    """The circuit breaker is open: the server failed several times in a row."""
    FLOOD_GUARD = "flood_guard"
    """More URLs wait than `crawl.flood_mark`, and pages of the domain add more than `crawl.discovered_per_second`."""
    RETRY = "retry"
    """Every URL that is left was tried, and its next attempt is later."""
    ROBOTS = "robots"
    """robots.txt could not be fetched, and is asked for again."""
    PROXY = "proxy"
    """No proxy that may be used can be used now."""
    LEASE = "lease"
    """The lease is too short for another request; the heartbeat renews it when the database answers."""
    STORE = "store"
    """What was fetched is not written yet, and no more may be held in memory."""


class Wait(NamedTuple):
    """A wait that is in force."""

    kind: WaitKind
    seconds: float
    """Until it is over."""
