"""Extraction of structured data: JSON-LD, microdata, RDFa Lite and Open Graph, all as JSON-LD items; `Graph` reads values of items.

Owns these notations. The rule: one walk over the tree in linear time, and a limit on what is kept; what cannot be parsed is left out.
Types and properties lose their vocabulary ("http://schema.org/Product" becomes "Product"), since pages write it in a dozen ways.
"""

import html
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.parse_result import single_line
from holdfast.parse import lenient_json
from holdfast.parse.html_tokens import collapse_whitespace
from holdfast.parse.plugin_api import absolute_url

Item = dict[str, Any]

_MAX_ITEMS: Final = 5000
"""Items and properties of each notation, counted as in JSON: an item that is the value of two properties counts twice."""
_MAX_PROPERTIES: Final = 20
"""Properties of which one element may be the value."""
_MAX_PROPERTY_DEPTH: Final = 16
"""Nested elements with a property: each of them has the text of all elements inside it."""
_MAX_TEXT: Final = 5000
_URL_ATTRIBUTE: Final = {
    "a": "href", "area": "href", "link": "href", "img": "src", "audio": "src", "embed": "src", "iframe": "src", "source": "src",
    "track": "src", "video": "src", "object": "data",
}  # fmt: skip
_VALUE_ATTRIBUTE: Final = {"data": "value", "input": "value", "meter": "value", "time": "datetime"}
_TEXT_PROPERTIES: Final = frozenset(
    {"name", "brand", "manufacturer", "description", "price", "sku", "category", "author"}
)
"""Properties whose value is the text even of a link."""
_OPEN_GRAPH_PREFIXES: Final = ("og:", "product:", "article:", "book:", "fb:", "music:", "profile:", "video:")
"""Prefixes that count in the attribute `name`; in `property`, where Open Graph puts them, every prefix counts."""
_MAX_ITEMREF_ELEMENTS: Final = 20_000
"""Elements that are walked for all `itemref` of a page: many items may refer to the same large part of it."""
_INVISIBLE: Final = "script, style, template"

_MAX_NODES: Final = 20_000
_RELATED: Final = frozenset(
    {"isRelatedTo", "isSimilarTo", "isAccessoryOrSparePartFor", "isConsumableFor", "isVariantOf", "@context"}
)
"""Properties with other products that the page only mentions, and the context."""


@dataclass(slots=True)
class StructuredData:
    """The structured data of a page by notation."""

    json_ld: list[Item] = field(default_factory=list)
    microdata: list[Item] = field(default_factory=list)
    rdfa: list[Item] = field(default_factory=list)
    open_graph: dict[str, list[str]] = field(default_factory=dict)


def extract(tree: LexborHTMLParser, url: str) -> StructuredData:
    """Extract all structured data. URLs of microdata and RDFa are absolute, those of JSON-LD are as written."""
    found = StructuredData(json_ld=json_ld(tree), open_graph=_open_graph(tree))
    base = absolute_url(url, next((node.attributes.get("href") for node in tree.tags("base")), None)) or url
    if tree.css_first("[itemscope]") is not None:
        found.microdata = _Microdata(tree, base).items
    if tree.css_first("[typeof]") is not None:
        found.rdfa = _Rdfa(tree, base).items
    return found


def local_name(name: str) -> str:
    """Return a name without its vocabulary."""
    return name.strip().rstrip("/#").rpartition("/")[2].rpartition("#")[2].rpartition(":")[2]


def types(item: Item) -> list[str]:
    """Return the types of an item, without their vocabulary."""
    raw = item.get("@type")
    return [local_name(name) for name in (raw if isinstance(raw, list) else [raw]) if isinstance(name, str)]


def json_ld(tree: LexborHTMLParser) -> list[Item]:
    """Decode the JSON-LD of a page."""
    found: list[Item] = []
    for node in tree.tags("script"):
        kind = (node.attributes.get("type") or "").partition(";")[0].strip().lower()
        if kind == "application/ld+json":
            for value in lenient_json.loads(node.text(deep=True)):
                found.extend(part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict))
    return found[:_MAX_ITEMS]


def _open_graph(tree: LexborHTMLParser) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in tree.tags("meta")[:_MAX_ITEMS]:
        attributes = node.attributes
        raw = (attributes.get("property") or "").strip().lower()
        prefixed = ":" in raw and "://" not in raw and not raw.startswith("twitter:")
        name = raw if prefixed else (raw or attributes.get("name") or "").strip().lower()
        content = collapse_whitespace(attributes.get("content") or "")[:_MAX_TEXT]
        if content and (prefixed or name.startswith(_OPEN_GRAPH_PREFIXES)):
            found.setdefault(name, []).append(content)
    return found


def _elements(root: LexborNode | None) -> Iterator[tuple[LexborNode, int]]:
    """Iterate over `root` and its descendants in document order, with their depth. No recursion: pages are deeper than the stack."""
    stack = [(root, 0)] if root is not None else []
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack.extend((child, depth + 1) for child in reversed(list(node.iter())))


def _add_value(item: Item, name: str, value: object) -> None:
    """Add a property. Before: nothing. After: `item` has `value` under `name`; several values are a list."""
    if name not in item:
        item[name] = value
    elif isinstance(item[name], list):
        item[name].append(value)
    else:
        item[name] = [item[name], value]


def _property_value(node: LexborNode, name: str, base: str) -> str:
    """Return the value of an element as a property, as HTML defines it and pages use it."""
    attributes = node.attributes
    tag = node.tag or ""
    if (content := attributes.get("content")) is not None:
        return collapse_whitespace(content)[:_MAX_TEXT]
    if (value := attributes.get(_VALUE_ATTRIBUTE.get(tag, ""))) is not None:
        return collapse_whitespace(value)[:_MAX_TEXT]
    if tag in _URL_ATTRIBUTE and name not in _TEXT_PROPERTIES:
        address = attributes.get(_URL_ATTRIBUTE[tag]) or attributes.get("data-src") or ""
        return absolute_url(base, address) or collapse_whitespace(address)[:_MAX_TEXT]
    if tag == "img":
        return collapse_whitespace(attributes.get("alt") or "")[:_MAX_TEXT]
    return visible_text(node)[:_MAX_TEXT]


def visible_text(node: LexborNode) -> str:
    """Return the text of an element without scripts, styles and templates."""
    if node.css_first(_INVISIBLE) is None:
        return collapse_whitespace(node.text(deep=True))
    found: list[str] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if part.is_text_node:
            found.append(part.text(deep=False))
        elif part.tag not in ("script", "style", "template"):
            stack.extend(reversed(list(part.iter(include_text=True))))
    return collapse_whitespace("".join(found))


class _OpenItem(NamedTuple):
    """An item that is being filled, and how often it occurs in the JSON."""

    item: Item
    copies: int


class _TreeWalk:
    """One walk over the tree that keeps the enclosing item of each level."""

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self.items: list[Item] = []
        self.base = base
        self.value_count = 0
        self.element_count = 0
        self._texts: dict[tuple[int, bool], str] = {}
        self._property_depths: list[int] = []
        """The depths of the enclosing elements with a property."""
        self.walk(tree.root, None)

    def walk(self, root: LexborNode | None, parent: _OpenItem | None) -> None:
        """Walk a subtree. Before: nothing. After: what is below `root` is in `items` or in the item of `parent`, up to the limit."""
        open_items: list[tuple[int, _OpenItem]] = []  # the enclosing items, with the depth of their elements
        self._property_depths = []
        for node, depth in _elements(root):
            self.element_count += 1
            while open_items and open_items[-1][0] >= depth:
                open_items.pop()
            while self._property_depths and self._property_depths[-1] >= depth:
                self._property_depths.pop()
            value_count = self.value_count
            opened = self.handle_element(node, open_items[-1][1] if open_items else parent)
            if opened is not None:
                open_items.append((depth, opened))
            elif self.value_count > value_count:
                self._property_depths.append(depth)
            if self.value_count > _MAX_ITEMS:
                return

    def handle_element(self, node: LexborNode, parent: _OpenItem | None) -> _OpenItem | None:
        """Read one element; return the item that begins at `node`, if any. `parent` is the enclosing item."""
        raise NotImplementedError

    def attach_item(self, item: Item, names: list[str], parent: _OpenItem | None, *, is_top_level: bool) -> _OpenItem:
        """Attach a new item. Before: `item` is nowhere. After: it is a property of `parent`, or an item of the page if it is top-level."""
        if parent is None or not names:
            self.value_count += 1
            if is_top_level:
                self.items.append(item)
            return _OpenItem(item, 1)
        names = names[:_MAX_PROPERTIES]
        copies = parent.copies * len(names)
        self.value_count += copies
        for name in names:
            _add_value(parent.item, name, item)
        return _OpenItem(item, copies)

    def add_values(self, node: LexborNode, names: list[str], parent: _OpenItem, given_value: str | None = None) -> None:
        """Before: nothing. After: the item of `parent` has the value of `node`, or `given_value`, for each property of `names`."""
        for name in names[:_MAX_PROPERTIES]:
            self.value_count += parent.copies
            if self.value_count > _MAX_ITEMS:
                return
            if value := given_value or self._value(node, name):
                _add_value(parent.item, name, value)

    def _value(self, node: LexborNode, name: str) -> str:
        """Return the value of `node` as that property. It is read once, even if it belongs to many items and properties."""
        key = node.mem_id, name in _TEXT_PROPERTIES
        if key not in self._texts:
            self._texts[key] = (
                _property_value(node, name, self.base) if len(self._property_depths) < _MAX_PROPERTY_DEPTH else ""
            )
        return self._texts[key]


class _Microdata(_TreeWalk):
    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        # Items with `itemref`, each with the ids through which it was reached.
        self._items_with_itemref: list[tuple[_OpenItem, list[str], frozenset[str]]] = []
        self._reached_ids: frozenset[str] = frozenset()
        super().__init__(tree, base)
        ids: dict[str | None, LexborNode] = {}
        for node in reversed(tree.css("[id]")) if self._items_with_itemref else ():
            ids[node.attributes.get("id")] = node  # the first element with an id counts
        limit = self.element_count + _MAX_ITEMREF_ELEMENTS
        for parent, names, reached_ids in self._items_with_itemref:  # grows during the loop
            for name in dict.fromkeys(names):
                # A cycle of references ends where an id would repeat.
                if (
                    name in ids
                    and name not in reached_ids
                    and self.element_count < limit
                    and self.value_count <= _MAX_ITEMS
                ):
                    self._reached_ids = reached_ids | {name}
                    self.walk(ids[name], parent)

    def handle_element(self, node: LexborNode, parent: _OpenItem | None) -> _OpenItem | None:
        attributes = node.attributes
        names = [local_name(name) for name in (attributes.get("itemprop") or "").split()]
        if "itemscope" not in attributes:
            if parent is not None:
                self.add_values(node, names, parent)
            return None
        item: Item = {"@type": [local_name(name) for name in (attributes.get("itemtype") or "").split()]}
        if identifier := attributes.get("itemid"):
            item["@id"] = identifier
        opened = self.attach_item(item, names, parent, is_top_level="itemprop" not in attributes)
        if references := (attributes.get("itemref") or "").split():
            self._items_with_itemref.append((opened, references, self._reached_ids))
        return opened


class _Rdfa(_TreeWalk):
    def handle_element(self, node: LexborNode, parent: _OpenItem | None) -> _OpenItem | None:
        attributes = node.attributes
        raw = (attributes.get("property") or attributes.get("rel") or "") if parent is not None else ""
        # Names of other vocabularies have a prefix; those of schema.org may have one.
        names = [local_name(name) for name in raw.split() if ":" not in name or "schema" in name.lower()]
        if "typeof" not in attributes:
            if parent is not None and attributes.get("property"):
                self.add_values(node, names, parent, attributes.get("resource"))
            return None
        item: Item = {"@type": [local_name(name) for name in (attributes.get("typeof") or "").split()]}
        if identifier := attributes.get("resource") or attributes.get("about"):
            item["@id"] = identifier
        return self.attach_item(item, names, parent, is_top_level=True)


class Graph:
    """The items of a page, which may refer to each other. A property may be missing, one value, a list, an item, or a reference to an item;
    callers need not know which."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._roots = list(items)
        self._by_id: dict[str, Item] = {}
        for item in self.all():
            name = item.get("@id")
            if isinstance(name, str) and len(item) > len(self._by_id.get(name, {})):
                self._by_id[name] = item

    def all(self, *, include_related: bool = True) -> Iterator[Item]:
        """Iterate over all items in document order; `include_related=False` skips products that the page only mentions."""
        stack: list[Any] = list(reversed(self._roots))
        for _ in range(_MAX_NODES):
            if not stack:
                return
            node = stack.pop()
            if isinstance(node, dict):
                yield node
                node = [value for key, value in node.items() if include_related or key not in _RELATED]
            stack.extend(part for part in reversed(node) if isinstance(part, dict | list))

    def values(self, item: Item, *names: str) -> list[Any]:
        """Return the values of the first of these properties that has any. References are resolved."""
        for name in names:
            for key in (name, f"schema:{name}", f"http://schema.org/{name}", f"https://schema.org/{name}"):
                raw = item.get(key)
                values = [self._resolve(value) for value in (raw if isinstance(raw, list) else [raw])]
                if found := [value for value in values if value not in (None, "", {}, [])]:
                    return found
        return []

    def items(self, item: Item, *names: str) -> list[Item]:
        """Return those of the values that are items."""
        return [value for value in self.values(item, *names) if isinstance(value, dict)]

    def text(self, item: Item, *names: str) -> str | None:
        """Return the first of the values that is a string, a number, or an item with a name, as text."""
        return next(iter(self.texts(item, *names)), None)

    def texts(self, item: Item, *names: str) -> Iterator[str]:
        """Iterate over all values that are strings, numbers or items with a name, as text."""
        for value in self.values(item, *names):
            if isinstance(value, dict):
                value = next(iter(self.values(value, "name", "@value", "url", "contentUrl", "@id")), None)
            if (text := as_text(value)) is not None:
                yield text

    def _resolve(self, value: object) -> object:
        if isinstance(value, dict) and len(value) <= 2 and isinstance(name := value.get("@id"), str):
            return self._by_id.get(name, value)
        return value


def as_text(value: object) -> str | None:
    """Convert a string or a number to one line of text; numbers without an exponent. None for other types."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f") if math.isfinite(value) else None
    if isinstance(value, int):
        return format(Decimal(value), "f") if abs(value) < 10**30 else None
    return single_line(html.unescape(value)) or None if isinstance(value, str) else None


def as_decimal(value: object) -> Decimal | None:
    """Convert a JSON number to a Decimal. None for other types, and for infinity and NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = Decimal(repr(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
