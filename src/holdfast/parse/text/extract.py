"""Extraction of the main content of a page: blocks, features, scores, selection, Markdown. One parse of the page, one walk.

Owns the order of the steps and the selection. The rule: pure and deterministic: the same page with the same version gives the same
document. The caller has made sure that the page is safe for the parser (`parse/risk_check`), or runs in a process that may be killed.
"""

import re
from collections.abc import Sequence
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from holdfast.model.document import Document, PageKind
from holdfast.parse.plugin_api import absolute_url
from holdfast.parse.text import markdown, model
from holdfast.parse.text.blocks import TAG_BITS, Block, Container, clean, read_blocks
from holdfast.parse.text.features import block_features, fill_containers, page_features
from holdfast.parse.text.hints import Hints, read_hints

VERSION: Final = "2"
"""Raised by every change that may give another document for the same page."""

_CAUTION: Final = 1.3
"""Exponent of the scores before the selection: above 1, doubtful blocks count less. Chosen by cross-validation."""
_PROSE_SHARE: Final = 0.8
"""Share of the words in paragraphs of one element: if as much is kept, all of its paragraphs without links are."""
_TINY: Final = 20
"""Words: of a smaller page everything is kept, as there is nothing to judge by."""
_FEW_WORDS: Final = 50
"""Words: a page with fewer kept words takes the text of its structured data, if that is longer."""
_MIN_OUTSIDE: Final = 0.2
"""Share of the words of a page that are outside of `nav` elements: with fewer, one of them was probably not closed."""
_WITHOUT_EVENTS: Final = 1
_TAG: Final = re.compile(r"<[a-zA-Z/!][^<>]{0,1000}>")


def extract_document(markup: bytes, url: str) -> Document:
    """Extract the main content of a page. `markup` is UTF-8; `url` is the page's own, against which links are resolved."""
    return extract_from_tree(LexborHTMLParser(markup, options=_WITHOUT_EVENTS), url)


def extract_from_tree(tree: LexborHTMLParser, url: str) -> Document:
    """Extract the main content of a page that is parsed. Before: the tree is whole. After: it is unchanged."""
    blocks, containers = read_blocks(tree)
    hints = read_hints(tree)
    fill_containers(blocks, containers)
    page = page_features(blocks, containers, hints, url)
    besides = _navigation(blocks)
    scores = model.content_scores(block_features(blocks, containers, hints, besides), page)
    content = selected([block for block in blocks if not block.container.tags & besides], scores)
    if sum(block.words for block in content) < _FEW_WORDS:
        content = _stated_content(hints, content)
    base = next((node.attributes.get("href") for node in tree.css("base[href]")[:1]), None)
    rendered = markdown.render(content, absolute_url(url, base) or url)
    return Document(
        markdown=rendered.markdown,
        text=rendered.text,
        title=_line(hints.title) or next((block.text for block in blocks if block.level == 1), None),
        author=_line(hints.author),
        published=hints.published,
        language=hints.language,
        site_name=_line(hints.site_name),
        kind=judge_kind(page),
        headings=tuple(rendered.headings),
        blocks=tuple(rendered.blocks),
        extractor=VERSION,
    )


def _navigation(blocks: Sequence[Block]) -> int:
    """Return the bit of elements whose blocks need no judgement, as they are navigation by what the page says; 0: it says so of nearly all
    of its text, so that is not meant."""
    bit = TAG_BITS["nav"]
    words = sum(block.words for block in blocks)
    return bit if sum(block.words for block in blocks if not block.container.tags & bit) >= _MIN_OUTSIDE * words else 0


def _line(text: str | None) -> str | None:
    """Return a stated text without invisible marks; None: nothing is left."""
    return " ".join(clean(text).split()) or None if text else None


def judge_kind(page: tuple[float, ...]) -> PageKind:
    """Return the kind of a page with the highest score; of equals the first."""
    scores = model.kind_scores(page)
    return PageKind(max(scores, key=lambda kind: scores[kind]))


def selected(blocks: Sequence[Block], scores: Sequence[float]) -> list[Block]:
    """Return the blocks to keep, in order: those of `select`, and the short paragraphs that belong to them."""
    sizes = [block.words for block in blocks]
    if sum(sizes) < _TINY:
        return list(blocks)
    kept = set(select(scores, sizes))
    prose: dict[int, list[int]] = {}
    for number, block in enumerate(blocks):
        if block.container.tag == "p" and not block.link_characters:
            prose.setdefault(id(block.container.parent), []).append(number)
    for numbers in prose.values():
        words = sum(sizes[number] for number in numbers)
        if sum(sizes[number] for number in numbers if number in kept) >= _PROSE_SHARE * words:
            kept.update(numbers)
    return [blocks[number] for number in sorted(kept)]


def select(scores: Sequence[float], words: Sequence[int]) -> list[int]:
    """Return the numbers of the blocks to keep, in order.

    A score is the probability that a word of the block is content. Of all thresholds, the one with the highest expected F1 is taken: twice
    the expected content words among the kept ones, by the kept words and all expected content words.
    """
    likely = [min(1.0, max(0.0, score)) ** _CAUTION for score in scores]
    expected = sum(chance * size for chance, size in zip(likely, words, strict=True))
    order = sorted(range(len(likely)), key=likely.__getitem__, reverse=True)  # which keeps the order of equals
    best, best_count, kept_words, kept_content = 0.0, 0, 0, 0.0
    for count, number in enumerate(order, 1):
        kept_words += words[number]
        kept_content += likely[number] * words[number]
        value = kept_content / (kept_words + expected) if expected else 0.0
        if value > best:
            best, best_count = value, count
    return sorted(order[:best_count])


def _stated_content(hints: Hints, content: list[Block]) -> list[Block]:
    """Return the paragraphs of the structured data, or of the description, if they have more words than what was found on the page."""
    found = sum(block.words for block in content)
    stated = clean(_TAG.sub(" ", hints.body or hints.description))
    if len(stated.split()) <= 2 * found:
        return content
    root = Container(None, "body", 0, "body ", hidden=False)
    blocks = []
    for line in stated.splitlines():
        if line.strip():
            block = Block(root)
            block.runs = [(line, 0, None)]
            block.text = " ".join(line.split())
            block.words = block.text.count(" ") + 1
            blocks.append(block)
    return blocks
