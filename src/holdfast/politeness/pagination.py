"""Pagination: which links of a page lead to its next page, and where a chain of such steps ends.

The rule: a step is a link on the same host whose URL differs from its page's in one number that grows, or a rel=next link of the same
template. It keeps its page's depth. So that endless chains end, they are cut after `crawl.max_pagination` steps, and after `MAX_BARREN`
pages in a row that led to no other new URL each further step counts as depth, like any other link.
"""

import re
from typing import Final

from holdfast.politeness.crawler_traps import url_template

MAX_BARREN: Final = 3
"""Pages of a chain in a row without any other new URL, after which its steps count as depth."""

_DIGITS: Final = b"0123456789"
_DIGIT: Final = re.compile(r"[0-9]")
_SPLIT: Final = re.compile(r"([0-9]+)")


def has_numbers(url: str) -> bool:
    """Whether a normalized URL has a number after its host. A URL without one is not part of a pagination, unless rel=next says so."""
    return _DIGIT.search(url, url.index("/", 8)) is not None


class Pagination:
    """The pagination steps that lead on from one page, whose URL is normalized."""

    __slots__ = ("_bare", "_numbers", "_page", "_site", "_template")

    def __init__(self, page: str) -> None:
        self._page = page
        self._site = page[: page.index("/", 8) + 1]
        self._bare = page.encode().translate(None, _DIGITS)
        self._numbers = len(self._bare) < len(page)
        self._template: str | None = None

    def is_step(self, url: str, *, is_next: bool = False) -> bool:
        """Whether a link to the normalized `url` is a step. `is_next`: it has rel=next."""
        if self._numbers and url.encode().translate(None, _DIGITS) == self._bare and self._grows(url):
            return True
        if not is_next or url == self._page or not url.startswith(self._site):
            return False
        if self._template is None:
            self._template = url_template(self._page)
        return url_template(url) == self._template

    def _grows(self, url: str) -> bool:
        if not url.startswith(self._site):
            return False
        here, there = _SPLIT.split(self._page), _SPLIT.split(url)
        if len(here) != len(there):
            return False
        different = [at for at, part in enumerate(here) if there[at] != part]
        if len(different) != 1 or not different[0] % 2:
            return False
        return int(there[different[0]]) > int(here[different[0]])


def chain_end_reason(steps: int, limit: int) -> str | None:
    """The reason why a chain ends before its step number `steps`; None: it goes on."""
    return f"step {steps} of a pagination, more than {limit}" if steps > limit else None
