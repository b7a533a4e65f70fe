"""What a complete crawl that stores images must end with: image URLs, stored images, duplicates, and the yield of each domain.

The rule: an enumeration of what pages show, as `site.expected` is one of pages; nothing is fetched or decoded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from holdfast.testing.simweb.image_urls import (
    REDIRECTED,
    TARGET,
    candidates,
    image_host,
    images_of_page,
    kind_of,
    path_of_image,
)
from holdfast.testing.simweb.images import body_of
from holdfast.testing.simweb.render import special_path
from holdfast.testing.simweb.site import CLOSED_BY_ROBOTS, PARTLY_DENIED, ExpectedPage, UrlKind, expected
from holdfast.testing.simweb.spec import Address, ImageKind, SpecialUrl, Web
from holdfast.testing.simweb.url_names import chance, path_of

_NOT_STORED: Final[dict[ImageKind, tuple[int | None, UrlKind, str]]] = {
    ImageKind.MISSING: (404, UrlKind.OTHER, "not_found"),
    ImageKind.BROKEN: (500, UrlKind.FAILING, "server_error"),
    ImageKind.PAGE: (200, UrlKind.OTHER, "not_an_image"),
    ImageKind.CUT: (200, UrlKind.OTHER, "image_damaged"),
    ImageKind.VAST: (200, UrlKind.OTHER, "image_too_large"),
    ImageKind.FRAMES: (200, UrlKind.OTHER, "image_too_large"),
    ImageKind.HEAVY: (None, UrlKind.OTHER, "image_too_large"),
    ImageKind.PACKED: (200, UrlKind.OTHER, "image_too_large"),
}
"""The status, the kind of its URL, and the problem that a crawl records."""
_REDIRECT_PROBLEM: Final = "redirect"
_CONTENT: Final = frozenset({UrlKind.PAGE, UrlKind.FLAKY})


@dataclass(frozen=True, slots=True)
class ExpectedImage:
    """The URL of an image, and what a complete crawl makes of it."""

    url: str
    status: int | None
    """Status of the final response; None: it depends on the crawler."""
    kind: UrlKind
    problem: str | None = None
    """Why the URL itself led to no stored image; None: it did, or it is never requested."""
    sha256: bytes | None = None
    """The hash of the image that it leads to, also by a redirect; None: no image is stored."""
    motif: str | None = None
    """The name of what it shows: images of one motif are near duplicates. None: it has no hash that could be compared."""


@dataclass(frozen=True, slots=True)
class ExpectedDomain:
    """The images of the pages of one domain."""

    pages: int
    candidates: int
    """URLs in elements that show images, counted once a page: `images_found`."""
    hashes: frozenset[bytes]
    """Of the stored images that its pages have."""

    @property
    def image_yield(self) -> float | None:
        """Images for each page."""
        return len(self.hashes) / self.pages if self.pages else None


@dataclass(frozen=True, slots=True)
class ExpectedImages:
    """The images of a web."""

    urls: dict[str, ExpectedImage]
    domains: dict[str, ExpectedDomain]
    """By host and port."""
    places: frozenset[tuple[str, bytes]]
    """The URL of a page, and the hash of a stored image that it shows."""

    @property
    def pages(self) -> list[ExpectedPage]:
        """The image URLs in the form in which the checks of logs and stores take them."""
        return [ExpectedPage(image.url, image.status, image.kind) for image in self.urls.values()]

    @property
    def stored(self) -> set[bytes]:
        """The hashes of all images that are stored."""
        return {image.sha256 for image in self.urls.values() if image.sha256 is not None}

    @property
    def exact_duplicates(self) -> int:
        """URLs that answered with bytes which another URL has, too; the first URL of each image is none."""
        answered = [image for image in self.urls.values() if image.sha256 is not None and image.problem is None]
        return len(answered) - len(self.stored)

    @property
    def near_duplicates(self) -> int:
        """Stored images that look like an earlier one."""
        motifs = {image.sha256: image.motif for image in self.urls.values() if image.sha256 is not None and image.motif}
        return len(motifs) - len(set(motifs.values()))


def expected_images(web: Web, address: Address, sites: Iterable[int] | None = None) -> ExpectedImages:
    """The images that a complete crawl of these sites, or of all, finds and stores. Before: the sites have no traps."""
    urls: dict[str, ExpectedImage] = {}
    domains: dict[str, ExpectedDomain] = {}
    places: set[tuple[str, bytes]] = set()
    for number in range(web.sites) if sites is None else sites:
        site, origin = web.site(number), address.origin(number)
        known = {image: _images(web, number, image, address) for image in _shown(web, number)}
        urls |= {row.url: row for rows in known.values() for row in rows}
        hashes: set[bytes] = set()
        found = 0
        pages = [page for page in expected(web, number, origin) if page.kind in _CONTENT and page.status == 200]
        for url, i in _pages_with_images(web, number, origin):
            found += candidates(web, number, i)
            for image in images_of_page(site, i):
                stored = known[image][0].sha256
                if stored is not None:
                    hashes.add(stored)
                    places.add((url, stored))
        domains[address.host(number)] = ExpectedDomain(len(pages), found, frozenset(hashes))
    return ExpectedImages(urls, domains, frozenset(places))


def _shown(web: Web, number: int) -> list[int]:
    """The images that any page of a site shows."""
    site = web.site(number)
    if not _is_open(web, number):
        return []
    return sorted({image for i in range(site.pages) for image in images_of_page(site, i)})


def _pages_with_images(web: Web, number: int, origin: str) -> Iterator[tuple[str, int]]:
    """The pages that show images, with the number of the page whose images they are: the pages, and their copies."""
    site = web.site(number)
    if not site.images or not _is_open(web, number):
        return
    copies = site.odd.get(SpecialUrl.COPY, 0.0)
    for i in range(site.pages):
        yield origin + path_of(i), i
        if chance(web.seed, number, SpecialUrl.COPY, i) < copies:
            yield origin + special_path(web, number, SpecialUrl.COPY, i), i


def _is_open(web: Web, number: int) -> bool:
    site = web.site(number)
    return not site.wall and site.robots not in CLOSED_BY_ROBOTS


def _images(web: Web, number: int, image: int, address: Address) -> list[ExpectedImage]:
    """The URL of an image, and the target of its redirect if it is one."""
    kind, motif = kind_of(web.site(number), image)
    host = image_host(web, number)
    url = address.origin(host) + path_of_image(number, kind, motif)
    robots = web.site(host).robots
    if robots in CLOSED_BY_ROBOTS or (kind is ImageKind.PRIVATE and robots in PARTLY_DENIED):
        return [ExpectedImage(url, 200, UrlKind.DENIED)]
    if kind in _NOT_STORED:
        return [ExpectedImage(url, *_NOT_STORED[kind])]
    if kind in REDIRECTED:
        to = number if kind is ImageKind.AWAY else host
        target = _stored(web, number, TARGET, motif, address.origin(to))
        return [ExpectedImage(url, 302, UrlKind.REDIRECT, _REDIRECT_PROBLEM, target.sha256, target.motif), target]
    return [_stored(web, number, kind, motif, address.origin(host))]


def _stored(web: Web, number: int, kind: str, motif: int, origin: str) -> ExpectedImage:
    url = origin + path_of_image(number, kind, motif)
    digest = sha256(body_of(web, number, kind, motif)).digest()
    shows = None if kind == ImageKind.VECTOR else f"{number}/{motif}" + (f"/{TARGET}" if kind == TARGET else "")
    return ExpectedImage(url, 200, UrlKind.OTHER, sha256=digest, motif=shows)
