"""The images of a site: their URLs, and the elements of pages that show them.

The rule: image 2m of a site is the plain one of motif m, and 2m + 1 is of another kind (`Site.image_kinds`); with no other kinds, image m
is the plain one of motif m. An element names the image at its largest; the other candidates are small images that no crawler needs.
"""

from enum import StrEnum
from typing import Final

from holdfast.testing.simweb.spec import Address, ImageKind, Site, Web
from holdfast.testing.simweb.url_names import draw, name_of

SMALL: Final = "small"
"""The kind, in a path, of a smaller candidate."""
TARGET: Final = "target"
"""The kind, in a path, of the target of a redirect."""
REDIRECTED: Final = frozenset({ImageKind.MOVED, ImageKind.AWAY})
_EXTENSIONS: Final = {
    ImageKind.RECODED: "bmp",
    ImageKind.VECTOR: "svg",
    ImageKind.FRAMES: "gif",
}
_PLACEHOLDER: Final = "data:image/gif;base64,R0lGODlhAQABAAAAACw="


class Embedding(StrEnum):
    """The way in which a page shows an image."""

    IMG = "img"
    WIDTHS = "widths"
    """A srcset with widths."""
    DENSITIES = "densities"
    """A srcset with densities."""
    PICTURE = "picture"
    LAZY = "lazy"
    """An attribute of a lazy loader."""
    NOSCRIPT = "noscript"
    OG_IMAGE = "og:image"
    JSON_LD = "json-ld"


_EMBEDDINGS: Final = tuple(Embedding)
_WITH_SMALL: Final = frozenset({Embedding.WIDTHS, Embedding.DENSITIES, Embedding.PICTURE})
_IN_HEAD: Final = frozenset({Embedding.OG_IMAGE, Embedding.JSON_LD})


def count(site: Site) -> int:
    """The number of images of a site."""
    return site.gallery * (2 if site.image_kinds else 1) if site.images else 0


def kind_of(site: Site, image: int) -> tuple[ImageKind, int]:
    """The kind and the motif of an image."""
    if not site.image_kinds:
        return ImageKind.PLAIN, image
    motif = image // 2
    return (site.image_kinds[motif % len(site.image_kinds)] if image % 2 else ImageKind.PLAIN), motif


def images_of_page(site: Site, i: int) -> list[int]:
    """The images that page *i* shows, each once: one that all pages show, and the others in turn. Alone, the images take turns."""
    known = count(site)
    if not known:
        return []
    if site.images == 1 or known == 1:
        return [i % known]
    others = min(site.images, known) - 1
    return [0, *(1 + (i * others + k) % (known - 1) for k in range(others))]


def image_host(web: Web, number: int) -> int:
    """The number of the site that serves the images of a site."""
    host = web.site(number).image_host
    return number if host is None else host


def path_of_image(number: int, kind: str, motif: int) -> str:
    """The path of an image of site *number*; *kind* is an ImageKind, SMALL or TARGET."""
    folder = "/private/img" if kind == ImageKind.PRIVATE else "/img"
    extension = _EXTENSIONS.get(ImageKind(kind), "png") if kind not in (SMALL, TARGET) else "png"
    return f"{folder}/{kind}/{number}/{name_of(motif)}.{extension}"


def embedding_of(web: Web, number: int, i: int, image: int) -> Embedding:
    """The way in which page *i* shows an image."""
    return _EMBEDDINGS[draw(web.seed, number, "embedding", f"{i}/{image}") % len(_EMBEDDINGS)]


def candidates(web: Web, number: int, i: int) -> int:
    """The number of different URLs of images in the elements of page *i*, without those in JSON-LD."""
    ways = [embedding_of(web, number, i, image) for image in images_of_page(web.site(number), i)]
    return sum(0 if way is Embedding.JSON_LD else 2 if way in _WITH_SMALL else 1 for way in ways)


def elements(web: Web, number: int, i: int, address: Address) -> tuple[str, str]:
    """The elements that show the images of page *i*: those of the head, and those of the body."""
    site = web.site(number)
    origin = "" if site.image_host is None else address.origin(site.image_host)
    head: list[str] = []
    body: list[str] = []
    for image in images_of_page(site, i):
        kind, motif = kind_of(site, image)
        url = origin + path_of_image(number, kind, motif)
        small = origin + path_of_image(number, SMALL, motif)
        way = embedding_of(web, number, i, image)
        # A small candidate is named by its image, so that two images of a motif on one page have one each.
        (head if way in _IN_HEAD else body).append(_element(way, url, f"{small}?{kind}", f"{kind} picture {motif}"))
    return "".join(head), "".join(body)


def _element(way: Embedding, url: str, small: str, alt: str) -> str:
    match way:
        case Embedding.IMG:
            return f'<img src="{url}" alt="{alt}">'
        case Embedding.WIDTHS:
            return f'<img src="{small}" srcset="{small} 9w, {url} 36w" alt="{alt}">'
        case Embedding.DENSITIES:
            return f'<img src="{small}" srcset="{small} 1x, {url} 2x" alt="{alt}">'
        case Embedding.PICTURE:
            return f'<picture><source srcset="{url} 36w"><img src="{small}" alt="{alt}"></picture>'
        case Embedding.LAZY:
            return f'<img src="{_PLACEHOLDER}" data-src="{url}" alt="{alt}">'
        case Embedding.NOSCRIPT:
            return f'<noscript><img src="{url}" alt="{alt}"></noscript>'
        case Embedding.OG_IMAGE:
            return f'<meta property="og:image" content="{url}"><meta property="og:image:alt" content="{alt}">'
        case Embedding.JSON_LD:
            return f'<script type="application/ld+json">{{"@type":"Article","image":["{url}"]}}</script>'
