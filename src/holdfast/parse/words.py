"""What a page says to robots and which addresses it writes down: small grammars, each read in linear time.

The rule: what cannot be read says nothing; nothing here raises.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

ROBOT: Final = "holdfast"
"""Our name in robots `meta` elements and X-Robots-Tag headers."""

_VALUED: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# An address (it may hold commas, not at its end), then a comma, or a descriptor up to the next comma outside of parentheses.
_CANDIDATE: Final = re.compile(r"[\t\n\f\r ,]*+([^\t\n\f\r ]*[^\t\n\f\r ,])(?:,|[^,(]*+(?:\([^)]*+\)?+[^,(]*+)*+)")
_BLANK: Final = r"[\t\n\f\r ]*+"
_REFRESH: Final = re.compile(rf"{_BLANK}(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[;,\t\n\f\r ]){_BLANK}[;,]?+{_BLANK}")
_URL_NAMED: Final = re.compile(rf"url{_BLANK}={_BLANK}", re.IGNORECASE)
_PLAIN: Final = ("/", "https://", "http://")
BLANKS: Final = "\n\t\r\f\v\xa0"
"""White space but for the space."""
_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))


def directives(content: str) -> tuple[bool, bool]:
    """(noindex, nofollow) of a comma-separated list."""
    words = {word.strip().lower() for word in content.split(",")}
    none = "none" in words
    return none or "noindex" in words, none or "nofollow" in words


def robots_tag(header: str | None) -> tuple[bool, bool]:
    """(noindex, nofollow) of X-Robots-Tag. A name before a colon is whom the rest speaks to, until the next name."""
    if not header:
        return False, False
    ours = True
    words = []
    for piece in header.split(","):
        name, colon, rest = piece.partition(":")
        named = bool(colon) and name.strip().lower() not in _VALUED
        if named:
            ours = name.strip().lower() == ROBOT
        if ours:
            words.append(rest if named else piece)
    return directives(",".join(words))


def crawlable(href: str | None) -> str | None:
    """`href` without white space around it; None if it leads nowhere: empty, a fragment, or of a scheme that is not the web's."""
    if not href:
        return None
    if href.startswith(_PLAIN) and href[-1] > " ":  # nearly all
        return href
    if href[0] in _C0_AND_SPACE or href[-1] in _C0_AND_SPACE:
        href = href.strip(_C0_AND_SPACE)
    if not href or href[0] == "#":
        return None
    if ":" in href[:16] and (scheme := _SCHEME.match(href)) and scheme[1].lower() not in ("http", "https"):
        return None
    return href


def srcset(value: str) -> list[str]:
    """The addresses of a srcset. Commas separate, but may also stand inside of an address, where no white space follows."""
    return _CANDIDATE.findall(value)


def folded(text: str) -> str:
    """White space as one space, none at the ends. Two to four times as fast as to split and join."""
    for blank in BLANKS:
        if blank in text:
            text = text.replace(blank, " ")
    before = len(text) + 1
    while len(text) < before:  # to ask `"  " in text` first costs as much as to replace
        before = len(text)
        text = text.replace("  ", " ")
    return text.strip(" ")


def unique(addresses: Iterable[str | None]) -> list[str]:
    """Without repeats, in order; what leads nowhere is left out."""
    return list(dict.fromkeys(address for written in addresses if (address := crawlable(written))))


def refresh_target(content: str) -> str | None:
    """The address in the content of a meta refresh, as WHATWG reads it; None: there is none, or it only loads its page again.

    `5; url=/x`, `0,URL='/x'`, `5 /x` and `0;/x` all mean /x.
    """
    found = _REFRESH.match(content)
    if found is None:
        return None
    address = content[found.end() :]
    if named := _URL_NAMED.match(address):
        address = address[named.end() :]
        if address[:1] in ("'", '"'):
            address = address[1:].partition(address[0])[0]
    return crawlable(address)


class Links(NamedTuple):
    """The links of a page."""

    kept: list[str]
    cut: int
    nofollow: list[str]
    """All of them."""
    next: list[str]
    """Those of `kept` with rel=next."""
    seen: set[str]
    """All that are not nofollow, as they were written."""

    def found(self, *others: Iterable[str]) -> int:
        """How many different addresses these are together with `others`, whatever was cut."""
        more = set(self.nofollow).union(*others)
        return len(self.kept) + self.cut + (len(more - self.seen) if more else 0)


def followed(found: Iterable[tuple[str, str | None]], limit: int) -> Links:
    """The first `limit` of `found` (href, rel) that may be followed. Those that differ in the fragment only are one."""
    seen: set[str] = set()
    kept: list[str] = []
    nofollow: list[str] = []
    following: list[str] = []
    cut = 0
    for href, rel in found:
        if rel:
            words = rel.lower().split()
            if "nofollow" in words:
                nofollow.append(href)
                continue
            if "next" in words:
                following.append(href)
        if href in seen:
            continue
        seen.add(href)
        if href[0] == "/" and href[-1] > " " and "#" not in href:  # nearly all; crawlable would say the same
            address = href
        else:
            web = crawlable(href)
            if web is None:
                continue
            address = web
            page = address.partition("#")[0]
            if page != href and page in seen:
                continue
            seen.add(page)
        if len(kept) < limit:
            kept.append(address)
        else:
            cut += 1
    return Links(kept, cut, unique(nofollow), unique(following), seen)
