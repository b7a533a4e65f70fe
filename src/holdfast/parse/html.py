"""Parsing of a page in this process: decoding, one parse by Lexbor, one walk over the elements; text, links, metadata.

The rule: the caller has made sure that the page is safe for the parser (`parse/risk_check`), or runs in a process that may be killed
(`parse/page_child`). All text in the result is clean: Lexbor and the decoding replace NUL, surrogates and invalid bytes.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.content_type import BodyKind, kind_of, media_type
from holdfast.model.fetch_types import Anchor, ParsedPage
from holdfast.parse import charset
from holdfast.parse.html_tokens import (
    NON_SPACE_WHITESPACE,
    ROBOT_NAME,
    Links,
    clean_href,
    collapse_whitespace,
    parse_meta_refresh,
    parse_robots_directives,
    parse_srcset,
    parse_x_robots_tag,
    select_links,
    unique_hrefs,
)
from holdfast.parse.images import find_images
from holdfast.parse.links import find_links, find_places

MAX_TITLE: Final = 1000
MAX_DESCRIPTION: Final = 5000
MAX_ANCHOR_TEXT: Final = 200
"""Characters of the text of a link."""
MAX_FEEDS: Final = 50
"""Feeds of a page that are kept, and sitemaps."""
MAX_LOGIN_TEXT: Final = 1000
"""Characters: a page with at least as much text is no login page, even if it has a password field."""
MAX_CAPTCHA_TEXT: Final = 500
MAX_CAPTCHA_LINKS: Final = 5
"""A page with more text (characters) or more links is no captcha page, even if it contains a captcha."""

_CAPTCHA: Final = re.compile(
    rb"g-recaptcha|h-captcha|cf-turnstile|/cdn-cgi/challenge-platform/|captcha-delivery\.com|_Incapsula_Resource|px-captcha"
    rb"|arkoselabs|geetest|/validateCaptcha|awswaf",
    re.IGNORECASE,
)
"""Markers of captchas: Google, hCaptcha, Cloudflare (two), DataDome, Imperva, HUMAN, Arkose, GeeTest, Amazon (two)."""
_MAX_ANCHOR_TEXTS: Final = 4_000_000
"""Characters that are read for the texts of all links of a page."""
_WITHOUT_EVENTS: Final = 1
"""LexborDocumentOptions.WO_EVENTS: Lexbor does not copy elements within the tree (`selectedcontent`)."""
_SVG_PARENTS: Final = frozenset({"svg", "symbol", "g", "path", "a", "use"})
"""Elements of SVG, whose `title` is not the page's."""
_ROBOTS: Final = ("robots", ROBOT_NAME)
"""Names of `meta` elements with directives for us."""
_HTML_TYPES: Final = frozenset({"", "text/html", "application/xhtml+xml"})
_FEED_TYPES: Final = frozenset({"application/rss+xml", "application/atom+xml"})
_IMAGE_ATTRIBUTES: Final = ("src", "data-src", "data-original", "data-lazy-src")
_SRCSET_ATTRIBUTES: Final = ("srcset", "data-srcset", "data-lazy-srcset")

_TAGS: Final = (
    "a",
    "area",
    "base",
    "frame",
    "iframe",
    "img",
    "input",
    "link",
    "meta",
    "noscript",
    "script",
    "source",
    "style",
    "title",
)
"""The elements that are read."""
_TAG_NAMES_BY_ID: Final = {
    node.tag_id: name
    for page in ("".join(f"<{each}></{each}>" for each in _TAGS), "<frameset><frame></frameset>")
    for name in _TAGS
    for node in LexborHTMLParser(page).tags(name)
}
"""Lexbor's tag ids, determined at import because another version may number them differently."""
_IFRAME_ID: Final = next(number for number, name in _TAG_NAMES_BY_ID.items() if name == "iframe")
_SHARED_LISTS: Final = {"area": "a", "iframe": "script", "noscript": "script", "style": "script"}
"""Tags whose elements share a list: links, and elements without visible text."""

Nodes = Sequence[LexborNode]


def parse_page(
    body: bytes,
    *,
    content_type: str | None,
    x_robots_tag: str | None = None,
    links_per_page: int = 1000,
    anchors: bool = False,
    images: bool = False,
    links: bool = False,
) -> ParsedPage:
    """Parse a page: HTML, or text by its content type. URLs are as written, not resolved. `anchors`: also the texts of links;
    `images`: also the images as records; `links`: also the links, with the places that links can name.

    Before: it is neither a PDF nor binary."""
    encoded = charset.detect(body, content_type)
    if kind_of(body, content_type) is BodyKind.TEXT:
        text = collapse_whitespace(charset.decode(body[encoded.bom_length :], encoded.name))
        visible = text if media_type(content_type) == "text/plain" else ""  # white space may matter in the other types
        parsed = ParsedPage(text=text, content_hash=content_hash(None, visible, body))
    else:
        markup = body[encoded.bom_length :] if encoded.bom_length else body
        if encoded.name != charset.UTF8:
            markup = charset.decode(markup, encoded.name).encode("utf-8", "replace")
        parsed = parse_html(markup, links_per_page=links_per_page, anchors=anchors, images=images, links=links)
        if not parsed.text:
            parsed.content_hash = content_hash(None, "", body)
    parsed.charset = encoded.name
    if x_robots_tag:
        noindex, nofollow = parse_x_robots_tag(x_robots_tag)
        parsed.noindex |= noindex
        parsed.nofollow |= nofollow
    return parsed


def is_noindex(tree: LexborHTMLParser, x_robots_tag: str | None) -> bool:
    """Return whether a page that is parsed asks not to be indexed: as `parse_page` judges it, for those who need nothing else of it."""
    if parse_x_robots_tag(x_robots_tag)[0]:
        return True
    for node in tree.css("meta[content]"):
        name = node.attributes.get("name") or node.attributes.get("property") or ""
        if name.strip().lower() in _ROBOTS and parse_robots_directives(node.attributes["content"] or "")[0]:
            return True
    return False


def _elements(tree: LexborHTMLParser) -> dict[str, list[LexborNode]]:
    """Group the elements that are read by tag, in document order. One walk, since a walk for each tag took twice the time."""
    found: dict[str, list[LexborNode]] = {name: [] for name in _TAGS}
    lists = {number: found[_SHARED_LISTS.get(name, name)] for number, name in _TAG_NAMES_BY_ID.items()}
    for node in tree.css("*"):
        if (nodes := lists.get(node.tag_id)) is not None:
            nodes.append(node)
    return found


def parse_html(
    body: bytes, *, links_per_page: int, anchors: bool = False, images: bool = False, links: bool = False
) -> ParsedPage:
    """Parse HTML. `body` is UTF-8; invalid bytes are replaced. The caller adds the charset and the directives of X-Robots-Tag."""
    tree = LexborHTMLParser(body, options=_WITHOUT_EVENTS)
    elements = _elements(tree)
    parsed = ParsedPage()
    image_hrefs: list[str | None] = []
    refreshes = _read_metas(elements["meta"], parsed, image_hrefs)
    parsed.title = _title(elements["title"])
    parsed.content_language = ((tree.root and tree.root.attributes.get("lang")) or "").strip() or None
    parsed.base = _base(elements["base"])
    read = _read_links(elements["a"], parsed, links_per_page)
    if anchors:
        _read_anchors(elements["a"], parsed, links_per_page)
    _read_link_elements(elements["link"], parsed)
    frames = _frames(elements["frame"], elements["script"], refreshes)
    parsed.frames = frames[:links_per_page]
    parsed.links_found = read.found(frames, parsed.alternates, (parsed.canonical,) if parsed.canonical else ())
    _collect_images(elements["img"], elements["source"], image_hrefs)
    parsed.images = unique_hrefs(image_hrefs) if image_hrefs else []
    if images:
        parsed.found_images = find_images(
            tree,
            body,
            images=elements["img"],
            sources=elements["source"],
            metas=elements["meta"],
            links=elements["link"],
            scripts=elements["script"],
        )
    if links:
        parsed.found_links, parsed.found_links_cut = find_links(
            elements["a"],
            frames=_frames(elements["frame"], elements["script"], []),
            refreshes=refreshes,
            links=elements["link"],
            images=parsed.images if images else (),
            limit=links_per_page,
        )
        parsed.places = find_places(tree)
    password = _password_field(elements["input"])
    # Last, since it takes elements out of the tree.
    parsed.text = _visible_text(tree, elements["script"])
    parsed.password_form = password and len(parsed.text) < MAX_LOGIN_TEXT
    parsed.captcha = (
        len(parsed.text) < MAX_CAPTCHA_TEXT
        and len(parsed.links) <= MAX_CAPTCHA_LINKS
        and _CAPTCHA.search(body) is not None
    )
    parsed.content_hash = content_hash(parsed.title, parsed.text, body)
    return parsed


def content_hash(title: str | None, text: str, body: bytes) -> bytes:
    """Return the SHA-256 hash that identifies the content of a page: of title and text, or of the bytes if there is no text."""
    if not text:
        return hashlib.sha256(body).digest()
    digest = hashlib.sha256(f"{title or ''}\n".encode())
    digest.update(text.encode())
    return digest.digest()


def _read_metas(nodes: Nodes, parsed: ParsedPage, images: list[str | None]) -> list[str | None]:
    """Read the `meta` elements into `parsed` and `images`; return the targets of refreshes."""
    og_description = None
    refreshes: list[str | None] = []
    for node in nodes:
        attributes = node.attributes
        content = attributes.get("content")
        if not content:
            continue
        name = attributes.get("name") or attributes.get("property")
        if not name:
            if (attributes.get("http-equiv") or "").strip().lower() == "refresh":
                refreshes.append(parse_meta_refresh(content))
            continue
        name = name.strip().lower()
        if name == "description":
            parsed.description = parsed.description or collapse_whitespace(content)[:MAX_DESCRIPTION] or None
        elif name == "og:description":
            og_description = og_description or collapse_whitespace(content)[:MAX_DESCRIPTION] or None
        elif name in _ROBOTS:
            noindex, nofollow = parse_robots_directives(content)
            parsed.noindex |= noindex
            parsed.nofollow |= nofollow
        elif name in ("og:image", "og:image:url", "og:image:secure_url"):
            images.append(content)
    parsed.description = parsed.description or og_description
    return refreshes


def _read_link_elements(nodes: Nodes, parsed: ParsedPage) -> None:
    found: dict[str, list[str | None]] = {}
    for node in nodes:
        attributes = node.attributes
        rel = attributes.get("rel")
        if not rel:
            continue
        words = rel.lower().split()
        if "canonical" in words:
            parsed.canonical = parsed.canonical or clean_href(attributes.get("href"))
        elif meaning := _link_meaning(words, attributes.get("type")):
            found.setdefault(meaning, []).append(attributes.get("href"))
    if found:
        if "next" in found:
            parsed.links_next = unique_hrefs([*parsed.links_next, *found["next"]])
        parsed.alternates = unique_hrefs(found.get("alternate", ()))
        parsed.feeds = unique_hrefs(found.get("feed", ()))[:MAX_FEEDS]
        parsed.sitemaps = unique_hrefs(found.get("sitemap", ()))[:MAX_FEEDS]


def _link_meaning(words: list[str], media_type: str | None) -> str | None:
    """Return what a `link` element leads to, by the words of its `rel`; None: it is not read."""
    if "alternate" in words and "stylesheet" not in words:
        # Feeds and the like are alternates too, but no pages.
        media_type = (media_type or "").partition(";")[0].strip().lower()
        if media_type in _HTML_TYPES:
            return "alternate"
        if media_type in _FEED_TYPES:
            return "feed"
    if "next" in words:
        return "next"
    return "sitemap" if "sitemap" in words else None


def _title(nodes: Nodes) -> str | None:
    for node in nodes:
        parent = node.parent
        is_page_title = parent is None or parent.tag not in _SVG_PARENTS
        if is_page_title and (title := collapse_whitespace(node.text())):
            return title[:MAX_TITLE]
    return None


def _base(nodes: Nodes) -> str | None:
    for node in nodes:
        if (href := node.attributes.get("href")) is not None:
            return clean_href(href)
    return None


def _read_links(nodes: Nodes, parsed: ParsedPage, limit: int) -> Links:
    found = [(href, attributes.get("rel")) for node in nodes if (href := (attributes := node.attributes).get("href"))]
    links = select_links(found, limit)
    parsed.links, parsed.links_cut, parsed.links_next = links.kept, links.cut, links.next
    parsed.links_nofollow = links.nofollow[:limit]
    return links


def _read_anchors(nodes: Nodes, parsed: ParsedPage, limit: int) -> None:
    """Read links with their texts. Links in links would make reading all texts quadratic: after `_MAX_ANCHOR_TEXTS` characters further
    links have none."""
    left = _MAX_ANCHOR_TEXTS
    for node in nodes:
        attributes = node.attributes
        href = clean_href(attributes.get("href"))
        if href is None:
            continue
        if len(parsed.anchors) == limit:
            parsed.anchors_cut += 1
            continue
        text = node.text(separator=" ") if left > 0 else ""
        left -= len(text)
        rel = (attributes.get("rel") or "")[:MAX_ANCHOR_TEXT]
        parsed.anchors.append(Anchor(href, collapse_whitespace(text)[:MAX_ANCHOR_TEXT], collapse_whitespace(rel)))


def _frames(frames: Nodes, invisible: Nodes, refreshes: list[str | None]) -> list[str]:
    """Return the URLs that a browser loads into or instead of the page. `invisible` includes the iframes."""
    found = [node.attributes.get("src") for node in frames]
    found += [node.attributes.get("src") for node in invisible if node.tag_id == _IFRAME_ID]
    found += refreshes
    return unique_hrefs(found) if found else []


def _collect_images(nodes: Nodes, sources: Nodes, images: list[str | None]) -> None:
    for node in nodes:
        attributes = node.attributes
        images.extend([attributes[name] for name in _IMAGE_ATTRIBUTES if name in attributes])
        _collect_srcsets(attributes, images)
    for node in sources:
        _collect_srcsets(node.attributes, images)


def _collect_srcsets(attributes: dict[str, str | None], images: list[str | None]) -> None:
    for name in _SRCSET_ATTRIBUTES:
        if value := attributes.get(name):
            images.extend(parse_srcset(value))


def _password_field(nodes: Nodes) -> bool:
    return any((node.attributes.get("type") or "").strip().lower() == "password" and _in_form(node) for node in nodes)


def _in_form(node: LexborNode) -> bool:
    if node.attributes.get("form"):
        return True
    parent = node.parent
    while parent is not None:
        if parent.tag == "form":
            return True
        parent = parent.parent
    return False


def _visible_text(tree: LexborHTMLParser, invisible: Nodes) -> str:
    """Return the visible text. Before: the tree is whole. After: invisible elements are removed from it."""
    root = tree.body
    if root is None:
        return ""
    # In reverse, so that nested elements are removed before the element around them.
    for node in reversed(invisible):
        node.decompose(recursive=False)
    for node in reversed(root.css("[hidden]")):  # searching the bytes for the word first would take twice the time
        if node.mem_id != root.mem_id:
            node.decompose(recursive=False)
    text = root.text(separator=" ", strip=True, skip_empty=True)
    # Runs of spaces stay where there is no other white space: searching for them would add half to the cost of the text.
    return collapse_whitespace(text) if any(blank in text for blank in NON_SPACE_WHITESPACE) else text
