"""Which URLs of a domain come first.

The rule: a URL's priority is known from its text and its depth alone, so it never changes once the URL is in the frontier.
"""

import re
from typing import Final

HIGH: Final = 3
MEDIUM: Final = 2
LOW: Final = 1

SHALLOW: Final = 2
"""Links from a seed up to which a page counts as near."""
DEEP: Final = 5
"""Links from a seed beyond which a page counts as far."""

_LISTING: Final = re.compile(
    r"/(?:page|seite|p)[/-]?[0-9]+(?=[/?]|\Z)"
    r"|/(?:tags?|category|categories|archives?|author)(?=[/?]|\Z)"
    r"|/(?:19|20)[0-9]{2}(?:/[0-9]{1,2}){0,2}/?(?=\?|\Z)"
    r"|[?&](?:page|paged|pg|p|start|offset|from)=[0-9]+(?=&|\Z)",
    re.IGNORECASE,
)


def url_priority(url: str, depth: int) -> int:
    """The priority of a normalized URL that was found `depth` links away from a seed (the seed's is 0).

    Pages of lists and archives come last however near they are: what they list is linked from elsewhere, or comes by them in time.
    """
    if depth == 0:
        return HIGH
    start = url.find("/", 8)
    if start < 0 or start == len(url) - 1:
        return HIGH
    if depth > DEEP or _LISTING.search(url, start):
        return LOW
    return HIGH if depth <= SHALLOW else MEDIUM
