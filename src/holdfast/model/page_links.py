"""Links of pages, as jobs record them that ask for it: what a page links to, and what a URL led to that is no page.

The rule: the links of a page are one value, which is replaced as a whole. A target is a URL, whether it is crawled or not; its number
(`target_number`) is what it is found by.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdfast.model.outcome import Outcome
from holdfast.model.url import url_key

MAX_LINK_TEXT: Final = 200
"""Characters of the text of a link, and of its `rel`."""


class LinkKind(StrEnum):
    """The element that a link is in."""

    A = "a"
    AREA = "area"
    FRAME = "frame"
    """`frame` or `iframe`."""
    REFRESH = "refresh"
    """A `meta` refresh."""
    CANONICAL = "canonical"
    ALTERNATE = "alternate"
    NEXT = "next"
    IMAGE = "image"
    """Recorded by jobs that store images."""


class RecordedLink(NamedTuple):
    """A link of a page."""

    url: str
    """Normalized, without its fragment; as it was written, if it is no URL."""
    text: str
    rel: str
    kind: LinkKind
    nofollow: bool = False
    """The link or its page asks that it be not followed."""
    fragment: str = ""
    """The place that it names on its target."""
    valid: bool = True
    """False: it is no URL."""


@dataclass(frozen=True, slots=True)
class PageLinks:
    """The links of one page."""

    links: tuple[RecordedLink, ...]
    cut: int = 0
    """Links beyond the limit of a page (`crawl.max_links`)."""
    places: bytes | None = None
    """Hashes of the ids that links can name (`pack_places`); None: they are not known."""


@dataclass(slots=True)
class LinkFacts:
    """What a job that records links learns from a URL."""

    page: PageLinks | None = None
    """None: the answer is no page."""
    moved_to: str | None = None
    """The target of a redirect."""
    check: bool = False
    """It was only checked, for the links to it."""
    packed: bytes = b""
    """The links of the page as they are stored, once the batch writer has packed them."""


BROKEN: Final = frozenset(
    (
        *(Outcome.NOT_FOUND, Outcome.CLIENT_ERROR, Outcome.FORBIDDEN, Outcome.SERVER_ERROR, Outcome.UNAVAILABLE),
        *(Outcome.BAD_RESPONSE, Outcome.BAD_ENCODING),
        *(Outcome.DNS_FAILURE, Outcome.NO_SUCH_HOST, Outcome.CONNECTION_FAILED, Outcome.TLS_FAILURE),
        *(Outcome.TIMEOUT, Outcome.TOO_SLOW, Outcome.REDIRECT_LOOP, Outcome.TOO_MANY_REDIRECTS, Outcome.URL_REFUSED),
    )
)
"""Outcomes of targets whose links are broken. An answer to the URL of an image that is none we can store is not among them: a browser may
show it."""
REFUSED_TO_US: Final = frozenset((Outcome.LOGIN_WALL, Outcome.CAPTCHA, Outcome.RATE_LIMITED, Outcome.ADDRESS_REFUSED))
"""Outcomes that say nothing about the target: a person may see it. Listed apart, as is 403 of a target that was only checked."""
RECORDED: Final = BROKEN | REFUSED_TO_US | {Outcome.REDIRECT}
"""Outcomes that are recorded with the links."""


def is_broken(outcome: Outcome, *, check: bool) -> bool:
    """Whether a link to a target with this outcome is broken. Other sites answer crawlers with 403 that they show to people."""
    return outcome in BROKEN and not (check and outcome is Outcome.FORBIDDEN)


def target_number(url_key: bytes) -> int:
    """The number of a target: the first 64 bits of the key of its URL."""
    return int.from_bytes(url_key[:8], "big", signed=True)


def check_key(url: str) -> bytes:
    """The key of a URL in the frontier where it is only checked. The same URL may be a page of the job, under its own key."""
    return url_key(f"check:{url}")


def place_hash(place: str) -> int:
    """The hash of an id of a page."""
    return zlib.crc32(place.encode("utf-8", "replace"))


def pack_places(places: Iterable[str]) -> bytes:
    """Pack the ids of a page: their hashes, in order."""
    hashes = sorted({place_hash(place) for place in places})
    return struct.pack(f">{len(hashes)}I", *hashes)


def has_place(packed: bytes, fragment: str) -> bool:
    """Whether a page with these places has the one that a fragment names, as it is written or decoded."""
    known = set(struct.unpack(f">{len(packed) // 4}I", packed))
    return place_hash(fragment) in known or place_hash(unquote(fragment)) in known
