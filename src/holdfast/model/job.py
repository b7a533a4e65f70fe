"""What a user asked for: the spec of a job, and the limits of a crawl.

Crawl = one invocation of a job (its budgets count from its beginning, whatever dies meanwhile); run = one worker process in it.
"""

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Self


class Scope(StrEnum):
    """Which links of a page are followed, seen from the page."""

    HOST = "host"
    """On the same host and port."""
    DOMAIN = "domain"
    """On the same registrable domain."""
    ANY = "any"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """How a job is to be crawled; kept with the job, so that every worker on every machine reads the same."""

    scope: Scope = Scope.HOST
    max_pages: int | None = None
    """Of a crawl, over all domains."""
    max_pages_per_domain: int | None = None
    """Of a crawl; None is the domain's own."""
    max_depth: int | None = None
    """None is the settings'."""
    delay: float | None = None
    """Seconds; None is the domain's own."""
    concurrency: int | None = None
    include: tuple[str, ...] = ()
    """Regular expressions, searched in the URL; with any of them, only URLs that match one are crawled (seeds always are)."""
    exclude: tuple[str, ...] = ()
    robots: bool = True
    archive: bool = True
    text: bool = False
    allow_private: bool = False

    def as_json(self) -> dict[str, Any]:
        """For the store."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """From the store; unknown keys, of a newer version, are left out."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        for name in ("include", "exclude"):
            values[name] = tuple(values.get(name) or ())
        if "scope" in values:
            values["scope"] = Scope(values["scope"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a worker sees it."""

    id: int
    name: str
    spec: JobSpec
    crawl_id: int | None
    """The crawl that is under way; budgets count in it."""
