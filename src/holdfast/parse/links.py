"""The links of a page as records: each with its text, its `rel` and the element that it is in; and the places that links can name.

The rule: only for jobs that record links, since all others would pay for the texts. Time is linear in the length of the page.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.fetch_types import FoundLink
from holdfast.model.page_links import MAX_LINK_TEXT, LinkKind
from holdfast.parse.html_tokens import clean_href, collapse_whitespace

MAX_PLACES: Final = 10_000
"""Places of a page that are kept; of a page with more none are, since a missing one could not be told."""
_MAX_TEXTS: Final = 4_000_000
"""Characters that are read for the texts of all links of a page. Links in links would make reading them quadratic."""

Nodes = Sequence[LexborNode]


class FoundLinks(NamedTuple):
    """The links of a page that are kept, and the number of the others."""

    kept: list[FoundLink]
    cut: int


def find_links(
    anchors: Nodes,
    *,
    frames: Iterable[str],
    refreshes: Iterable[str | None],
    links: Nodes,
    images: Iterable[str],
    limit: int,
) -> FoundLinks:
    """Return the first `limit` links of a page in the order of their elements. `anchors`: its `a` and `area` elements; `links`: its `link`
    elements. Links that are written alike, with the same text, are one."""
    found: dict[FoundLink, None] = {}
    cut = 0
    budget = _MAX_TEXTS
    for node in anchors:
        attributes = node.attributes
        href = _href(attributes.get("href"))
        if href is None:
            continue
        if len(found) >= limit:
            cut += 1
            continue
        text = ""
        if node.tag == "area":
            text = attributes.get("alt") or ""
        elif budget > 0:
            text = node.text(separator=" ")
            budget -= len(text)
            if not text.strip() and (image := node.css_first("img[alt]")) is not None:
                text = image.attributes.get("alt") or ""
        kind = LinkKind.AREA if node.tag == "area" else LinkKind.A
        found[FoundLink(href, _clean(text), _clean(attributes.get("rel") or ""), kind)] = None
    others = [
        *(FoundLink(href, "", "", LinkKind.FRAME) for href in frames),
        *(FoundLink(href, "", "", LinkKind.REFRESH) for one in refreshes if (href := clean_href(one))),
        *_link_elements(links),
        *(FoundLink(href, "", "", LinkKind.IMAGE) for href in images),
    ]
    for link in others:
        if len(found) < limit:
            found[link] = None
        elif link not in found:
            cut += 1
    return FoundLinks(list(found), cut)


def find_places(tree: LexborHTMLParser) -> list[str] | None:
    """Return what the fragments of links can name: ids, and names of `a` elements. None: there are too many."""
    found: set[str] = set()
    for node in tree.css("[id], a[name]"):
        attributes = node.attributes
        found.update(
            value for name in ("id", "name") if (value := attributes.get(name)) and (name == "id" or node.tag == "a")
        )
        if len(found) > MAX_PLACES:
            return None
    return sorted(found)


def fragment_of(href: str) -> str:
    """Return the fragment of a link that names a place of its page; empty: it has none, or one that every page has (`#top`), or that is
    for a script (`#!…`, `#/…`) or for the text of the page (`#:~:text=`)."""
    fragment = href.partition("#")[2].partition(":~:")[0]
    if not fragment or fragment[0] in "!/" or fragment.lower() == "top":
        return ""
    return fragment


def _href(href: str | None) -> str | None:
    """A link of the page; unlike one to crawl, it may be to another place of the same page."""
    if href and (stripped := href.strip()).startswith("#"):
        return stripped if fragment_of(stripped) else None
    return clean_href(href)


def _link_elements(nodes: Nodes) -> Iterable[FoundLink]:
    for node in nodes:
        attributes = node.attributes
        href = clean_href(attributes.get("href"))
        words = (attributes.get("rel") or "").lower().split()
        if href is None or "stylesheet" in words:
            continue
        for word, kind in (
            ("canonical", LinkKind.CANONICAL),
            ("alternate", LinkKind.ALTERNATE),
            ("next", LinkKind.NEXT),
        ):
            if word in words:
                yield FoundLink(href, "", _clean(" ".join(words)), kind)
                break


def _clean(text: str) -> str:
    return collapse_whitespace(text[: 4 * MAX_LINK_TEXT])[:MAX_LINK_TEXT]
