"""The little that is read of a page on which the parser failed: title, links, what robots may do.

The rule: time grows with the length of the page only, and no more than the first megabytes are looked at. Every pattern stops at the next
"<", so no byte is looked at from more than one start. A ">" or "<" in an attribute cuts its tag short: this is for pages that are wrecks.
"""

import re
from html import unescape
from typing import Final

from holdfast.model.page import Parsed
from holdfast.parse import charset
from holdfast.parse.html import MAX_TITLE, content_hash
from holdfast.parse.words import (
    ROBOT,
    crawlable,
    directives,
    folded,
    followed,
    refresh_target,
    robots_tag,
    unique,
)

MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_TAGS: Final = 50_000
_MAX_VALUE: Final = 8192
"""Bytes of an attribute's value; nothing longer is an address."""

_TAG: Final = re.compile(rb"<(a|area|base|frame|iframe|meta|title)(?=[\s/>])([^<>]*+)>?+([^<]{0,4000})", re.IGNORECASE)


def _attribute(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:^|[\s/\"'])%s\s*+=\s*+(?:\"([^\"]*+)|'([^']*+)|([^\s\"']++))" % name, re.IGNORECASE)


_HREF: Final = _attribute(b"href")
_REL: Final = _attribute(b"rel")
_NAME: Final = _attribute(b"name")
_CONTENT: Final = _attribute(b"content")
_EQUIVALENT: Final = _attribute(b"http-equiv")
_SRC: Final = _attribute(b"src")


def scan(
    body: bytes, *, content_type: str | None, x_robots_tag: str | None, links_per_page: int, problem: str
) -> Parsed:
    """What can be read of `body` without a parser; `problem` says why it is only that."""
    encoded = charset.detect(body[:MAX_BYTES], content_type)
    parsed = Parsed(charset=encoded.name, problem=problem)
    parsed.noindex, parsed.nofollow = robots_tag(x_robots_tag)
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
                parsed.title = folded(unescape(charset.decode(tag[3], encoded.name)))[:MAX_TITLE] or None
        elif name == b"meta":
            frames.append(_meta(parsed, value(_NAME, attributes), attributes, encoded.name))
        elif name in (b"frame", b"iframe"):
            frames.append(value(_SRC, attributes))
        elif name == b"base":
            if not seen_base and (base := value(_HREF, attributes)):
                seen_base, parsed.base = True, crawlable(base)
        elif href := value(_HREF, attributes):
            found.append((href, value(_REL, attributes)))
    links = followed(found, links_per_page)
    parsed.links, parsed.links_cut, parsed.links_next = links.kept, links.cut, links.next
    parsed.links_nofollow = links.nofollow[:links_per_page]
    all_frames = unique(frames)
    parsed.frames = all_frames[:links_per_page]
    parsed.links_found = links.found(all_frames)
    parsed.content_hash = content_hash(None, "", body)
    return parsed


def _value(pattern: re.Pattern[bytes], attributes: bytes, encoding: str) -> str | None:
    match = pattern.search(attributes)
    written = match and (match[1] or match[2] or match[3])
    return unescape(charset.decode(written, encoding)) if written and len(written) <= _MAX_VALUE else None


def _meta(parsed: Parsed, name: str | None, attributes: bytes, encoding: str) -> str | None:
    """Read what a meta element says to robots; where it refreshes to, if it does."""
    if (name or "").strip().lower() in ("robots", ROBOT):
        noindex, nofollow = directives(_value(_CONTENT, attributes, encoding) or "")
        parsed.noindex |= noindex
        parsed.nofollow |= nofollow
    elif (_value(_EQUIVALENT, attributes, encoding) or "").strip().lower() == "refresh":
        return refresh_target(_value(_CONTENT, attributes, encoding) or "")
    return None
