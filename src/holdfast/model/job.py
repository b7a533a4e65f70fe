"""Jobs: their spec, states and actions, and the page limits of a crawl.

A crawl is one invocation of a job (its budgets count from its beginning, even if processes die); a run is one worker process in it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from holdfast.errors import UsageError
from holdfast.model.content_type import ContentGroup

MARKDOWN: Final = "markdown"
"""The name of the built-in parser whose results are documents."""
MAIN_TEXT: Final = "main-text"
"""The name of the built-in parser whose results are the texts of pages, where no documents are wanted."""
MAX_NAME_LENGTH: Final = 90
"""Maximum length of the name of a job, in characters."""


class JobKind(StrEnum):
    """The source of a job's URLs."""

    CRAWL = "crawl"
    TASKS = "tasks"
    """The URLs of queued tasks. There is one such job, which never ends."""


class JobState(StrEnum):
    """The state of a job."""

    PENDING = "pending"
    """Any worker may claim it; none has begun, or all have stopped."""
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    """By proof: every URL has an outcome. New seeds, --again, its schedule, a cool-down that ended or a due refresh make it pending."""
    FAILED = "failed"
    """As completed, but without a single page."""
    CANCELLED = "cancelled"


class JobAction(StrEnum):
    """An operator's action on a job."""

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


def state_after(action: JobAction, state: JobState) -> JobState | None:
    """The state of a job after `action`, the same if there is nothing to do; None: the action is not allowed in that state."""
    return _ACTIONS[action].get(state)


class Scope(StrEnum):
    """Which links of a page are followed, relative to the page."""

    HOST = "host"
    """On the same host and port."""
    DOMAIN = "domain"
    """On the same registrable domain."""
    ANY = "any"


class Sitemaps(StrEnum):
    """Whether a job reads the sitemaps of its hosts."""

    ALSO = "also"
    """URLs come from sitemaps and from links."""
    ONLY = "only"
    """URLs come from sitemaps; the links of pages are not followed."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The options of a job; stored with the job, so that every worker on every machine uses the same."""

    scope: Scope = Scope.HOST
    max_pages: int | None = None
    """Pages of a crawl, over all domains."""
    max_pages_per_domain: int | None = None
    """Pages of a crawl on each domain; a smaller limit of the domain itself applies, too."""
    rounds: int | None = None
    """Shares (`domains.max_pages_per_run`) of each domain in a crawl; None: unlimited."""
    max_depth: int | None = None
    """None: the value of the settings."""
    delay: float | None = None
    """Seconds between requests; None: the domain's own."""
    concurrency: int | None = None
    include: tuple[str, ...] = ()
    """Regular expressions, searched in the URL; if there are any, only URLs that match one are crawled (seeds always are)."""
    exclude: tuple[str, ...] = ()
    strip_params: tuple[str, ...] = ()
    """Parameters to drop from URLs, in addition to those of the settings; `x*` is a prefix."""
    robots: bool = True
    archive: bool = True
    text: bool = False
    allow_private: bool = False
    follow: bool = True
    """False: links are not followed."""
    user_agent: str | None = None
    """None: the domain's own, or the settings'. It is not a secret: it decides which robots.txt rules apply."""
    parser: str | None = None
    """The name of the parser that extracts items from its pages; None: the parser that is set for the domain, or none."""
    refresh: bool = False
    """Fetch its pages again when a refresh of their domain is due (`cooldown.exhausted` after the last visit)."""
    sitemaps: Sitemaps | None = None
    """None: the value of the settings."""
    images: bool = False
    """Fetch and store the images of its pages."""
    markdown: bool = False
    """Store the main content of its pages as Markdown."""
    links: bool = False
    """Record the links of its pages."""
    check_external: bool = False
    """Check the targets of links that are out of scope, too, without crawling them. Links are recorded then."""
    types: tuple[ContentGroup, ...] = ()
    """Content that is crawled and archived beside HTML and plain text."""

    def parsers(self, of_domain: str | None) -> tuple[str, ...]:
        """The parsers for its pages on a domain that has the parser `of_domain`; none if pages are not archived."""
        content = MARKDOWN if self.markdown else MAIN_TEXT if self.text else None
        wanted = (self.parser or of_domain, content)
        return tuple(dict.fromkeys(name for name in wanted if name)) if self.archive else ()

    @property
    def records_links(self) -> bool:
        """Whether the links of its pages are recorded."""
        return self.links or self.check_external

    def as_json(self) -> dict[str, Any]:
        """The JSON to store."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """The spec from stored JSON; unknown keys, of a newer version, are ignored."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        for name in ("include", "exclude", "strip_params"):
            values[name] = tuple(values.get(name) or ())
        if "scope" in values:
            values["scope"] = Scope(values["scope"])
        if values.get("sitemaps"):
            values["sitemaps"] = Sitemaps(values["sitemaps"])
        values["types"] = tuple(map(ContentGroup, values.get("types") or ()))
        return cls(**values)


def check_job_name(name: str) -> None:
    """Raise UsageError for an invalid name of a new job.

    The rule: a name can be part of the path of a URL, as in the API, and cannot be mistaken for an id. An older job with another name is
    reached by its id.
    """
    if name.isascii() and name.isdigit():
        raise UsageError(f"A job cannot be called {name}: jobs are also named by their ids. Add a letter.")
    if name in {".", ".."}:
        raise UsageError(f"A job cannot be called {name!r}: in the path of a URL that means a folder. Add a letter.")
    if not name or name != name.strip() or "/" in name:
        raise UsageError(
            f"A job cannot be called {name!r}: a name has no slash, and does not begin or end with a space."
        )
    if len(name) > MAX_NAME_LENGTH:
        raise UsageError(f"The name of a job has at most {MAX_NAME_LENGTH} characters, not {len(name)}.")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a worker sees it."""

    id: int
    name: str
    spec: JobSpec
    crawl_id: int | None
    """The crawl in progress; budgets count in it."""
    kind: JobKind = JobKind.CRAWL
    settings_version: int = 0
    """Incremented with every edit of the spec, its limits or its secrets."""
    rules_version: int = 0
    """The version of its rules (scope, include, exclude, max_depth); 0: they are as it was created."""


class Limit(StrEnum):
    """A page limit that the operator set."""

    MAX_PAGES = "max_pages"
    """Pages of the crawl, over all domains."""
    MAX_PAGES_PER_DOMAIN = "max_pages_per_domain"
    ROUNDS = "rounds"
    """Shares of each domain."""
    DOMAIN_BUDGET = "domain_budget"
    """Set on the domain itself (`domains set DOMAIN budget=`)."""


@dataclass(frozen=True, slots=True)
class DomainLimits:
    """The page limits of one domain in one crawl."""

    share: int | None = None
    """Pages of one round; None: there are no rounds."""
    limit: int | None = None
    """Pages of the crawl: the smallest of the limits that the operator set; None: unlimited."""
    limited_by: Limit | None = None
    """The smallest limit."""

    @classmethod
    def of(cls, *, share: int, max_pages_per_domain: int | None, rounds: int | None, domain_budget: int | None) -> Self:
        """The limits of a domain for a job. Of equal limits the first is named."""
        candidates = (
            (max_pages_per_domain, Limit.MAX_PAGES_PER_DOMAIN),
            (domain_budget, Limit.DOMAIN_BUDGET),
            (None if rounds is None else rounds * share, Limit.ROUNDS),
        )
        limits = [(pages, by) for pages, by in candidates if pages is not None]
        return cls(share, *min(limits, key=lambda one: one[0])) if limits else cls(share)
