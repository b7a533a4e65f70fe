"""The reports of a visit about its domain: progress of a batch, growth of the frontier, and how the visit ends.

The rule: these are differences, never totals. The store adds them under the fence, once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Event


@dataclass(frozen=True, slots=True)
class DomainProgress:
    """The changes of a batch of outcomes on one held domain. One for each domain and batch."""

    domain_id: int
    outcomes: int = 0
    pages_crawled: int = 0
    images_found: int = 0
    images_stored: int = 0
    errors: int = 0
    consecutive_errors: int | None = None
    """Errors of every kind in a row; None keeps the stored number."""
    refusal_streak: int | None = None
    """Refusals and failures to reach the server in a row, which may block the domain; None keeps the stored number."""
    depth_reached: int = 0
    discovered: int = 0
    """Rows that the frontier gained on this domain."""
    waiting: int = 0
    """The change in the number of its waiting URLs."""
    clocks: PolitenessClocks | None = None
    """None keeps the stored ones."""


class FrontierGrowth(NamedTuple):
    """The growth of the frontier by a commit, relative to one held domain: the input of the flood guard."""

    added: int = 0
    """URLs that pages of this domain added to the frontier, on any domain, without those that existed."""
    elsewhere: int = 0
    """The part of `added` on other domains."""
    waiting: int = 0
    """URLs that wait on this domain after the commit."""
    templates: Mapping[tuple[int, int], int] = MappingProxyType({})
    """By (job, template): URLs that were added here and are counted by their template."""

    def plus(self, later: "FrontierGrowth") -> "FrontierGrowth":
        """The growth by both commits."""
        templates = Counter(self.templates)
        templates.update(later.templates)
        return FrontierGrowth(self.added + later.added, self.elsewhere + later.elsewhere, later.waiting, templates)


NO_GROWTH: Final = FrontierGrowth()


@dataclass(frozen=True, slots=True)
class VisitEnd:
    """The end of a visit. Without a stopping event the store itself decides whether the domain is exhausted."""

    domain_id: int
    epoch: int
    event: Event | None = None
    detail: str = ""
    retry_after: timedelta | None = None
    """The Retry-After of the server; the cool-down is at least as long."""
    crawled: bool = True
    """False: nothing was fetched, so the date of the last crawl stays."""
    answered: bool = True
    """The server gave a page or another proper answer: earlier blocks are forgiven, unless this visit ends with another one."""
    spent_jobs: frozenset[int] = field(default_factory=frozenset)
    """Jobs whose share of this round, or whose limit, is used up on this domain."""
    yielding_jobs: frozenset[int] = field(default_factory=frozenset)
    """Jobs that give way to another one, which may claim the domain first."""
    wait: float | None = None
    """Seconds for which no worker needs to claim it: the server asked for them, its circuit is open, or the domain's settings say so."""
    settings_version: int | None = None
    """The version of the domain's settings that `wait` was computed from; if they have changed since, there is no wait. None: it applies in
    any case."""
    keeps_status: bool = False
    """The domain's status and cool-down do not change: a visit for tasks, or domain tracking is switched off."""
