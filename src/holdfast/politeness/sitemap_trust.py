"""Whether the `lastmod` of a host's sitemaps can be trusted, learnt from what its pages did.

Many sites write the time at which the sitemap was generated, or a date that never changes. A page whose `lastmod` is not newer than our
copy is worth skipping only where that was right before. So pages are still fetched while the host is unknown, a few also where it is
trusted, and each fetch is counted. The rule: only pages that were fetched again are evidence, and a sitemap that says the same of all its
pages is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

MIN_UNCHANGED: Final = 20
"""Pages that had to be unchanged as announced, before a host is trusted. If one page in six changed unannounced, twenty in a row without
a miss would be seen in 3 % of all cases: too seldom to skip pages by mistake."""
MAX_MISSED_SHARE: Final = 0.02
"""Of the pages whose `lastmod` was not newer, the share that had changed nevertheless. A missed change costs us an outdated page, so it
counts far more than a fetch for nothing; some is allowed for pages with a random part (an advertisement, a counter)."""
MIN_NEWER: Final = 20
"""Pages with a newer `lastmod` that were fetched, before their share of changes counts."""
MIN_CHANGED_SHARE: Final = 0.1
"""Of the pages with a newer `lastmod`, the share that had to have changed. Below it the dates come from something else than the content
(a build, an export), and their silence means as little as their news."""
MIN_MISSED: Final = 2
"""One missed change is no verdict: the page may have changed between the sitemap and our fetch."""
MIN_ENTRIES: Final = 5
"""Dates that a sitemap needs for a look at whether they differ; a small site may well have been changed in one go."""
GENERATION_WINDOW: Final = timedelta(minutes=5)
"""Dates this close to the fetch of the sitemap are its time of generation."""
MAX_GENERATED_SHARE: Final = 0.9
"""A sitemap with a larger share of such dates was dated when it was generated."""
MAX_COUNT: Final = 1000
"""Counters are halved when their sum reaches this, so that a host that changes its ways is seen."""


class Trust(StrEnum):
    """What the `lastmod` of a host is worth."""

    UNKNOWN = "unknown"
    """Too little evidence: fetch pages as if there were no `lastmod`, and count."""
    TRUSTED = "trusted"
    """A page whose `lastmod` is not newer than our copy need not be fetched."""
    UNTRUSTED = "untrusted"
    """It is ignored."""


@dataclass(frozen=True, slots=True)
class LastmodEvidence:
    """Counters of a host: pages that were fetched again, by their `lastmod` and by whether their content had changed."""

    newer_changed: int = 0
    newer_unchanged: int = 0
    """Fetched for nothing."""
    older_changed: int = 0
    """`lastmod` was not newer than our copy, but the content had changed: it would have been missed."""
    older_unchanged: int = 0

    def record(self, *, newer: bool, changed: bool) -> "LastmodEvidence":
        """Count a page that was fetched again. `newer`: its `lastmod` was newer than our copy; `changed`: its content differs from that."""
        name = f"{'newer' if newer else 'older'}_{'changed' if changed else 'unchanged'}"
        counted = replace(self, **{name: getattr(self, name) + 1})
        total = counted.newer_changed + counted.newer_unchanged + counted.older_changed + counted.older_unchanged
        if total < MAX_COUNT:
            return counted
        return LastmodEvidence(
            counted.newer_changed // 2,
            counted.newer_unchanged // 2,
            counted.older_changed // 2,
            counted.older_unchanged // 2,
        )

    def trust(self) -> Trust:
        """Judge the host.

        Untrusted as soon as too many changes would have been missed, or its news are nearly always false. Trusted when enough pages were
        unchanged as announced. News that are false now and then do not matter: they cost a fetch, as without a sitemap.
        """
        older = self.older_changed + self.older_unchanged
        newer = self.newer_changed + self.newer_unchanged
        if self.older_changed >= MIN_MISSED and self.older_changed > MAX_MISSED_SHARE * older:
            return Trust.UNTRUSTED
        if newer >= MIN_NEWER and self.newer_changed < MIN_CHANGED_SHARE * newer:
            return Trust.UNTRUSTED
        if self.older_unchanged >= MIN_UNCHANGED and self.older_changed <= MAX_MISSED_SHARE * older:
            return Trust.TRUSTED
        return Trust.UNKNOWN


def is_generated(lastmods: Iterable[datetime | None], fetched_at: datetime) -> bool:
    """Whether the dates of a sitemap say nothing about its pages: all are the same instant, or nearly all are that of its fetch.

    The pages of such a sitemap are no evidence, and its dates are to be ignored. Entries without a date do not count. A sitemap with few
    dates is judged by the time of its fetch only.
    """
    dates = [date for date in lastmods if date is not None]
    if not dates:
        return False
    fresh = sum(abs(fetched_at - date) <= GENERATION_WINDOW for date in dates)
    if fresh > MAX_GENERATED_SHARE * len(dates) and len(dates) > 1:
        return True
    return len(dates) >= MIN_ENTRIES and len(set(dates)) == 1
