"""The images of a page: one URL for each element, with what the page says of it.

Owns the choice among the candidates of an element. The rule: of an `img` with the `source` elements of its `picture`, the largest candidate
counts: the largest width (`800w`), without widths the largest density (`2x`), without either the URL that a lazy loader would load, then
`src`. Of equal ones the first counts, as in a browser. `src` is kept beside the chosen one (`fallback`), and is the choice if no candidate
of a srcset is valid.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.fetch_types import FoundImage
from holdfast.parse import lenient_json
from holdfast.parse.html_tokens import clean_href, collapse_whitespace, parse_srcset, srcset_candidates

MAX_IMAGES: Final = 1000
"""Images of a page that are kept; those in the markup come before those that metadata names."""
MAX_ALT: Final = 200
"""Characters of the alternative text of an image."""
MAX_URL: Final = 2048
"""Characters of a URL; a longer one is no image that could be fetched."""
_MAX_CANDIDATES: Final = 100
"""Candidates of one srcset that are considered."""

LAZY_ATTRIBUTES: Final = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-image")
"""Attributes in which lazy loaders keep the URL, the most frequent first."""
SRCSET_ATTRIBUTES: Final = ("srcset", "data-srcset", "data-lazy-srcset")
_JSON_LD_KEYS: Final = frozenset({"image", "logo", "thumbnailUrl", "photo"})
_JSON_LD_URLS: Final = ("contentUrl", "url", "@id")
"""Where an image that is an object has its URL, the best first."""
_MAX_JSON_LD_VALUES: Final = 20_000
_OG_URLS: Final = ("og:image", "og:image:url", "og:image:secure_url")
_NUMBER: Final = re.compile(r"\s*([0-9]{1,6})(?:\.[0-9]*)?\s*(?:px\s*)?\Z")

Nodes = Sequence[LexborNode]


class _Sized(NamedTuple):
    """A candidate with its order: a larger tuple is a better candidate."""

    width: float
    density: float
    rank: int
    """Of candidates without a size: 2 for a lazy loader's URL, 1 for `src`."""
    href: str


def find_images(
    tree: LexborHTMLParser, body: bytes, *, images: Nodes, sources: Nodes, metas: Nodes, links: Nodes, scripts: Nodes
) -> list[FoundImage]:
    """Return the images of a page in document order: those of elements, then those that metadata names, each URL once.

    Before: the tree is whole; the nodes are its elements by tag, `scripts` may include other elements. URLs are as written, without
    data: and other URLs that cannot be fetched. Images in `noscript` are found like others.
    """
    found: dict[str, FoundImage] = {}
    for image in _all_images(tree, body, images, sources, metas, links, scripts):
        known = found.get(image.href)
        if known is None:
            if len(found) == MAX_IMAGES:
                break
            found[image.href] = image
        elif image.alt and not known.alt:
            found[image.href] = known._replace(alt=image.alt)
    return list(found.values())


def _all_images(
    tree: LexborHTMLParser,
    body: bytes,
    images: Nodes,
    sources: Nodes,
    metas: Nodes,
    links: Nodes,
    scripts: Nodes,
) -> Iterator[FoundImage]:
    yield from _of_elements(images, sources)
    if b"<image" in body or b"<IMAGE" in body:
        yield from _of_svg(tree.css("image"))
    if b"<object" in body or b"<OBJECT" in body:
        yield from _of_objects(tree.css("object[data]"))
    yield from _of_metas(metas)
    yield from _of_links(links)
    yield from _of_json_ld(scripts)


def _of_elements(images: Nodes, sources: Nodes) -> Iterator[FoundImage]:
    pictures: dict[int, list[dict[str, str | None]]] = {}
    for node in sources:
        parent = node.parent
        if parent is not None and parent.tag == "picture":
            pictures.setdefault(parent.mem_id, []).append(node.attributes)
    for node in images:
        parent = node.parent if pictures else None
        of_picture = pictures.pop(parent.mem_id, []) if parent is not None else []
        found = _of_element(node.attributes, of_picture)
        if found is not None:
            yield found
    # A picture whose img is missing, or is written by a script.
    for of_picture in pictures.values():
        found = _of_element({}, of_picture)
        if found is not None:
            yield found


def _of_element(attributes: dict[str, str | None], of_picture: list[dict[str, str | None]]) -> FoundImage | None:
    """The image of an `img` with these attributes, and of the `source` elements of its picture."""
    src = _href(attributes.get("src"))
    lazy = next((href for name in LAZY_ATTRIBUTES if (href := _href(attributes.get(name)))), None)
    srcsets = [
        value for one in (*of_picture, attributes) for name in SRCSET_ATTRIBUTES if name in one and (value := one[name])
    ]
    best = _best(srcsets, lazy, src)
    if best is None:
        # No candidate is valid and there is no src: the first URL is better than none.
        written = next((href for value in srcsets for one in parse_srcset(value)[:1] if (href := _href(one))), None)
        if written is None:
            return None
        best = _Sized(0, 0, 0, written)
    if lazy is not None and best.href != lazy:
        fallback: str | None = lazy
    else:
        fallback = src if best.href != src else None
    alt = collapse_whitespace(attributes.get("alt") or "")[:MAX_ALT]
    kind = "picture" if of_picture else "srcset" if best.width or best.density else "lazy" if best.rank == 2 else "img"
    width, height = _number(attributes.get("width")), _number(attributes.get("height"))
    if best.width:  # the attributes are of the size on the page
        width, height = int(best.width), None
    return FoundImage(best.href, kind, alt, width, height, fallback)


def _best(srcsets: list[str], lazy: str | None, src: str | None) -> _Sized | None:
    best: _Sized | None = None
    for value in srcsets:
        for candidate in srcset_candidates(value)[:_MAX_CANDIDATES]:
            href = _href(candidate.href)
            if href is None:
                continue
            sized = _Sized(candidate.width, candidate.density, 0, href)
            if best is None or sized[:3] > best[:3]:
                best = sized
    if best is not None:
        # `srcset="a.png"` alone is worth no more than what a lazy loader would load.
        return best if best.width or best.density > 1 or lazy is None else _Sized(0, 0, 2, lazy)
    return _Sized(0, 0, 2, lazy) if lazy else _Sized(0, 0, 1, src) if src else None


def _of_svg(nodes: Iterable[LexborNode]) -> Iterator[FoundImage]:
    for node in nodes:
        attributes = node.attributes
        if href := _href(attributes.get("href") or attributes.get("xlink:href")):
            yield FoundImage(href, "svg", "", _number(attributes.get("width")), _number(attributes.get("height")), None)


def _of_objects(nodes: Iterable[LexborNode]) -> Iterator[FoundImage]:
    for node in nodes:
        attributes = node.attributes
        is_image = (attributes.get("type") or "").strip().lower().startswith("image/")
        if is_image and (href := _href(attributes.get("data"))):
            yield FoundImage(
                href, "object", "", _number(attributes.get("width")), _number(attributes.get("height")), None
            )


def _of_metas(nodes: Nodes) -> Iterator[FoundImage]:
    last: FoundImage | None = None
    for node in nodes:
        attributes = node.attributes
        name = (attributes.get("property") or attributes.get("name") or "").strip().lower()
        if not name.startswith("og:image"):
            continue
        content = attributes.get("content") or ""
        if name in _OG_URLS:
            if last is not None:
                yield last
            href = _href(content)
            last = FoundImage(href, "og:image", "", None, None, None) if href else None
        elif last is None:
            continue
        elif name == "og:image:alt":
            last = last._replace(alt=collapse_whitespace(content)[:MAX_ALT])
        elif name == "og:image:width":
            last = last._replace(width=_number(content))
        elif name == "og:image:height":
            last = last._replace(height=_number(content))
    if last is not None:
        yield last


def _of_links(nodes: Nodes) -> Iterator[FoundImage]:
    for node in nodes:
        attributes = node.attributes
        if "image_src" in (attributes.get("rel") or "").lower().split() and (href := _href(attributes.get("href"))):
            yield FoundImage(href, "link", "", None, None, None)


def _of_json_ld(nodes: Nodes) -> Iterator[FoundImage]:
    left = _MAX_JSON_LD_VALUES
    for node in nodes:
        kind = node.attributes.get("type")
        if kind is None or kind.partition(";")[0].strip().lower() != "application/ld+json":
            continue
        # No recursion: JSON may be nested deeper than the stack.
        stack: list[tuple[Any, bool]] = [(value, False) for value in reversed(lenient_json.loads(node.text(deep=True)))]
        while stack and left:
            left -= 1
            value, is_image = stack.pop()
            if isinstance(value, str):
                if is_image and (href := _href(value)):
                    yield FoundImage(href, "json-ld", "", None, None, None)
            elif isinstance(value, list):
                stack.extend((one, is_image) for one in reversed(value))
            elif isinstance(value, dict):
                if is_image or _is_image_object(value):
                    yield from _of_image_object(value)
                stack.extend(
                    (one, key in _JSON_LD_KEYS)
                    for key, one in reversed(value.items())
                    if not isinstance(one, str) or key in _JSON_LD_KEYS
                )


def _is_image_object(item: dict[str, Any]) -> bool:
    kind = item.get("@type")
    return any(
        isinstance(one, str) and one.rpartition("/")[2].rpartition(":")[2] == "ImageObject"
        for one in (kind if isinstance(kind, list) else [kind])
    )


def _of_image_object(item: dict[str, Any]) -> Iterator[FoundImage]:
    for name in _JSON_LD_URLS:
        value = item.get(name)
        href = _href(value) if isinstance(value, str) else None
        if href and not (name == "@id" and "#" in href):
            caption = item.get("caption") or item.get("name")
            alt = collapse_whitespace(caption)[:MAX_ALT] if isinstance(caption, str) else ""
            yield FoundImage(href, "json-ld", alt, _number(item.get("width")), _number(item.get("height")), None)
            return


def _href(written: str | None) -> str | None:
    """A URL that can be fetched, as written. The length is checked first: a data: URI may have megabytes."""
    return clean_href(written) if written and len(written) <= MAX_URL else None


def _number(value: object) -> int | None:
    """A number of pixels; None if it is none, or a percentage."""
    if isinstance(value, dict):  # a QuantitativeValue
        value = value.get("value")
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value) if isfinite(value) and 0 < value < 1_000_000 else None
    found = _NUMBER.match(value) if isinstance(value, str) else None
    return int(found[1]) or None if found else None
