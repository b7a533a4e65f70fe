"""The health of a server: what a liveness and a readiness probe answer."""

from typing import Literal

from holdfast.model.record import record


@record
class Health:
    """The process is alive, and whether the database and Redis work."""

    status: Literal["ok", "degraded"]
    """`degraded`: the database or Redis does not work; `/health/ready` says why."""
    database: Literal["ok", "unavailable"]
    """`unavailable`: it does not answer, or has another schema."""
    redis: Literal["ok", "unavailable", "not configured"]
    version: str


@record
class Part:
    """A part that the server needs."""

    name: Literal["database", "schema", "redis"]
    works: bool
    cause: str | None = None
    """Why it does not work."""


@record
class Readiness:
    """Whether requests would be answered."""

    status: Literal["ready", "not ready"]
    parts: list[Part]
