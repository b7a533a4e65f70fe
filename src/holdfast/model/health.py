"""The health of a server: what a liveness and a readiness probe answer."""

from typing import Literal

from holdfast.model.record import record

SpaceState = Literal["ok", "low", "full"]


@record
class DiskSpace:
    """A volume of a machine, and whether its room is enough."""

    holds: list[str]
    """What is on it: `database`, `archive`, `logs`, `images`."""
    path: str
    """A folder on it."""
    total_bytes: int
    free_bytes: int
    """What Holdfast may still write."""
    state: SpaceState
    """`low`: less than `disk.warn_free`. `full`: less than `disk.min_free`, and no worker of the machine fetches."""
    needed_bytes: int
    """The bound of that state; of `ok` that of `low`."""


@record
class Health:
    """The process is alive, and whether the database and Redis work."""

    status: Literal["ok", "degraded"]
    """`degraded`: the database or Redis does not work, or nothing is fetched because something cannot be written; `/health/ready` says
    why."""
    database: Literal["ok", "unavailable"]
    """`unavailable`: it does not answer, or has another schema."""
    redis: Literal["ok", "unavailable", "not configured"]
    version: str


@record
class Part:
    """A part that the server needs."""

    name: Literal["database", "schema", "redis", "disk", "crawl", "backups"]
    """`disk`: the room on the volumes of the server's machine. `crawl`: whether workers may write what they fetch."""
    works: bool
    cause: str | None = None
    """Why it does not work."""


@record
class Readiness:
    """Whether requests would be answered."""

    status: Literal["ready", "not ready"]
    parts: list[Part]
