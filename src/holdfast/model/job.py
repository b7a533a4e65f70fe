"""What a user asked for: the spec of a job, the limits of a crawl, and what may be done to a job in which state.

Crawl = one invocation of a job (its budgets count from its beginning, whatever dies meanwhile); run = one worker process in it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from holdfast.errors import UsageError

LONGEST_NAME: Final = 90
"""Characters of the name of a job."""


class JobKind(StrEnum):
    """What its frontier is made of."""

    CRAWL = "crawl"
    TASKS = "tasks"
    """The URLs of queued tasks. There is one such job, which never ends."""


class JobState(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    """Anybody may work on it; nobody has begun, or all have stopped."""
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    """By proof: every URL is dealt with. New seeds, --again, its schedule, a cool-down that ended or a due refresh make it pending."""
    FAILED = "failed"
    """As completed, but without a single page."""
    CANCELLED = "cancelled"


class JobAction(StrEnum):
    """What a person may do to a job."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


_P, _R, _Z, _C, _F, _X = JobState
_ACTIONS: Final[Mapping[JobAction, Mapping[JobState, JobState]]] = MappingProxyType(
    {
        JobAction.PAUSE: {_P: _Z, _R: _Z, _Z: _Z},
        JobAction.RESUME: {_P: _P, _R: _R, _Z: _P},
        JobAction.CANCEL: {_P: _X, _R: _X, _Z: _X, _F: _X, _X: _X},
    }
)


def after(action: JobAction, state: JobState) -> JobState | None:
    """The state of a job after `action`, the same where there is nothing to do; None: it cannot be done in that state."""
    return _ACTIONS[action].get(state)


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
    """Of a crawl; a smaller limit of the domain itself holds, too."""
    rounds: int | None = None
    """Shares (`domains.max_pages_per_run`) of each domain in a crawl; None: as many as there are."""
    max_depth: int | None = None
    """None is the settings'."""
    delay: float | None = None
    """Seconds; None is the domain's own."""
    concurrency: int | None = None
    include: tuple[str, ...] = ()
    """Regular expressions, searched in the URL; with any of them, only URLs that match one are crawled (seeds always are)."""
    exclude: tuple[str, ...] = ()
    strip_params: tuple[str, ...] = ()
    """Parameters to drop from URLs, besides those that the settings name; `x*` is a prefix."""
    robots: bool = True
    archive: bool = True
    text: bool = False
    allow_private: bool = False
    follow: bool = True
    """False: links are not followed."""
    user_agent: str | None = None
    """None is the domain's own, or the settings'. It is not a secret: it decides which robots.txt rules apply."""
    parser: str | None = None
    """The parser that finds items on its pages, by name; None: the one that a person set for the domain, or none."""
    refresh: bool = False
    """Fetch its pages again when a refresh of their domain is due (`cooldown.exhausted` after the last visit)."""

    def as_json(self) -> dict[str, Any]:
        """For the store."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """From the store; unknown keys, of a newer version, are left out."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        for name in ("include", "exclude", "strip_params"):
            values[name] = tuple(values.get(name) or ())
        if "scope" in values:
            values["scope"] = Scope(values["scope"])
        return cls(**values)


def check_name(name: str) -> None:
    """Raise UsageError for what cannot be the name of a new job. The rule: a name can stand in the path of a URL, as the API has it, and
    cannot be taken for an id. A job of before that has another name is reached by its id."""
    if name.isascii() and name.isdigit():
        raise UsageError(f"A job cannot be called {name}: jobs are also named by their ids. Add a letter.")
    if name in {".", ".."}:
        raise UsageError(f"A job cannot be called {name!r}: in the path of a URL that means a folder. Add a letter.")
    if not name or name != name.strip() or "/" in name:
        raise UsageError(
            f"A job cannot be called {name!r}: a name has no slash, and does not begin or end with a space."
        )
    if len(name) > LONGEST_NAME:
        raise UsageError(f"The name of a job has at most {LONGEST_NAME} characters, not {len(name)}.")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a worker sees it."""

    id: int
    name: str
    spec: JobSpec
    crawl_id: int | None
    """The crawl that is under way; budgets count in it."""
    kind: JobKind = JobKind.CRAWL
    settings_version: int = 0
    """Rises with every edit of the spec, its limits or its secrets."""
