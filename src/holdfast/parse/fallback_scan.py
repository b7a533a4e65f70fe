"""Fallback for pages on which the parser failed: a linear scan for title, links, frames and robots directives.

The rule: time is linear in the length of the page, of which only the first 4 MiB are read. Every pattern stops at the next "<", so no
byte is matched from more than one start. A ">" or "<" in an attribute cuts its tag short, which is accepted here.
"""

import re
from html import unescape
from typing import Final

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse import charset
from holdfast.parse.html import MAX_TITLE, content_hash
from holdfast.parse.html_tokens import (
    ROBOT_NAME,
    clean_href,
    collapse_whitespace,
    parse_meta_refresh,
    parse_robots_directives,
    parse_x_robots_tag,
    select_links,
    unique_hrefs,
)

MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_TAGS: Final = 50_000
_MAX_VALUE: Final = 8192
"""Bytes of an attribute's value; longer ones are no URLs."""

_TAG: Final = re.compile(rb"<(a|area|base|frame|iframe|meta|title)(?=[\s/>])([^<>]*+)>?+([^<]{0,4000})", re.IGNORECASE)


def _attribute(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:^|[\s/\"'])%s\s*+=\s*+(?:\"([^\"]*+)|'([^']*+)|([^\s\"']++))" % name, re.IGNORECASE)


_HREF: Final = _attribute(b"href")
_REL: Final = _attribute(b"rel")
_NAME: Final = _attribute(b"name")
_CONTENT: Final = _attribute(b"content")
_HTTP_EQUIV: Final = _attribute(b"http-equiv")
_SRC: Final = _attribute(b"src")


def scan(
    body: bytes, *, content_type: str | None, x_robots_tag: str | None, links_per_page: int, problem: str
) -> ParsedPage:
    """Scan `body` for title, links and robots directives. `problem` is the reason why the parser failed, and is kept in the result."""
    encoded = charset.detect(body[:MAX_BYTES], content_type)
    parsed = ParsedPage(charset=encoded.name, problem=problem)
    parsed.noindex, parsed.nofollow = parse_x_robots_tag(x_robots_tag)
    found: list[tuple[str, str | None]] = []
    frames: list[str | None] = []

    def value(pattern: re.Pattern[bytes], attributes: bytes) -> str | None:
        return _value(pattern, attributes, encoded.name)

    seen_base = False
    for number, tag in enumerate(_TAG.finditer(body, 0, MAX_BYTES)):
        if number == _MAX_TAGS:
            break
        name, attributes = tag[1].lower(), tag[2]
        if name == b"title":
            if parsed.title is None:
                parsed.title = collapse_whitespace(unescape(charset.decode(tag[3], encoded.name)))[:MAX_TITLE] or None
        elif name == b"meta":
            frames.append(_read_meta(parsed, value(_NAME, attributes), attributes, encoded.name))
        elif name in (b"frame", b"iframe"):
            frames.append(value(_SRC, attributes))
        elif name == b"base":
            if not seen_base and (base := value(_HREF, attributes)):
                seen_base, parsed.base = True, clean_href(base)
        elif href := value(_HREF, attributes):
            found.append((href, value(_REL, attributes)))
    links = select_links(found, links_per_page)
    parsed.links, parsed.links_cut, parsed.links_next = links.kept, links.cut, links.next
    parsed.links_nofollow = links.nofollow[:links_per_page]
    all_frames = unique_hrefs(frames)
    parsed.frames = all_frames[:links_per_page]
    parsed.links_found = links.found(all_frames)
    parsed.content_hash = content_hash(None, "", body)
    return parsed


def _value(pattern: re.Pattern[bytes], attributes: bytes, encoding: str) -> str | None:
    match = pattern.search(attributes)
    raw = match and (match[1] or match[2] or match[3])
    return unescape(charset.decode(raw, encoding)) if raw and len(raw) <= _MAX_VALUE else None


def _read_meta(parsed: ParsedPage, name: str | None, attributes: bytes, encoding: str) -> str | None:
    """Apply the robots directives of a `meta` element to `parsed`; return the target of a `meta` refresh."""
    if (name or "").strip().lower() in ("robots", ROBOT_NAME):
        noindex, nofollow = parse_robots_directives(_value(_CONTENT, attributes, encoding) or "")
        parsed.noindex |= noindex
        parsed.nofollow |= nofollow
    elif (_value(_HTTP_EQUIV, attributes, encoding) or "").strip().lower() == "refresh":
        return parse_meta_refresh(_value(_CONTENT, attributes, encoding) or "")
    return None
