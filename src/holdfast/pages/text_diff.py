"""The unified diff of two texts of a page, in bounded time for any text.

The rule: the visible text of a page is one line, so it is split into lines first, at places that depend on the words around them: a
change moves few of them. Lines are compared by difflib where that is cheap. Else lines that occur once in both texts are the anchors,
difflib compares what lies between them, and what would still cost too much is shown as replaced.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple
from zlib import crc32

MAX_TEXT: Final = 200_000
"""Characters of each text that are compared."""

_SENTENCE_END: Final = (".", "!", "?", "…", "。", "！", "？")  # noqa: RUF001 — the full-width ones are meant
_MIN_LINE: Final = 20
_LONG_LINE: Final = 60
"""From this length on a line ends at a word by its checksum: one in four."""
_MAX_LINE: Final = 200
_MAX_STEPS: Final = 2_000_000
"""Estimated steps of difflib for one diff: about a second."""
_CONTEXT: Final = 3


class Block(NamedTuple):
    """Lines `start` to `end` of the older text became lines `new_start` to `new_end` of the newer one."""

    start: int
    end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """Split a text into lines: at the ends of sentences, and long ones at words that are the same in every text."""
    lines: list[str] = []
    line: list[str] = []
    length = 0
    for word in text.split():
        line.append(word)
        length += len(word) + 1
        if length >= _MIN_LINE and (
            word.endswith(_SENTENCE_END)
            or length >= _MAX_LINE
            or (length >= _LONG_LINE and crc32(word.encode("utf-8", "replace")) % 4 == 0)
        ):
            lines.append(" ".join(line))
            line, length = [], 0
    return [*lines, " ".join(line)] if line else lines


def unified_diff(older: str, newer: str, older_name: str, newer_name: str) -> str:
    """Return the unified diff of two texts, of at most `MAX_TEXT` characters each; empty: they are the same."""
    a, b = split_lines(older[:MAX_TEXT]), split_lines(newer[:MAX_TEXT])
    lines = [line for hunk in _hunks(changed_blocks(a, b)) for line in _hunk_lines(a, b, hunk)]
    return "\n".join([f"--- {older_name}", f"+++ {newer_name}", *lines, ""]) if lines else ""


def changed_blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """Return the blocks of lines in which two texts differ, in their order."""
    limit = min(len(a), len(b))
    head = next((place for place in range(limit) if a[place] != b[place]), limit)
    tail = next((place for place in range(limit - head) if a[-1 - place] != b[-1 - place]), limit - head)
    whole = Block(head, len(a) - tail, head, len(b) - tail)
    if _steps(a, b, whole) <= _MAX_STEPS:
        return list(_compared(a, b, whole))
    left = _MAX_STEPS
    blocks: list[Block] = []
    for gap in _gaps(a, b, whole):
        if (steps := _steps(a, b, gap)) <= left:
            left -= steps
            blocks += _compared(a, b, gap)
        else:
            blocks.append(gap)
    return blocks


def _steps(a: Sequence[str], b: Sequence[str], block: Block) -> int:
    """An upper estimate of the steps of difflib: pairs of equal lines, once for each match that it may find one after the other."""
    old, new = a[block.start : block.end], b[block.new_start : block.new_end]
    times = Counter(new)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)  # more frequent lines are not looked at (autojunk)
    pairs = sum(count for line in old if (count := times[line]) <= popular)
    return (pairs + len(old) + len(new)) * min(len(old), len(new))


def _compared(a: Sequence[str], b: Sequence[str], block: Block) -> Iterator[Block]:
    """The differences inside a block, found by difflib."""
    matcher = SequenceMatcher(None, a[block.start : block.end], b[block.new_start : block.new_end])
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield Block(block.start + start, block.start + end, block.new_start + new_start, block.new_start + new_end)


def _gaps(a: Sequence[str], b: Sequence[str], block: Block) -> Iterator[Block]:
    """What lies between the anchors: lines that occur once in each text, in the same order."""
    start, new_start = block.start, block.new_start
    for place, new_place in _anchors(a, b, block):
        if (place, new_place) != (start, new_start):
            yield Block(start, place, new_start, new_place)
        start, new_start = place + 1, new_place + 1
    if (start, new_start) != (block.end, block.new_end):
        yield Block(start, block.end, new_start, block.new_end)


def _anchors(a: Sequence[str], b: Sequence[str], block: Block) -> list[tuple[int, int]]:
    """The longest ascending sequence of pairs of places (patience sorting)."""
    once = {line for line, count in Counter(a[block.start : block.end]).items() if count == 1}
    once &= {line for line, count in Counter(b[block.new_start : block.new_end]).items() if count == 1}
    places = {b[place]: place for place in range(block.new_start, block.new_end) if b[place] in once}
    old = {places[a[place]]: place for place in range(block.start, block.end) if a[place] in once}
    piles: list[int] = []
    before: dict[int, int | None] = {}
    for new_place in old:
        pile = bisect_left(piles, new_place)
        before[new_place] = piles[pile - 1] if pile else None
        if pile == len(piles):
            piles.append(new_place)
        else:
            piles[pile] = new_place
    found: list[tuple[int, int]] = []
    last = piles[-1] if piles else None
    while last is not None:
        found.append((old[last], last))
        last = before[last]
    return found[::-1]


def _hunks(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks that are shown together, since the lines of context around them touch."""
    hunks: list[list[Block]] = []
    for block in blocks:
        if hunks and block.start - hunks[-1][-1].end <= 2 * _CONTEXT:
            hunks[-1].append(block)
        else:
            hunks.append([block])
    return hunks


def _hunk_lines(a: Sequence[str], b: Sequence[str], hunk: Sequence[Block]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    before, after = min(_CONTEXT, first.start), min(_CONTEXT, len(a) - last.end)
    old = (first.start - before, last.end + after)
    new = (first.new_start - before, last.new_end + after)
    yield f"@@ -{_range(*old)} +{_range(*new)} @@"
    place = old[0]
    for block in hunk:
        yield from (f" {line}" for line in a[place : block.start])
        yield from (f"-{line}" for line in a[block.start : block.end])
        yield from (f"+{line}" for line in b[block.new_start : block.new_end])
        place = block.end
    yield from (f" {line}" for line in a[place : old[1]])


def _range(start: int, end: int) -> str:
    """A range of lines as a unified diff has it: the first line and the number of lines; without lines, the line before."""
    return f"{start + 1}" if end - start == 1 else f"{start + (end > start)},{end - start}"
