"""The reasons why a visit or a URL waits, and the origin of the delay between requests."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

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
