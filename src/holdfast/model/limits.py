"""Page limits of a crawl: the share of a round, which is fairness, and the limits that a person gave, which end it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Limit(StrEnum):
    """A limit that a person gave."""

    MAX_PAGES = "max_pages"
    """Of the crawl, over all domains."""
    MAX_PAGES_PER_DOMAIN = "max_pages_per_domain"
    ROUNDS = "rounds"
    """Shares of each domain."""
    DOMAIN_BUDGET = "domain_budget"
    """Set on the domain itself (`domain-set budget=`)."""


@dataclass(frozen=True, slots=True)
class DomainLimits:
    """The pages that one domain may use in one crawl."""

    share: int | None = None
    """Pages of one round; None: there are no rounds."""
    limit: int | None = None
    """Pages of the crawl: the smallest of the limits that a person gave; None: none was given."""
    limited_by: Limit | None = None
    """Which of them that is."""

    @classmethod
    def of(cls, *, share: int, max_pages_per_domain: int | None, rounds: int | None, domain_budget: int | None) -> Self:
        """The limits of a domain for a job. Of equal limits the first is named."""
        given = (
            (max_pages_per_domain, Limit.MAX_PAGES_PER_DOMAIN),
            (domain_budget, Limit.DOMAIN_BUDGET),
            (None if rounds is None else rounds * share, Limit.ROUNDS),
        )
        limits = [(pages, by) for pages, by in given if pages is not None]
        return cls(share, *min(limits, key=lambda one: one[0])) if limits else cls(share)
