"""Reasons of URLs in the frontier: their codes, and which of them a retry takes.

The rule: a reason is "code: detail". Summaries count by the code, lists filter by it, retries choose by it, and all of them take it from
here. Every code is either in `RETRIED` or has a sentence in `NOT_RETRIED` that says what to do instead.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.outcome import TREATMENT, Outcome, UrlState

FAULT: Final = "fault"
FAULT_TEXT: Final = "a fault of ours"
"""The beginning of the reason of a page that failed with an internal error; its code is `FAULT`."""
CLEARED: Final = "cleared"
ROBOTS_UNAVAILABLE: Final = "robots_unavailable"
"""The reason of URLs that wait for a robots.txt that could not be fetched."""
SITEMAP_TEXT: Final = "a sitemap that is"
"""The beginning of the detail of a sitemap that is too large: no setting changes the limit of sitemaps."""

CODES: Final = frozenset({*map(str, Outcome), FAULT, CLEARED, ROBOTS_UNAVAILABLE})
"""Every code that the frontier stores."""
NOT_LEFT_OUT: Final = frozenset(
    map(
        str,
        (
            *(Outcome.OK, Outcome.NOT_MODIFIED, Outcome.SITEMAP, Outcome.NO_SITEMAP, Outcome.IMAGE, Outcome.CHECKED),
            *(Outcome.REDIRECT, Outcome.NO_HTTPS, Outcome.OTHER_DOMAIN),
        ),
    )
)
"""Codes of URLs that were crawled, or replaced by another one, or guessed in vain: they do not count as not crawled."""

_SCOPE: Final = "`holdfast jobs set NAME scope=… include=… exclude=…` edits the rules, and crawls what fits them"
_LINK: Final = "the link is judged again when its page is crawled again (`holdfast crawl --job NAME --again`)"
_PAGE: Final = "it is crawled; `holdfast crawl --job NAME --again` fetches all pages again"

NOT_RETRIED: Final[Mapping[str, str]] = {
    Outcome.OK: _PAGE,
    Outcome.NOT_MODIFIED: _PAGE,
    Outcome.IMAGE: "it is stored; `holdfast crawl --job NAME --again` fetches it again",
    Outcome.IMAGE_LIMIT: "`images.max_per_host` limits it; `holdfast crawl --job NAME --again` with a larger one fetches more",
    Outcome.CHECKED: "the link to it works; `holdfast crawl --job NAME --again` checks it again",
    Outcome.CHECK_LIMIT: "`crawl.checks_per_host` limits it; `holdfast crawl --job NAME --again` with a larger one checks more",
    Outcome.SITEMAP: "it is read; `holdfast crawl --job NAME --again` reads it again",
    Outcome.NO_SITEMAP: "nothing says that there is a sitemap; `holdfast crawl --job NAME --again` asks again",
    Outcome.REDIRECT: "it redirects, and its target is a URL of its own; retry that one",
    Outcome.NO_HTTPS: "the same URL over http is crawled instead; retry that one",
    Outcome.ADDRESS_REFUSED: "`holdfast jobs set NAME allow_private=yes` allows its address, and retries it",
    Outcome.OUT_OF_SCOPE: _SCOPE,
    Outcome.EXCLUDED: _SCOPE,
    Outcome.TOO_DEEP: "`holdfast jobs set NAME max_depth=N` raises the limit, and crawls what is within it",
    Outcome.TRAP: f"it looks endless; raise the limit of its kind (`crawl.template_cap`, `crawl.max_segments`, …), and {_LINK}",
    Outcome.URL_REFUSED: "it is no URL that can be crawled",
    Outcome.NOFOLLOW: "`holdfast crawl URL --job NAME` with the URL itself crawls it",
    Outcome.FOLDED: "it is crawled under a shorter URL; `strip_params` of the job or the domain decides that",
    Outcome.PAGINATION: "`crawl.max_pagination` limits it; `holdfast crawl URL --job NAME` with the URL itself crawls it",
    Outcome.OTHER_DOMAIN: "it is crawled with its own domain; retry it there",
    ROBOTS_UNAVAILABLE: "it waits already; robots.txt is asked for again by itself, and at once by `holdfast crawl --job NAME`",
}
"""Why URLs with these codes are not retried, and what to do instead: the end of a sentence. NAME: the job."""
RETRIED: Final = CODES - NOT_RETRIED.keys()
"""The codes of URLs that can be retried: failures to fetch, refusals, missing pages, and denials by robots.txt, which may have changed."""


def check_code(code: str) -> None:
    """Raise UsageError for a text that is no code of a reason."""
    if code not in CODES:
        raise UsageError(f"There is no reason {code!r}; there are {', '.join(sorted(CODES))}.")


def state_of(code: str) -> UrlState:
    """Return the state of URLs that ended with this code."""
    return TREATMENT[Outcome(code)].state if code in TREATMENT else UrlState.FAILED


def codes_of(state: UrlState) -> frozenset[str]:
    """Return the codes of URLs in this state that can be retried."""
    return frozenset(code for code in RETRIED if state_of(code) is state)
