"""Blocks of a page: paragraphs, headings, list items, cells and code, each with the containers around it. One walk over the tree.

A block is the text between two boundaries of block-level elements. The rule: nothing is judged here; all text that could be content is
in some block, in document order, and the time is linear in the nodes of the page, however deep it is.
"""

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_BLOCKS: Final = 20_000
"""Blocks of a page that are read; what follows them is left out."""
MAX_ELEMENTS: Final = 200_000
"""Elements with content that are read."""
MAX_RUNS: Final = 400_000
"""Pieces of text of a page that are read."""
MAX_NESTING: Final = 12
"""Nested lists and quotations that Markdown shows; what is nested deeper is shown at this depth."""

STRONG, EMPHASIS, CODE, STRIKE = 1, 2, 4, 8
"""Styles of a run, as bits."""
BREAK: Final = 16
"""The run is a line break."""
IMAGE: Final = 32
"""The run is an image: its text is the alternative text, its target the address."""

_BLOCK, _INLINE, _SKIPPED, _VOID, _TEXT = range(5)
_ROLES: Final = {
    **dict.fromkeys(
        [
            "abbr",
            "acronym",
            "a",
            "b",
            "bdi",
            "bdo",
            "big",
            "cite",
            "code",
            "data",
            "del",
            "dfn",
            "em",
            "font",
            "i",
            "ins",
            "kbd",
            "label",
            "mark",
            "math",
            "mfrac",
            "mi",
            "mn",
            "mo",
            "mover",
            "mrow",
            "mspace",
            "msqrt",
            "mstyle",
            "msub",
            "msubsup",
            "msup",
            "mtable",
            "mtd",
            "mtext",
            "mtr",
            "munder",
            "munderover",
            "nobr",
            "output",
            "picture",
            "q",
            "rb",
            "rp",
            "rt",
            "rtc",
            "ruby",
            "s",
            "samp",
            "semantics",
            "slot",
            "small",
            "span",
            "strike",
            "strong",
            "sub",
            "sup",
            "time",
            "tt",
            "u",
            "var",
        ],
        _INLINE,
    ),
    **dict.fromkeys(
        [
            "annotation",
            "annotation-xml",
            "audio",
            "canvas",
            "datalist",
            "embed",
            "frameset",
            "head",
            "iframe",
            "input",
            "map",
            "meter",
            "object",
            "progress",
            "script",
            "select",
            "source",
            "style",
            "svg",
            "template",
            "textarea",
            "video",
            "wbr",
            "-comment",
        ],
        _SKIPPED,
    ),
    "br": _VOID,
    "img": _VOID,
    "-text": _TEXT,
}
"""What is done with an element; all others are block-level."""
_CELLS: Final = ("td", "th")
TAG_BITS: Final = {tag: 1 << number for number, tag in enumerate(("nav", "footer", "aside", "main", "article", "ol"))}
"""Elements that say something about all that is inside them, as bits."""
_STYLES: Final = {
    "b": STRONG, "strong": STRONG, "em": EMPHASIS, "i": EMPHASIS, "cite": EMPHASIS, "dfn": EMPHASIS, "var": EMPHASIS, "code": CODE,
    "kbd": CODE, "samp": CODE, "tt": CODE, "s": STRIKE, "del": STRIKE, "strike": STRIKE,
}  # fmt: skip

HEADINGS: Final = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_COUNTED: Final = frozenset(("pre", *HEADINGS))
"""Elements that say of all blocks inside them what they are."""

CATEGORIES: Final = {
    "navigation": "nav navi navbar navigation menu menus submenu megamenu breadcrumb breadcrumbs crumb crumbs pagination pager "
    "paging paginate toolbar skip toc jump sitemap",
    "footer": "foot footer copyright legal colophon bottom subfooter",
    "header": "header masthead banner topbar announcement announce utility hdr",
    "subscribe": "subscribe subscription newsletter signup login signin register account contact cta form forms optin mailchimp",
    "dialog": "cookie cookies consent gdpr modal modals popup popups overlay dialog drawer offcanvas canvas minicart cart "
    "toast tooltip dropdown flyout",
    "comment": "comment comments commentlist reply replies disqus respond",
    "byline": "meta byline author authors date time timestamp avatar user username profile signature badge tag tags category "
    "categories label labels rank stats stat points vote votes score posted published bio",
    "forum": "post posts thread threads message messages topic topics question questions answer answers forum forums "
    "discussion discussions bbcode bbwrapper quote conversation reply postbody postcontent",
}
"""Words of classes, ids and roles by what they say about an element."""
CATEGORY_BITS: Final = {name: 1 << number for number, name in enumerate(CATEGORIES)}
_BITS_OF_WORD: Final[dict[str, int]] = {}
for _name, _words in CATEGORIES.items():
    for _word in _words.split():
        _BITS_OF_WORD[_word] = _BITS_OF_WORD.get(_word, 0) | CATEGORY_BITS[_name]
_PARTS: Final = (
    "breadcrumb", "navigation", "menu", "footer", "header", "newsletter", "subscribe", "cookie", "popup", "modal", "comment", "author",
    "message", "topic", "post", "thread",
)  # fmt: skip
"""Words that are looked for in longer words, most telling first."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MAX_KNOWN_WORDS: Final = 50_000
_UNWANTED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_HIDDEN_STYLE: Final = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"\b(?:lang(?:uage)?|highlight(?:-source)?|brush:?)[-: ]\s*([a-zA-Z0-9_+#.-]{1,20})")
_NAMING: Final = ("id", "role", "itemprop")
MAX_NAMES: Final = 300
"""Characters of class, id and role that are read."""


Run = tuple[str, int, str | None]
"""Text, style, and the target of the link it is in."""
_LINE_BREAK: Final[Run] = ("\n", BREAK, None)


class Place:
    """A list, list item, quotation, table, row or cell, as far as Markdown shows it."""

    __slots__ = ("depth", "index", "kind", "parent")

    depth: int

    def __init__(self, kind: str, parent: "Place | None", index: int) -> None:
        self.kind = kind
        self.parent = parent
        self.index = index
        self.depth = parent.depth + 1 if parent is not None else 1


_PLACES: Final = {
    "ul": "list", "ol": "ordered", "menu": "list", "li": "item", "blockquote": "quote", "table": "table", "tr": "row", "td": "cell",
    "th": "cell",
}  # fmt: skip


class Container:
    """A block-level element that is an ancestor of blocks."""

    __slots__ = (
        "block_count",
        "cells",
        "characters",
        "children",
        "depth",
        "flags",
        "group",
        "hidden",
        "inherited",
        "key",
        "link_characters",
        "most_repeats",
        "near",
        "parent",
        "place",
        "repeats",
        "section",
        "sentences",
        "tag",
        "tags",
        "words",
    )  # fmt: skip

    # Set by `features.fill_containers`, if there is a block inside.
    near: int
    repeats: int
    most_repeats: int
    group: "Container | None"
    """The nearest container around it that has some blocks; None: it is one itself, so that no container refers to itself."""
    section: "Container | None"
    """The nearest container around it that has many words; None: it is one itself."""
    tags: int
    """Which of TAG_BITS it is or is in."""
    children: dict[str, int] | None
    """How many elements directly inside it have the same tag and classes; None: it has none."""

    def __init__(self, parent: "Container | None", tag: str, flags: int, key: str, *, hidden: bool) -> None:
        self.parent = parent
        self.tag = tag
        self.flags = flags
        self.key = key
        self.children = None
        self.cells = 0
        self.characters = self.link_characters = self.words = self.block_count = self.sentences = 0
        if parent is None:
            self.depth, self.inherited, self.hidden, self.tags = 0, flags, hidden, TAG_BITS.get(tag, 0)
            self.place: Place | None = None
        else:
            self.depth = parent.depth + 1
            self.inherited = parent.inherited | flags
            self.hidden = hidden or parent.hidden
            self.tags = parent.tags | TAG_BITS.get(tag, 0)
            children = parent.children
            if children is None:
                parent.children = {key: 1}
            else:
                children[key] = children.get(key, 0) + 1
            place = parent.place
            if (kind := _PLACES.get(tag)) is not None:
                if place is None or place.depth < MAX_NESTING:
                    place = Place(kind, place, parent.cells)
                parent.cells += kind == "cell"
            self.place = place


class Block:
    """One unit of text. `runs`: in order; `text`: the same without style, white space collapsed except line breaks."""

    __slots__ = ("code_class", "container", "level", "link_characters", "pre", "runs", "text", "words")

    def __init__(self, container: Container) -> None:
        self.container = container
        self.runs: list[Run] = []
        self.text = ""
        self.link_characters = self.words = 0
        self.level = 0
        """Of the heading that it is, or is in; 0: it is none."""
        self.pre: Container | None = None
        """The `pre` element around it."""
        self.code_class = ""
        """The classes of the `code` element in the `pre`."""

    @property
    def preformatted(self) -> bool:
        """Whether white space counts."""
        return self.pre is not None


def _bits_of(word: str) -> int:
    """Return the categories of a word of a class, as bits. Words are remembered, as the pages of a site share them."""
    bits = _BITS_OF_WORD.get(word)
    if bits is None:
        lower = word.lower()
        bits = _BITS_OF_WORD.get(lower, 0)
        if not bits and len(lower) > 6:
            for part in _PARTS:
                if part in lower:
                    bits |= _BITS_OF_WORD[part]
        if len(_BITS_OF_WORD) < _MAX_KNOWN_WORDS and len(word) < 30:
            _BITS_OF_WORD[word] = bits
    return bits


def read_blocks(tree: LexborHTMLParser) -> tuple[list[Block], list[Container]]:
    """Collect the blocks of the body, and their containers in document order."""
    body = tree.body
    if body is None:
        return [], []
    walk = _Walk(body)
    return walk.blocks, walk.containers


class _Walk:
    """The walk over the body. The current block ends where a block-level element begins or ends."""

    def __init__(self, body: LexborNode) -> None:
        self.blocks: list[Block] = []
        self.containers: list[Container] = []
        self._flags_by_names: dict[str, int] = {}
        self._run_count = 0
        self._pre: list[Container] = []
        self._levels: list[int] = []
        self._code_class = ""
        self._walk(body)

    def _open(self, node: LexborNode, tag: str, parent: Container | None) -> Container:
        attributes = node.attributes
        flags, hidden, key = 0, False, tag
        if attributes:
            names = classes = attributes.get("class") or ""
            if not classes or len(attributes) > 1:
                for name in _NAMING:
                    if value := attributes.get(name):
                        names = f"{names} {value}"
                hidden = (
                    "hidden" in attributes
                    or attributes.get("aria-hidden") == "true"
                    or ((style := attributes.get("style")) is not None and _HIDDEN_STYLE.search(style) is not None)
                )
            if names:
                known = self._flags_by_names.get(names)
                flags = known if known is not None else self._flags(names)
            if classes:
                key = f"{tag} {classes}"
        container = Container(parent, tag, flags, key, hidden=hidden)
        self.containers.append(container)
        return container

    def _flags(self, names: str) -> int:
        flags = 0
        for word in _WORD.findall(names[:MAX_NAMES]):
            flags |= _bits_of(word)
        self._flags_by_names[names] = flags
        return flags

    def _walk(self, body: LexborNode) -> None:  # noqa: C901 — thousands of nodes a page: each call would be seen in the time
        container = self._open(body, "body", None)
        # Open elements: what counts again when each is left, and whether it is a block-level element.
        stack: list[tuple[LexborNode, Container, int, str | None, bool]] = []
        style, target, opened = 0, None, 0
        runs: list[Run] = []
        node: LexborNode | None = body.first_child
        while True:
            if node is None:
                if not stack:
                    break
                node, parent, style, target, is_block = stack.pop()
                if is_block:
                    if runs:
                        self._flush(container, runs)
                        runs = []
                        if self._full:
                            break
                    if container.tag in _COUNTED:
                        self._leave(container)
                    container = parent
                node = node.next
                continue
            tag = node.tag or ""
            role = _ROLES.get(tag, _BLOCK)
            if role == _TEXT:
                text = node.text_content
                if text and (runs or not text.isspace() or self._pre):
                    runs.append((text, style, target))
                node = node.next
                continue
            if role == _BLOCK and runs:
                self._flush(container, runs)
                runs = []
                if self._full:
                    break
            child = node.first_child if role <= _INLINE else None
            if child is None:
                if role == _VOID or tag in _CELLS:
                    self._add_empty(node, tag, container, runs)
                node = node.next
                continue
            opened += 1
            stack.append((node, container, style, target, role == _BLOCK))
            if role == _BLOCK:
                container = self._open(node, tag, container)
                if tag in _COUNTED:
                    self._enter(container)
                style = 0
            elif tag == "a":
                if runs and runs[-1][2] is not None:
                    runs.append((" ", 0, None))  # two links with nothing between them are two words
                target = node.attributes.get("href") or ""
            elif tag in _STYLES:
                style |= self._style(node, tag)
            node = child
            if opened > MAX_ELEMENTS:
                break
        self._flush(container, runs)

    @property
    def _full(self) -> bool:
        return len(self.blocks) >= MAX_BLOCKS or self._run_count > MAX_RUNS

    def _enter(self, container: Container) -> None:
        """Begin an element that says what its blocks are."""
        if container.tag == "pre":
            self._pre.append(container)
        else:
            self._levels.append(HEADINGS[container.tag])

    def _leave(self, container: Container) -> None:
        """End such an element. Before: its text is in `blocks`."""
        if container.tag == "pre":
            self._pre.pop()
            self._code_class = ""
        else:
            self._levels.pop()

    def _style(self, node: LexborNode, tag: str) -> int:
        if tag == "code" and self._pre:
            self._code_class = node.attributes.get("class") or ""
        return _STYLES[tag]

    def _add_empty(self, node: LexborNode, tag: str, container: Container, runs: list[Run]) -> None:
        """Add a line break or an image to the current block, or count an empty cell."""
        if tag == "br":
            runs.append(_LINE_BREAK)
        elif tag == "img":
            attributes = node.attributes
            if alternative := attributes.get("alt"):
                text = alternative if alternative.isprintable() else clean(alternative).replace("\n", " ")
                runs.append((text, IMAGE, attributes.get("src") or attributes.get("data-src")))
        else:
            container.cells += 1

    def _flush(self, container: Container, runs: list[Run]) -> None:
        """End the current block. After: it is in `blocks`, if it has any text."""
        count = len(runs)
        self._run_count += count
        joined = runs[0][0] if count == 1 and runs[0][1] < IMAGE else _joined(runs)
        if not joined.isprintable() and _UNWANTED.search(joined) is not None:
            runs = [(clean(text), style, target) for text, style, target in runs]
            joined = _joined(runs)
        if not joined or joined.isspace():
            return
        block = Block(container)
        block.runs = runs
        if self._levels:
            block.level = self._levels[-1]
        if self._pre:
            block.pre = self._pre[-1]
            block.code_class = self._code_class
            block.text = joined.strip("\n").rstrip()
        else:
            block.text = _plain(runs) if _LINE_BREAK in runs else " ".join(joined.split())
        for text, style, target in runs:
            if target is not None and style < BREAK:
                block.link_characters += len(text.strip())
        self.blocks.append(block)


def _joined(runs: list[Run]) -> str:
    """Return the text of runs as it stands in the page."""
    return "".join([text for text, style, _ in runs if style < IMAGE])


def _plain(runs: list[Run]) -> str:
    """Return the text of runs with their line breaks; other white space is collapsed."""
    lines = "".join([text.replace("\n", " ") if style < BREAK else text for text, style, _ in runs if style < IMAGE])
    return "\n".join([line for part in lines.split("\n") if (line := " ".join(part.split()))])


def clean(text: str) -> str:
    """Remove control characters and invisible marks: those that a terminal obeys, and those that reorder or hide text."""
    return _UNWANTED.sub(
        "", text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    )
