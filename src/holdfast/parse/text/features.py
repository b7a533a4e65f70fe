"""Features of the blocks of a page and of the page: the numbers by which `model` judges what is main content and what kind of page it is.

The rule: a feature depends on the page alone, and all of them take time linear in its blocks and containers. The names are those of the
arguments in `model`, which is fitted by `benchmarks/text/fit.py`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.parse.text.blocks import CATEGORY_BITS, TAG_BITS, Block, Container
from holdfast.parse.text.hints import Hints

_WORD: Final = re.compile(r"\w+")
_PRICE: Final = re.compile(r"[$€£¥₹]\s?\d|\d\s?[$€£¥₹]|\b(?:USD|EUR|GBP)\b")
_SENTENCE: Final = re.compile(r"[.!?:;,](?:\s|$)")
_NOISE: Final = re.compile(
    r"©|copyright|\(c\)|all rights reserved|privacy|terms|cookie|sign (?:in|up)|log ?in|subscribe|share|follow|skip to|read more"
    r"|learn more|view all|see (?:all|more)|show (?:more|less)|load more|add to|quick (?:view|shop|add)|buy now|shop now|sort by|filter"
    r"|next|previous|prev|back to|home|menu|search|close|contact|reply|report|like|quote|advertisement|sponsored|page \d|by |posted"
    r"|last (?:edited|updated)|updated|join|register|click|download|print|edit|select|choose|choosing|quantity|cart|checkout|regular price"
    r"|sale price|unit price|sold out",
    re.IGNORECASE,
)
"""Beginnings of texts that are seldom content."""
_MAX_DISTANCE: Final = 10_000
"""Of a block that has no heading before it."""
_AROUND: Final = 4
"""Blocks before and after a block that are its surroundings."""
_MIN_GROUP: Final = 3
_MIN_GROUP_WORDS: Final = 20
_MIN_SECTION_WORDS: Final = 150
_MAX_COMPARED: Final = 600
"""Characters of a block that are compared with the description of the page."""


def _flags(every: Iterable[int], wanted: Sequence[int]) -> list[tuple[bool, ...]]:
    """Return, for each combination of the bits, which of the wanted ones it has."""
    return [tuple(mask & bit != 0 for bit in wanted) for mask in range(sum(every) + 1)]


_NEAR: Final = _flags(
    CATEGORY_BITS.values(),
    [CATEGORY_BITS[name] for name in ("navigation", "subscribe", "dialog", "comment", "byline", "forum")],
)
_ANYWHERE: Final = _flags(CATEGORY_BITS.values(), [CATEGORY_BITS[name] for name in ("footer", "header", "dialog")])
_ANCESTORS: Final = _flags(TAG_BITS.values(), list(TAG_BITS.values()))

BLOCK_FEATURES: Final = (
    "words", "link_share", "ends_sentence", "noise", "heading_level", "share_before", "place", "depth", "hidden", "after_title",
    "after_heading", "below_heading", "around_words", "in_description",
    "parent_words", "parent_link_share", "parent_share", "group_link_share", "section_link_share", "section_share", "section_sentences",
    "repeats", "most_repeats", "near_navigation", "near_subscribe", "near_dialog", "near_comment", "near_byline", "near_forum",
    "any_footer", "any_header", "any_dialog", "in_nav", "in_footer", "in_aside", "in_main", "in_article", "in_ol",
)  # fmt: skip
PAGE_FEATURES: Final = (
    "page_words", "page_blocks", "page_link_share", "page_sentences", "page_prices", "page_headings", "page_code", "page_long",
    "main_share",
    "type_article", "type_product", "type_collection", "type_forum", "type_business", "type_software", "og_article", "og_product",
    "url_depth", "url_product", "url_collection", "url_forum", "url_docs", "url_article", "url_service",
)  # fmt: skip

_URL_WORDS: Final = tuple(
    re.compile(rf"(?:^|[/._-])(?:{words})(?:$|[/._=?-])")
    for words in (
        "products?|item|dp|p|shop|store|pd|prod",
        "collections?|category|categories|c|shop|catalog|products|brands?|sale|cat|browse",
        "forums?|threads?|topics?|t|community|questions?|q|viewtopic|showthread|discussions?|comments|discuss|board|r",
        "docs?|documentation|wiki|manual|reference|api|guide|guides|tutorial|learn|help|support|library|man|en|latest|stable|readthedocs",
        r"blogs?|news|articles?|posts?|story|stories|20\d\d|magazine|insights|resources|press",
        "services?|solutions?|about|pricing|features|programs?|packages?|contact|treatments?|courses?|areas?",
    )
)
"""Words of addresses, in the order of the features that begin with `url_`."""
_TYPES: Final = (
    {"Article", "NewsArticle", "BlogPosting", "Report", "ScholarlyArticle", "Recipe"},
    {"Product", "ProductGroup", "IndividualProduct", "Offer"},
    {"CollectionPage", "ItemList", "OfferCatalog", "SearchResultsPage", "Blog"},
    {"DiscussionForumPosting", "QAPage", "Question", "Answer", "Comment"},
    {"LocalBusiness", "Service", "ProfessionalService", "Organization", "Corporation", "Course", "MedicalBusiness"},
    {"TechArticle", "SoftwareApplication", "APIReference", "SoftwareSourceCode"},
)
"""Types of structured data, in the order of the features that begin with `type_`."""


def fill_containers(blocks: list[Block], containers: list[Container]) -> None:
    """Count the text of each container. Before: `read_blocks` made them. After: each has the sums of all blocks inside it."""
    for block in blocks:
        text = block.text
        block.words = words = text.count(" ") + text.count("\n") + 1
        container = block.container
        container.words += words
        container.characters += len(text)
        container.link_characters += block.link_characters
        container.block_count += 1
        container.sentences += len(_SENTENCE.findall(text))
    for container in reversed(containers):
        parent = container.parent
        if parent is not None and container.block_count:
            parent.words += container.words
            parent.characters += container.characters
            parent.link_characters += container.link_characters
            parent.block_count += container.block_count
            parent.sentences += container.sentences
    for container in containers:  # parents come first
        if not container.block_count:
            continue
        parent = container.parent
        if parent is None:
            container.repeats = container.most_repeats = 1
            container.group = container.section = None
            container.near = container.flags
            continue
        container.repeats = parent.children[container.key] if parent.children else 1
        container.most_repeats = max(parent.most_repeats, container.repeats)
        container.near = container.flags | parent.flags | (parent.parent.flags if parent.parent is not None else 0)
        is_group = container.block_count >= _MIN_GROUP and container.words >= _MIN_GROUP_WORDS
        container.group = None if is_group else parent.group or parent
        container.section = None if container.words >= _MIN_SECTION_WORDS else parent.section or parent


def block_features(
    blocks: list[Block], containers: list[Container], hints: Hints, besides: int = 0
) -> list[tuple[float, ...]]:
    """Return the features of each block, in the order of BLOCK_FEATURES, without those that are in an element of `besides` (TAG_BITS).
    Before: `fill_containers`."""
    count = len(blocks)
    total = containers[0].words or 1 if containers else 1
    title = next((number for number, block in enumerate(blocks) if block.level == 1), _MAX_DISTANCE)
    description = set(_WORD.findall(hints.description.lower()))
    # The sum of the words before each block, with as many more at both ends as a block has blocks around it.
    sums = [0] * (_AROUND + 1)
    for block in blocks:
        sums.append(sums[-1] + block.words)
    sums += sums[-1:] * _AROUND
    heading, heading_depth = -_MAX_DISTANCE, 0
    last: Container | None = None
    surroundings: tuple[float, ...] = ()
    rows: list[tuple[float, ...]] = []
    for number, block in enumerate(blocks):
        text, words, container = block.text, block.words, block.container
        if block.level:
            heading, heading_depth = number, container.depth
        if container.tags & besides:
            continue
        described = 0.0
        if description and words >= 4:
            own = _WORD.findall(text[:_MAX_COMPARED].lower())
            described = sum(map(description.__contains__, own)) / (len(own) or 1)
        if container is not last:
            last, surroundings = container, _container_features(container, total)
        own_features = (
            words, block.link_characters / len(text), text[-1] in ".!?:;,\"'”)", _NOISE.match(text) is not None, block.level,
            sums[number + _AROUND] / total, number / count, container.depth, container.hidden, number - title,
            number - heading, container.depth - heading_depth, sums[number + 2 * _AROUND + 1] - sums[number], described,
        )  # fmt: skip
        rows.append(own_features + surroundings)
    return rows


def _container_features(container: Container, total: int) -> tuple[float, ...]:
    parent = container if container.block_count > 1 or container.parent is None else container.parent
    group, section = container.group or container, container.section or container
    return (
        parent.words, parent.link_characters / (parent.characters or 1), parent.words / total,
        group.link_characters / (group.characters or 1),
        section.link_characters / (section.characters or 1), section.words / total, section.sentences / (section.words or 1),
        container.repeats, container.most_repeats,
        *_NEAR[container.near], *_ANYWHERE[container.inherited], *_ANCESTORS[container.tags],
    )  # fmt: skip


def page_features(blocks: list[Block], containers: list[Container], hints: Hints, url: str) -> tuple[float, ...]:
    """Return the features of the page, in the order of PAGE_FEATURES. Before: `fill_containers`."""
    if not blocks:
        return (0.0,) * len(PAGE_FEATURES)
    body = containers[0]
    count, words, characters = len(blocks), body.words, body.characters or 1
    types = hints.types
    path = url.lower().partition("://")[2].partition("/")[2][:300]
    segments = [part for part in path.partition("?")[0].split("/") if part]
    return (
        words, count, body.link_characters / characters, body.sentences / words,
        sum(len(block.text) < 60 and _PRICE.search(block.text) is not None for block in blocks) / count,
        sum(block.level > 0 for block in blocks) / count, sum(block.preformatted for block in blocks),
        sum(block.words for block in blocks if block.words >= 30 and 3 * block.link_characters < len(block.text)) / words,
        max((container.words for container in containers if container.tag == "main"), default=0) / words,
        *[not types.isdisjoint(group) for group in _TYPES],
        "og:article" in types, any(kind.startswith(("og:product", "og:og:product")) for kind in types),
        len(segments), *[pattern.search(path) is not None for pattern in _URL_WORDS],
    )  # fmt: skip
