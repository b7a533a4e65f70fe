"""What an HTML page means: one parse by Lexbor, one walk over its elements, then a look at those that matter.

The rule: the caller has made sure that the page is safe for the parser (`parse/prescan`), or that this process may die of it
(`parse/child`). Text that leaves is clean whatever came in: Lexbor and its decoding replace NUL, surrogates and invalid bytes.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.page import Parsed
from holdfast.parse.words import (
    BLANKS,
    ROBOT,
    Links,
    crawlable,
    directives,
    folded,
    followed,
    refresh_target,
    srcset,
    unique,
)

MAX_TITLE: Final = 1000
MAX_DESCRIPTION: Final = 5000
LOGIN_TEXT: Final = 1000
"""Characters: a page with more text of its own than that is no login page, even if it has a password field."""
CAPTCHA_TEXT: Final = 500
CAPTCHA_LINKS: Final = 5
"""A page with more characters of text, or more links, than that has something else to say, even if it has a captcha somewhere."""

_CAPTCHA: Final = re.compile(
    rb"g-recaptcha|h-captcha|cf-turnstile|/cdn-cgi/challenge-platform/|captcha-delivery\.com|_Incapsula_Resource|px-captcha"
    rb"|arkoselabs|geetest|/validateCaptcha|awswaf",
    re.IGNORECASE,
)
"""By the means that are in use: of Google, hCaptcha, Cloudflare (two), DataDome, Imperva, HUMAN, Arkose, GeeTest, Amazon (two)."""
_WITHOUT_EVENTS: Final = 1
"""LexborDocumentOptions.WO_EVENTS: nothing is copied about in the tree (`selectedcontent`)."""
_DRAWN: Final = frozenset({"svg", "symbol", "g", "path", "a", "use"})
"""Elements of svg, whose title is not the page's."""
_HTML_TYPES: Final = frozenset({"", "text/html", "application/xhtml+xml"})
_LAZY: Final = ("src", "data-src", "data-original", "data-lazy-src")
_LAZY_SETS: Final = ("srcset", "data-srcset", "data-lazy-srcset")

_NAMES: Final = (
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
"""Of the elements that matter."""
_NUMBERS: Final = {
    node.tag_id: name
    for page in ("".join(f"<{each}></{each}>" for each in _NAMES), "<frameset><frame></frameset>")
    for name in _NAMES
    for node in LexborHTMLParser(page).tags(name)
}
"""What Lexbor calls them: asked of it, since another version may number them anew."""
_IFRAME: Final = next(number for number, name in _NUMBERS.items() if name == "iframe")
_TOGETHER: Final = {"area": "a", "iframe": "script", "noscript": "script", "style": "script"}
"""Those that are dealt with alike, hence in one list: links, and what nobody sees."""

Nodes = Sequence[LexborNode]


def _elements(tree: LexborHTMLParser) -> dict[str, list[LexborNode]]:
    """The elements that matter by name, in the order of the page. One walk: a walk for each name took twice the time of it."""
    found: dict[str, list[LexborNode]] = {name: [] for name in _NAMES}
    lists = {number: found[_TOGETHER.get(name, name)] for number, name in _NUMBERS.items()}
    for node in tree.css("*"):
        if (nodes := lists.get(node.tag_id)) is not None:
            nodes.append(node)
    return found


def parse_html(body: bytes, *, links_per_page: int) -> Parsed:
    """Read a page. `body` is UTF-8, or nearly. The robots header and the charset are the caller's."""
    tree = LexborHTMLParser(body, options=_WITHOUT_EVENTS)
    elements = _elements(tree)
    parsed = Parsed()
    images: list[str | None] = []
    refreshes = _metas(elements["meta"], parsed, images)
    parsed.title = _title(elements["title"])
    parsed.base = _base(elements["base"])
    links = _links(elements["a"], parsed, links_per_page)
    _link_elements(elements["link"], parsed)
    frames = _frames(elements["frame"], elements["script"], refreshes)
    parsed.frames = frames[:links_per_page]
    parsed.links_found = links.found(frames, parsed.alternates, (parsed.canonical,) if parsed.canonical else ())
    _images(elements["img"], elements["source"], images)
    parsed.images = unique(images) if images else []
    password = _password_field(elements["input"])
    # Last, since it takes elements out of the tree.
    parsed.text = _visible_text(tree, elements["script"])
    parsed.password_form = password and len(parsed.text) < LOGIN_TEXT
    parsed.captcha = (
        len(parsed.text) < CAPTCHA_TEXT and len(parsed.links) <= CAPTCHA_LINKS and _CAPTCHA.search(body) is not None
    )
    parsed.content_hash = content_hash(parsed.title, parsed.text, body)
    return parsed


def content_hash(title: str | None, text: str, body: bytes) -> bytes:
    """By which a page is compared with others: its text with its title, or its bytes where there is no text."""
    if not text:
        return hashlib.sha256(body).digest()
    digest = hashlib.sha256(f"{title or ''}\n".encode())
    digest.update(text.encode())
    return digest.digest()


def _metas(nodes: Nodes, parsed: Parsed, images: list[str | None]) -> list[str | None]:
    """Read the meta elements; the targets of refreshes."""
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
                refreshes.append(refresh_target(content))
            continue
        name = name.strip().lower()
        if name == "description":
            parsed.description = parsed.description or folded(content)[:MAX_DESCRIPTION] or None
        elif name == "og:description":
            og_description = og_description or folded(content)[:MAX_DESCRIPTION] or None
        elif name in ("robots", ROBOT):
            noindex, nofollow = directives(content)
            parsed.noindex |= noindex
            parsed.nofollow |= nofollow
        elif name in ("og:image", "og:image:url", "og:image:secure_url"):
            images.append(content)
    parsed.description = parsed.description or og_description
    return refreshes


def _link_elements(nodes: Nodes, parsed: Parsed) -> None:
    alternates = []
    following: list[str | None] = []
    for node in nodes:
        attributes = node.attributes
        rel = attributes.get("rel")
        if not rel:
            continue
        words = rel.lower().split()
        if "canonical" in words:
            parsed.canonical = parsed.canonical or crawlable(attributes.get("href"))
        elif (
            "alternate" in words
            and "stylesheet" not in words
            # Feeds and the like are alternates too, but no pages.
            and (attributes.get("type") or "").partition(";")[0].strip().lower() in _HTML_TYPES
        ):
            alternates.append(attributes.get("href"))
        elif "next" in words:
            following.append(attributes.get("href"))
    if following:
        parsed.links_next = unique([*parsed.links_next, *following])
    if alternates:
        parsed.alternates = unique(alternates)


def _title(nodes: Nodes) -> str | None:
    for node in nodes:
        parent = node.parent
        of_page = parent is None or parent.tag not in _DRAWN
        if of_page and (title := folded(node.text())):
            return title[:MAX_TITLE]
    return None


def _base(nodes: Nodes) -> str | None:
    for node in nodes:
        if (href := node.attributes.get("href")) is not None:
            return crawlable(href)
    return None


def _links(nodes: Nodes, parsed: Parsed, limit: int) -> Links:
    found = [(href, attributes.get("rel")) for node in nodes if (href := (attributes := node.attributes).get("href"))]
    links = followed(found, limit)
    parsed.links, parsed.links_cut, parsed.links_next = links.kept, links.cut, links.next
    parsed.links_nofollow = links.nofollow[:limit]
    return links


def _frames(frames: Nodes, unseen: Nodes, refreshes: list[str | None]) -> list[str]:
    """What a browser would show with the page, or instead of it. `unseen` has the iframes, among others."""
    found = [node.attributes.get("src") for node in frames]
    found += [node.attributes.get("src") for node in unseen if node.tag_id == _IFRAME]
    found += refreshes
    return unique(found) if found else []


def _images(nodes: Nodes, sources: Nodes, images: list[str | None]) -> None:
    for node in nodes:
        attributes = node.attributes
        images.extend([attributes[name] for name in _LAZY if name in attributes])
        _add_sets(attributes, images)
    for node in sources:
        _add_sets(node.attributes, images)


def _add_sets(attributes: dict[str, str | None], images: list[str | None]) -> None:
    for name in _LAZY_SETS:
        if value := attributes.get(name):
            images.extend(srcset(value))


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


def _visible_text(tree: LexborHTMLParser, unseen: Nodes) -> str:
    """Before: the tree is whole. After: what is never seen is no longer in it."""
    root = tree.body
    if root is None:
        return ""
    # From the end: what is inside of another one goes before it.
    for node in reversed(unseen):
        node.decompose(recursive=False)
    for node in reversed(root.css("[hidden]")):  # half the time that it takes to look for the word in the bytes first
        if node.mem_id != root.mem_id:
            node.decompose(recursive=False)
    text = root.text(separator=" ", strip=True, skip_empty=True)
    # Two spaces in a row, where there is no other white space, stay: to look for them would be half the cost of all the text.
    return folded(text) if any(blank in text for blank in BLANKS) else text
