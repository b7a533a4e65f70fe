"""The responses to requests for images of a site.

The rule: everything follows from the seed, the site whose pages show the image, its kind and its motif; the host that serves it plays no
part.
"""

import re
from typing import Final

from holdfast.testing.simweb import image_bytes, render
from holdfast.testing.simweb.image_urls import REDIRECTED, SMALL, TARGET, image_host, path_of_image
from holdfast.testing.simweb.render import Delivery, Response, not_found
from holdfast.testing.simweb.spec import Address, ImageKind, Web
from holdfast.testing.simweb.url_names import number_of

_PATH: Final = re.compile(r"(?:/private)?/img/([a-z]+)/([0-9]{1,9})/([a-z]{1,12})\.[a-z]{3}")
_TYPES: Final = {ImageKind.RECODED: "image/bmp", ImageKind.VECTOR: "image/svg+xml", ImageKind.FRAMES: "image/gif"}
_PNG: Final = "image/png"
_STREAM: Final = bytes(65_536)


def body_of(web: Web, owner: int, kind: str, motif: int) -> bytes:
    """The bytes of an image of site *owner* that a crawl stores. Before: *kind* is that of such an image, SMALL or TARGET."""
    name = f"{web.seed}/{owner}/{motif}" + (f"/{TARGET}" if kind == TARGET else "")
    if kind == ImageKind.VECTOR:
        return image_bytes.svg(name)
    squares = image_bytes.motif(name)
    match kind:
        case ImageKind.RECODED:
            return image_bytes.bmp(squares)
        case ImageKind.RESIZED:
            return image_bytes.png(squares, 2 * image_bytes.SIDE)
        case ImageKind.MARKED:
            return image_bytes.png(image_bytes.marked(squares))
    return image_bytes.png(squares, 1 if kind == SMALL else image_bytes.SIDE)


def response(web: Web, number: int, path: str, address: Address, delay: float) -> Response | None:
    """The response of site *number* to the path of an image; None: there is no image at this path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    kind, owner, motif = found[1], int(found[2]), number_of(found[3])
    if motif is None or not _exists(web, number, kind, owner, motif) or path != path_of_image(owner, kind, motif):
        return None
    if kind in (SMALL, TARGET):
        return Response(200, body_of(web, owner, kind, motif), _PNG, delay=delay)
    return _response(web, ImageKind(kind), owner, motif, address, delay)


def _exists(web: Web, number: int, kind: str, owner: int, motif: int) -> bool:
    """Whether site *number* has this image of site *owner*."""
    if owner >= web.sites:
        return False
    site = web.site(owner)
    if not site.images or motif >= site.gallery:
        return False
    other = site.image_kinds[motif % len(site.image_kinds)] if site.image_kinds else None
    if kind == TARGET:
        return other in REDIRECTED and number == (owner if other is ImageKind.AWAY else image_host(web, owner))
    return number == image_host(web, owner) and kind in (ImageKind.PLAIN, SMALL, other)


def _response(web: Web, kind: ImageKind, owner: int, motif: int, address: Address, delay: float) -> Response:
    """The response of an image that exists and is none of SMALL and TARGET."""
    match kind:
        case ImageKind.MISSING:
            return not_found(delay)
        case ImageKind.BROKEN:
            return Response(500, b"no", "text/plain", delay=delay)
        case ImageKind.MOVED | ImageKind.AWAY:
            target = path_of_image(owner, TARGET, motif)
            origin = address.origin(owner) if kind is ImageKind.AWAY else ""
            return Response(302, headers={"Location": origin + target}, delay=delay)
        case ImageKind.PAGE:
            return Response(200, render.html("no picture", "<p>It is not here.</p>"), _PNG, delay=delay)
        case ImageKind.CUT:
            whole = body_of(web, owner, ImageKind.PLAIN, motif)
            return Response(200, whole[: len(whole) // 2], _PNG, delay=delay)
        case ImageKind.VAST:
            return Response(200, image_bytes.vast(), _PNG, delay=delay)
        case ImageKind.FRAMES:
            return Response(200, image_bytes.too_many_frames(), _TYPES[kind], delay=delay)
        case ImageKind.HEAVY:
            announced = {"Content-Length": "10000000000"}
            return Response(200, _STREAM, _PNG, announced, Delivery.ENDLESS, delay)
        case ImageKind.PACKED:
            return Response(200, render.bomb(), _PNG, {"Content-Encoding": "gzip"}, delay=delay)
    media_type = "text/html" if kind is ImageKind.MISLABELLED else _TYPES.get(kind, _PNG)
    return Response(200, body_of(web, owner, kind, motif), media_type, delay=delay)
