"""Small grammars in HTML attributes and headers: robots directives, hrefs, srcset, meta refresh, white space. Each in linear time.

The rule: what cannot be parsed is ignored; nothing here raises.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

ROBOT_NAME: Final = "holdfast"
"""Holdfast's name in robots `meta` elements and X-Robots-Tag headers."""

_DIRECTIVES_WITH_VALUE: Final = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# A URL (commas may be inside, not at its end), then a comma, or a descriptor up to the next comma outside parentheses.
_SRCSET_CANDIDATE: Final = re.compile(
    r"[\t\n\f\r ,]*+([^\t\n\f\r ]*[^\t\n\f\r ,])(?:,|[^,(]*+(?:\([^)]*+\)?+[^,(]*+)*+)"
)
_DESCRIPTOR: Final = re.compile(r"([0-9]+)w|([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)x")
_MAX_DESCRIPTOR: Final = 32
"""Characters of a descriptor; a longer one is no size."""
_MAX_WIDTH: Final = 1_000_000
_WHITESPACE: Final = r"[\t\n\f\r ]*+"
_REFRESH: Final = re.compile(
    rf"{_WHITESPACE}(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[;,\t\n\f\r ]){_WHITESPACE}[;,]?+{_WHITESPACE}"
)
_URL_PREFIX: Final = re.compile(rf"url{_WHITESPACE}={_WHITESPACE}", re.IGNORECASE)
_COMMON_PREFIXES: Final = ("/", "https://", "http://")
NON_SPACE_WHITESPACE: Final = "\n\t\r\f\v\xa0"
"""White space other than the space."""
_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))


def parse_robots_directives(content: str) -> tuple[bool, bool]:
    """Return (noindex, nofollow) of a comma-separated list of directives."""
    words = {word.strip().lower() for word in content.split(",")}
    none = "none" in words
    return none or "noindex" in words, none or "nofollow" in words


def parse_x_robots_tag(header: str | None) -> tuple[bool, bool]:
    """Return (noindex, nofollow) of X-Robots-Tag. A robot's name before a colon scopes the directives after it, until the next name."""
    if not header:
        return False, False
    for_us = True
    words = []
    for piece in header.split(","):
        name, colon, rest = piece.partition(":")
        named = bool(colon) and name.strip().lower() not in _DIRECTIVES_WITH_VALUE
        if named:
            for_us = name.strip().lower() == ROBOT_NAME
        if for_us:
            words.append(rest if named else piece)
    return parse_robots_directives(",".join(words))


def clean_href(href: str | None) -> str | None:
    """Strip white space around `href`. None if it cannot be crawled: empty, only a fragment, or neither HTTP nor HTTPS."""
    if not href:
        return None
    if href.startswith(_COMMON_PREFIXES) and href[-1] > " ":  # nearly all
        return href
    if href[0] in _C0_AND_SPACE or href[-1] in _C0_AND_SPACE:
        href = href.strip(_C0_AND_SPACE)
    if not href or href[0] == "#":
        return None
    if ":" in href[:16] and (scheme := _SCHEME.match(href)) and scheme[1].lower() not in ("http", "https"):
        return None
    return href


def parse_srcset(value: str) -> list[str]:
    """Return the URLs of a srcset. Commas separate them, but may also be inside a URL if no white space follows."""
    return _SRCSET_CANDIDATE.findall(value)


class Candidate(NamedTuple):
    """A valid candidate of a srcset."""

    href: str
    width: int
    """Of its descriptor (`800w`); 0: it has none."""
    density: float
    """Of its descriptor (`2x`), 1 without any; 0: it has a width."""


def srcset_candidates(value: str) -> list[Candidate]:
    """Return the candidates of a srcset whose descriptors are valid: a width, a density or none, perhaps with a height."""
    found = []
    for match in _SRCSET_CANDIDATE.finditer(value):
        rest = value[match.end(1) : match.end()].strip("\t\n\f\r ,")
        if not rest:
            found.append(Candidate(match[1], 0, 1.0))
            continue
        words = rest[: 2 * _MAX_DESCRIPTOR].split()
        kept = [word for word in words if not (word[-1] == "h" and word[:-1].isascii() and word[:-1].isdigit())]
        if len(kept) == 1 and len(kept[0]) <= _MAX_DESCRIPTOR and (size := _DESCRIPTOR.fullmatch(kept[0])):
            width = min(int(size[1]), _MAX_WIDTH) if size[1] else 0
            density = 0.0 if size[1] else float(size[2])
            if width or density:
                found.append(Candidate(match[1], width, density))
    return found


def collapse_whitespace(text: str) -> str:
    """Replace each run of white space by one space, and strip the ends. Two to four times as fast as split and join."""
    for character in NON_SPACE_WHITESPACE:
        if character in text:
            text = text.replace(character, " ")
    before = len(text) + 1
    while len(text) < before:  # checking `"  " in text` first costs as much as replacing
        before = len(text)
        text = text.replace("  ", " ")
    return text.strip(" ")


def unique_hrefs(hrefs: Iterable[str | None]) -> list[str]:
    """Clean `hrefs` and drop duplicates, in order; those that cannot be crawled are left out."""
    return list(dict.fromkeys(cleaned for href in hrefs if (cleaned := clean_href(href))))


def parse_meta_refresh(content: str) -> str | None:
    """Return the target in the content of a `meta` refresh, as WHATWG defines it. None if there is none: the page reloads itself.

    `5; url=/x`, `0,URL='/x'`, `5 /x` and `0;/x` all mean /x.
    """
    found = _REFRESH.match(content)
    if found is None:
        return None
    href = content[found.end() :]
    if named := _URL_PREFIX.match(href):
        href = href[named.end() :]
        if href[:1] in ("'", '"'):
            href = href[1:].partition(href[0])[0]
    return clean_href(href)


class Links(NamedTuple):
    """The links of a page, limited and deduplicated."""

    kept: list[str]
    cut: int
    nofollow: list[str]
    """All hrefs with rel=nofollow."""
    next: list[str]
    """Hrefs with rel=next."""
    seen: set[str]
    """All hrefs without rel=nofollow, as written."""

    def found(self, *others: Iterable[str]) -> int:
        """Count the distinct hrefs of these links and `others`, including those over the limit."""
        more = set(self.nofollow).union(*others)
        return len(self.kept) + self.cut + (len(more - self.seen) if more else 0)


def select_links(found: Iterable[tuple[str, str | None]], limit: int) -> Links:
    """Select the first `limit` links of `found` (href, rel) without nofollow. Links that differ only in the fragment count once."""
    seen: set[str] = set()
    kept: list[str] = []
    nofollow: list[str] = []
    next_pages: list[str] = []
    cut = 0
    for href, rel in found:
        if rel:
            words = rel.lower().split()
            if "nofollow" in words:
                nofollow.append(href)
                continue
            if "next" in words:
                next_pages.append(href)
        if href in seen:
            continue
        seen.add(href)
        if href[0] == "/" and href[-1] > " " and "#" not in href:  # nearly all; clean_href would say the same
            link = href
        else:
            cleaned = clean_href(href)
            if cleaned is None:
                continue
            link = cleaned
            page = link.partition("#")[0]
            if page != href and page in seen:
                continue
            seen.add(page)
        if len(kept) < limit:
            kept.append(link)
        else:
            cut += 1
    return Links(kept, cut, unique_hrefs(nofollow), unique_hrefs(next_pages), seen)
