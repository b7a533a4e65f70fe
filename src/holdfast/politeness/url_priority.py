"""The priority of a URL in the frontier of its domain.

The rule: the priority depends on the text of the URL and its depth alone, so it never changes once the URL is in the frontier.
"""

import re
from typing import Final

HIGH: Final = 3
MEDIUM: Final = 2
LOW: Final = 1

SHALLOW: Final = 2
"""Depth up to which a page has high priority."""
DEEP: Final = 5
"""Depth beyond which a page has low priority."""

_LISTING: Final = re.compile(
    r"/(?:page|seite|p)[/-]?[0-9]+(?=[/?]|\Z)"
    r"|/(?:tags?|category|categories|archives?|author)(?=[/?]|\Z)"
    r"|/(?:19|20)[0-9]{2}(?:/[0-9]{1,2}){0,2}/?(?=\?|\Z)"
    r"|[?&](?:page|paged|pg|p|start|offset|from)=[0-9]+(?=&|\Z)",
    re.IGNORECASE,
)


PRIORITY_OF_SITEMAPS: Final = HIGH


def listed_priority(url: str, depth: int, priority: float | None) -> int:
    """The priority of a URL of a sitemap, which may say how important it is, from 0 to 1. Sites that do not care say 0.5, the default."""
    if priority is not None and priority >= 0.8:
        return HIGH
    if priority is not None and priority <= 0.2:
        return LOW
    return url_priority(url, depth)


def url_priority(url: str, depth: int) -> int:
    """The priority of a normalized URL at `depth` links from a seed (the seed's is 0).

    Listing and archive pages come last at any depth: the pages they list are linked from elsewhere, or follow in time.
    """
    if depth == 0:
        return HIGH
    start = url.find("/", 8)
    if start < 0 or start == len(url) - 1:
        return HIGH
    if depth > DEEP or _LISTING.search(url, start):
        return LOW
    return HIGH if depth <= SHALLOW else MEDIUM
