"""What a page says to machines: JSON-LD, microdata, RDFa Lite and Open Graph, all in the form of JSON-LD.

Owns the three grammars. The rule: one walk over the tree, in time that grows with it, and a limit on what is kept; what cannot be read is
left out. Types and properties lose their vocabulary ("http://schema.org/Product" is "Product"), since pages write it in a dozen ways.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.parse import lenient
from holdfast.parse.plugin import join
from holdfast.parse.words import folded

Item = dict[str, Any]

_MAX_ITEMS: Final = 5000
"""Items and properties, of each grammar, as JSON has them: an item that is the value of two properties is there twice."""
_MAX_NAMES: Final = 20
"""Properties that one element is the value of."""
_MAX_NESTED: Final = 16
"""Elements with a property around another one: each of them has the text of all that it is around."""
_MAX_TEXT: Final = 5000
_ADDRESS_IN: Final = {
    "a": "href", "area": "href", "link": "href", "img": "src", "audio": "src", "embed": "src", "iframe": "src", "source": "src",
    "track": "src", "video": "src", "object": "data",
}  # fmt: skip
_VALUE_IN: Final = {"data": "value", "input": "value", "meter": "value", "time": "datetime"}
_WORDED: Final = frozenset({"name", "brand", "manufacturer", "description", "price", "sku", "category", "author"})
"""Properties that are words even on a link."""
_GRAPH_PREFIXES: Final = ("og:", "product:", "article:", "book:", "fb:", "music:", "profile:", "video:")
"""Of names that stand in `name`; in `property`, where Open Graph has them, every prefix is kept."""
_MAX_REFERENCED: Final = 20_000
"""Elements that are walked for all `itemref` of a page: many items may name the same large part of it."""
_UNSEEN: Final = "script, style, template"


@dataclass(slots=True)
class Structured:
    """What a page says to machines."""

    json_ld: list[Item] = field(default_factory=list)
    microdata: list[Item] = field(default_factory=list)
    rdfa: list[Item] = field(default_factory=list)
    open_graph: dict[str, list[str]] = field(default_factory=dict)


def read(tree: LexborHTMLParser, url: str) -> Structured:
    """All of it. Addresses of microdata and RDFa are absolute, those of JSON-LD as they are written."""
    found = Structured(json_ld=_json_ld(tree), open_graph=_open_graph(tree))
    base = join(url, next((node.attributes.get("href") for node in tree.tags("base")), None)) or url
    if tree.css_first("[itemscope]") is not None:
        found.microdata = _Microdata(tree, base).items
    if tree.css_first("[typeof]") is not None:
        found.rdfa = _Rdfa(tree, base).items
    return found


def last_part(name: str) -> str:
    """A name without its vocabulary."""
    return name.strip().rstrip("/#").rpartition("/")[2].rpartition("#")[2].rpartition(":")[2]


def types(item: Item) -> list[str]:
    """The types of an item, without their vocabulary."""
    written = item.get("@type")
    return [last_part(name) for name in (written if isinstance(written, list) else [written]) if isinstance(name, str)]


def _json_ld(tree: LexborHTMLParser) -> list[Item]:
    found: list[Item] = []
    for node in tree.tags("script"):
        kind = (node.attributes.get("type") or "").partition(";")[0].strip().lower()
        if kind == "application/ld+json":
            for value in lenient.loads(node.text(deep=True)):
                found.extend(part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict))
    return found[:_MAX_ITEMS]


def _open_graph(tree: LexborHTMLParser) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in tree.tags("meta")[:_MAX_ITEMS]:
        attributes = node.attributes
        written = (attributes.get("property") or "").strip().lower()
        prefixed = ":" in written and "://" not in written and not written.startswith("twitter:")
        name = written if prefixed else (written or attributes.get("name") or "").strip().lower()
        content = folded(attributes.get("content") or "")[:_MAX_TEXT]
        if content and (prefixed or name.startswith(_GRAPH_PREFIXES)):
            found.setdefault(name, []).append(content)
    return found


def _elements(root: LexborNode | None) -> Iterator[tuple[LexborNode, int]]:
    """The elements below and with `root`, in their order, each with its depth. No recursion: pages are deeper than our stack."""
    stack = [(root, 0)] if root is not None else []
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack.extend((child, depth + 1) for child in reversed(list(node.iter())))


def _add(item: Item, name: str, value: object) -> None:
    """Before: nothing. After: `item` has `value` under `name`; several values are a list."""
    if name not in item:
        item[name] = value
    elif isinstance(item[name], list):
        item[name].append(value)
    else:
        item[name] = [item[name], value]


def _content(node: LexborNode, name: str, base: str) -> str:
    """What a property's element says, as HTML defines it and pages use it."""
    attributes = node.attributes
    tag = node.tag or ""
    if (content := attributes.get("content")) is not None:
        return folded(content)[:_MAX_TEXT]
    if (value := attributes.get(_VALUE_IN.get(tag, ""))) is not None:
        return folded(value)[:_MAX_TEXT]
    if tag in _ADDRESS_IN and name not in _WORDED:
        address = attributes.get(_ADDRESS_IN[tag]) or attributes.get("data-src") or ""
        return join(base, address) or folded(address)[:_MAX_TEXT]
    if tag == "img":
        return folded(attributes.get("alt") or "")[:_MAX_TEXT]
    return seen_text(node)[:_MAX_TEXT]


def seen_text(node: LexborNode) -> str:
    """The text of an element without that of scripts, styles and templates in it."""
    if node.css_first(_UNSEEN) is None:
        return folded(node.text(deep=True))
    found: list[str] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if part.is_text_node:
            found.append(part.text(deep=False))
        elif part.tag not in ("script", "style", "template"):
            stack.extend(reversed(list(part.iter(include_text=True))))
    return folded("".join(found))


class _Place(NamedTuple):
    """An item, and how often JSON has it."""

    item: Item
    copies: int


class _Walk:
    """One walk over the tree, with the item that each level stands in."""

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self.items: list[Item] = []
        self.base = base
        self.kept = 0
        self.walked = 0
        self._texts: dict[tuple[int, bool], str] = {}
        self._around: list[int] = []
        """The depths of the elements with a property that we stand in."""
        self.walk(tree.root, None)

    def walk(self, root: LexborNode | None, place: _Place | None) -> None:
        """Before: nothing. After: what stands below `root` is in `items` or in the item of `place`, up to the limit."""
        inside: list[tuple[int, _Place]] = []  # the items that we stand in, with the depth of their elements
        self._around = []
        for node, depth in _elements(root):
            self.walked += 1
            while inside and inside[-1][0] >= depth:
                inside.pop()
            while self._around and self._around[-1] >= depth:
                self._around.pop()
            kept = self.kept
            new = self.met(node, inside[-1][1] if inside else place)
            if new is not None:
                inside.append((depth, new))
            elif self.kept > kept:
                self._around.append(depth)
            if self.kept > _MAX_ITEMS:
                return

    def met(self, node: LexborNode, place: _Place | None) -> _Place | None:
        """The item that begins at `node`, if one does. `place` is the one that it stands in."""
        raise NotImplementedError

    def placed(self, new: Item, names: list[str], place: _Place | None, *, top: bool) -> _Place:
        """Before: `new` is nowhere. After: it is a property of the item around it, or an item of the page if it is one."""
        if place is None or not names:
            self.kept += 1
            if top:
                self.items.append(new)
            return _Place(new, 1)
        names = names[:_MAX_NAMES]
        copies = place.copies * len(names)
        self.kept += copies
        for name in names:
            _add(place.item, name, new)
        return _Place(new, copies)

    def add_values(self, node: LexborNode, names: list[str], place: _Place, stated: str | None = None) -> None:
        """After: the item has what `node` says, or `stated`, as each of these properties."""
        for name in names[:_MAX_NAMES]:
            self.kept += place.copies
            if self.kept > _MAX_ITEMS:
                return
            if value := stated or self._value(node, name):
                _add(place.item, name, value)

    def _value(self, node: LexborNode, name: str) -> str:
        """What `node` says as that property. It is read once, however many items and properties it belongs to."""
        key = node.mem_id, name in _WORDED
        if key not in self._texts:
            self._texts[key] = _content(node, name, self.base) if len(self._around) < _MAX_NESTED else ""
        return self._texts[key]


class _Microdata(_Walk):
    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        # Items whose `itemref` names parts of the page, each with the ids through which it was reached.
        self._referring: list[tuple[_Place, list[str], frozenset[str]]] = []
        self._through: frozenset[str] = frozenset()
        super().__init__(tree, base)
        ids: dict[str | None, LexborNode] = {}
        for node in reversed(tree.css("[id]")) if self._referring else ():
            ids[node.attributes.get("id")] = node  # the first element with an id counts
        limit = self.walked + _MAX_REFERENCED
        for place, names, through in self._referring:  # grows while it is walked
            for name in dict.fromkeys(names):
                # Items that name each other end where an id would come again.
                if name in ids and name not in through and self.walked < limit and self.kept <= _MAX_ITEMS:
                    self._through = through | {name}
                    self.walk(ids[name], place)

    def met(self, node: LexborNode, place: _Place | None) -> _Place | None:
        attributes = node.attributes
        names = [last_part(name) for name in (attributes.get("itemprop") or "").split()]
        if "itemscope" not in attributes:
            if place is not None:
                self.add_values(node, names, place)
            return None
        new: Item = {"@type": [last_part(name) for name in (attributes.get("itemtype") or "").split()]}
        if identifier := attributes.get("itemid"):
            new["@id"] = identifier
        placed = self.placed(new, names, place, top="itemprop" not in attributes)
        if references := (attributes.get("itemref") or "").split():
            self._referring.append((placed, references, self._through))
        return placed


class _Rdfa(_Walk):
    def met(self, node: LexborNode, place: _Place | None) -> _Place | None:
        attributes = node.attributes
        written = (attributes.get("property") or attributes.get("rel") or "") if place is not None else ""
        # Other vocabularies' names have a prefix; schema.org's may have one.
        names = [last_part(name) for name in written.split() if ":" not in name or "schema" in name.lower()]
        if "typeof" not in attributes:
            if place is not None and attributes.get("property"):
                self.add_values(node, names, place, attributes.get("resource"))
            return None
        new: Item = {"@type": [last_part(name) for name in (attributes.get("typeof") or "").split()]}
        if identifier := attributes.get("resource") or attributes.get("about"):
            new["@id"] = identifier
        return self.placed(new, names, place, top=True)
