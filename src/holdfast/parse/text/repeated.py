"""Site-aware removal: blocks that stand on many pages of a domain are navigation, notices and the like, which one page cannot show.

Owns the hash of a block, what is counted, which counts are kept, and the decision. Pure: the store of the counts
(`domain_blocks(domain_id, block_hash, pages)`) is the caller's. The rule: the decision depends only on the hashes of the page, the counts
and the number of pages counted, so that the same snapshot of the counts gives the same text again.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

MAX_DOMAIN_BLOCKS: Final = 20_000
"""Counts that are kept of a domain."""
MIN_PAGES: Final = 5
"""Pages of a domain that must be counted before anything is removed; and pages on which a block must stand at least."""
MIN_SHARE: Final = 0.3
"""Share of the pages of the domain on which a block must stand."""
MAX_REMOVED: Final = 0.9
"""Share of the words of a page: if more would be removed, the page is a copy of others, and nothing is."""
LARGE_BLOCK: Final = 40
"""Words: a larger block is rather content, and must stand on twice the share of pages."""

_WORD: Final = re.compile(r"[^\W\d_]+")
"""Numbers do not count: "12 comments" and "13 comments" are the same block."""


def block_hash(text: str) -> int:
    """Return the hash of a block as a signed 64-bit integer: of its words in lower case, without numbers and punctuation."""
    words = _WORD.findall(text.lower())
    if not words:
        words = text.split()
    joined = " ".join(words)
    return int.from_bytes(
        hashlib.blake2b(joined.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
    )


def countable(hashes: Iterable[int]) -> set[int]:
    """Return what a page adds to the counts of its domain: one page for each of its blocks, however often it stands there."""
    return set(hashes)


def add_page(counts: Counter[int], hashes: Iterable[int]) -> None:
    """Count a page. After: each of its blocks has one page more; at most MAX_DOMAIN_BLOCKS blocks are kept (see `pruned`)."""
    counts.update(countable(hashes))
    if len(counts) > 2 * MAX_DOMAIN_BLOCKS:
        kept = pruned(counts)
        counts.clear()
        counts.update(kept)


def pruned(counts: Mapping[int, int], limit: int = MAX_DOMAIN_BLOCKS) -> dict[int, int]:
    """Return the counts that are kept: the most frequent, of equals the smaller hash. So blocks of one page, which are most, go first."""
    if len(counts) <= limit:
        return dict(counts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:limit])


def repeated_blocks(
    hashes: Sequence[int], words: Sequence[int], counts: Mapping[int, int], pages: int, *, protected: Iterable[int] = ()
) -> list[int]:
    """Return the numbers of the blocks to remove. `words`: of each block; `counts`: on how many of `pages` pages each block stands;
    `protected`: numbers of blocks that stay, such as headings with content below them."""
    if pages < MIN_PAGES:
        return []
    stay = set(protected)
    found = []
    for number, (value, size) in enumerate(zip(hashes, words, strict=True)):
        share = MIN_SHARE if size < LARGE_BLOCK else 2 * MIN_SHARE
        if number not in stay and counts.get(value, 0) >= max(MIN_PAGES, share * pages):
            found.append(number)
    if sum(words[number] for number in found) > MAX_REMOVED * sum(words):
        return []
    return found
