"""What is known of an image by its bytes: its facts, why one is refused, and which images look alike.

The rule: nothing here comes from a name or a header; an image is what its bytes are. Values, and pure functions of them.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final, NamedTuple

HASH_BITS: Final = 64
BAND_BITS: Final = (22, 21, 21)
"""The bits of a hash in each of its bands, the highest first. `image_bands` of the schema cuts likewise."""
MAX_DISTANCE: Final = 8
"""Bits: the largest distance that near duplicates may have. Of two hashes so near, one band differs by a third of it at most."""
THUMBNAIL_SIZE: Final = 256
"""Pixels of the longer side of a thumbnail."""
_MASK: Final = (1 << HASH_BITS) - 1
_KEY_SHIFT: Final = max(BAND_BITS)
_SIGN: Final = 1 << (HASH_BITS - 1)


class ImageFormat(NamedTuple):
    """A format that is stored."""

    name: str
    media_type: str
    extension: str


FORMATS: Final = {
    one.name: one
    for one in (
        ImageFormat("jpeg", "image/jpeg", "jpg"),
        ImageFormat("png", "image/png", "png"),
        ImageFormat("gif", "image/gif", "gif"),
        ImageFormat("webp", "image/webp", "webp"),
        ImageFormat("avif", "image/avif", "avif"),
        ImageFormat("bmp", "image/bmp", "bmp"),
        ImageFormat("tiff", "image/tiff", "tif"),
        ImageFormat("ico", "image/vnd.microsoft.icon", "ico"),
        ImageFormat("svg", "image/svg+xml", "svg"),
    )
}
"""By name."""


class ImageProblem(StrEnum):
    """Why an image is refused."""

    NOT_AN_IMAGE = "not_an_image"
    """The bytes are of no format that is stored."""
    TOO_LARGE = "image_too_large"
    """Too many bytes, pixels or frames."""
    DAMAGED = "image_damaged"
    """It cannot be decoded: truncated, corrupt, or not what its first bytes say."""
    TOO_COSTLY = "image_too_costly"
    """Decoding it took too long or too much memory, or killed the process."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """An image as its bytes are. With a problem it is refused, and only what was found out before is set."""

    sha256: bytes
    size: int
    """Bytes."""
    format: str | None = None
    """A name in `FORMATS`."""
    width: int | None = None
    """As displayed, after the orientation that a camera noted. None: of an SVG that does not say it. Likewise the height."""
    height: int | None = None
    frames: int = 1
    dhash: int | None = None
    """64 bits of the first frame as a signed number. None: the image is too small or too even to be compared, or is an SVG."""
    problem: ImageProblem | None = None
    detail: str = ""
    """The problem as a clause: "it has 30,000,000 bytes; images.max_bytes allows 20,000,000"."""

    @property
    def animated(self) -> bool:
        """Whether it moves. The pages of a TIFF and the sizes of an icon are no animation."""
        return self.frames > 1 and self.format not in ("tiff", "ico")

    @property
    def media_type(self) -> str | None:
        return FORMATS[self.format].media_type if self.format else None

    @property
    def extension(self) -> str | None:
        """Of its file."""
        return FORMATS[self.format].extension if self.format else None


@dataclass(frozen=True, slots=True)
class ImageLink:
    """An image on a page, found by a crawl."""

    domain_id: int
    """Of the page."""
    job_id: int
    page_key: bytes
    """The key of the page's URL; `image_key` that of the image's."""
    page_url: str
    image_key: bytes
    image_url: str
    alt: str = ""
    found_in: str = "img"
    """As in `FoundImage`."""
    discovery_type: str = "discovery"
    """The kind of the page's row in the frontier: discovery or refresh."""


@dataclass(frozen=True, slots=True)
class FetchedImage:
    """What the URL of an image led to. Its bytes are in the store of images already."""

    image_key: bytes
    image_url: str
    facts: ImageFacts | None = None
    """None: it was not fetched, or is not modified; `problem` says which."""
    file: str | None = None
    """The key of the file; None: it is not stored."""
    problem: str | None = None
    """Why it is not stored: an outcome, or an `ImageProblem`. None with no facts: it is as it was."""
    detail: str = ""
    moved_to: tuple[bytes, str] | None = None
    """The key and the URL that it was redirected to: pages that wait for it wait there."""
    store_id: str | None = None
    """The folder of the file; None: all machines see the store."""


def to_signed(number: int) -> int:
    """64 bits as the signed number that a bigint holds."""
    number &= _MASK
    return number - (1 << HASH_BITS) if number & _SIGN else number


def distance(one: int, other: int) -> int:
    """The number of bits by which two hashes differ (Hamming distance)."""
    return ((one ^ other) & _MASK).bit_count()


def look_alike(one: int | None, other: int | None, maximum: int) -> bool:
    """Whether two images are near duplicates. An image without a hash is near to none."""
    return one is not None and other is not None and distance(one, other) <= maximum


def band_keys(dhash: int) -> list[int]:
    """Return the bands of a hash as numbers: the place of the band, then its bits."""
    return _keys(_bands(dhash))


def near_keys(dhash: int, maximum: int) -> list[int]:
    """Return the keys of bands of which every hash within `maximum` bits of this one has at least one (`band_keys`).

    If the bits that differ are spread over three bands, some band has a third of them at most; so each band is varied by that many bits.
    """
    flips = maximum // len(BAND_BITS)
    keys: list[int] = []
    for place, (value, bits) in enumerate(zip(_bands(dhash), BAND_BITS, strict=True)):
        for count in range(flips + 1):
            keys += [
                place << _KEY_SHIFT | value ^ sum(1 << bit for bit in flipped)
                for flipped in combinations(range(bits), count)
            ]
    return keys


def _bands(dhash: int) -> list[int]:
    number, bands = dhash & _MASK, []
    for bits in reversed(BAND_BITS):
        bands.append(number & ((1 << bits) - 1))
        number >>= bits
    return bands[::-1]


def _keys(bands: list[int]) -> list[int]:
    return [place << _KEY_SHIFT | value for place, value in enumerate(bands)]
