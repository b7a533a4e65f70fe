"""What a visit reports about its domain: counters of a flush, and how it ends.

The rule: these are differences, never totals. The store adds them under the fence, once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.model.batch import Clocks
from holdfast.model.domain import Event


@dataclass(frozen=True, slots=True)
class Progress:
    """What a batch of outcomes changed on one held domain. One a domain and batch."""

    domain_id: int
    outcomes: int = 0
    pages_crawled: int = 0
    images_found: int = 0
    images_stored: int = 0
    errors: int = 0
    consecutive_errors: int | None = None
    """Errors of every kind in a row; None leaves the stored number alone."""
    refusal_streak: int | None = None
    """Refusals and failures to reach the server in a row, which may block the domain; None leaves the stored number alone."""
    depth_reached: int = 0
    discovered: int = 0
    """Rows that the frontier got on this domain."""
    waiting: int = 0
    """By how much the number of its waiting URLs changed."""
    clocks: Clocks | None = None
    """None leaves the stored ones alone."""


class Growth(NamedTuple):
    """How a commit changed the frontier, seen from one held domain: what the flood guard judges by."""

    added: int = 0
    """URLs that pages of this domain really added to the frontier, on any domain."""
    elsewhere: int = 0
    """Those of them that belong to other domains."""
    waiting: int = 0
    """URLs that wait on this domain after the commit."""
    templates: Mapping[tuple[int, int], int] = MappingProxyType({})
    """By (job, template): URLs that were really added here and are counted by their template."""

    def then(self, later: "Growth") -> "Growth":
        """Both commits together."""
        templates = Counter(self.templates)
        templates.update(later.templates)
        return Growth(self.added + later.added, self.elsewhere + later.elsewhere, later.waiting, templates)


NO_GROWTH: Final = Growth()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a visit ends. Without a stopping event the store itself decides whether the domain is exhausted."""

    domain_id: int
    epoch: int
    event: Event | None = None
    detail: str = ""
    retry_after: timedelta | None = None
    """What the server asked for; the cool-down is at least as long."""
    crawled: bool = True
    """False: nothing was fetched, so the day of the last crawl stays."""
    answered: bool = True
    """The server gave a page or another proper answer: blocks before this visit are forgiven, unless it ends with another one."""
    spent_jobs: frozenset[int] = field(default_factory=frozenset)
    """Jobs whose share of this round, or whose limit, is used up on this domain."""
    yielding_jobs: frozenset[int] = field(default_factory=frozenset)
    """Jobs that give way to another one, which may claim the domain first."""
    wait: float | None = None
    """Seconds for which no worker need claim it: the server asked for them, its circuit is open, or the domain's settings say so."""
    settings_version: int | None = None
    """The version of the domain's settings that `wait` was judged by; if they have changed since, there is no wait. None: it holds
    anyway."""
    keeps_status: bool = False
    """The domain's status and cool-down stay as they are: a visit for tasks, or domain tracking is switched off."""
