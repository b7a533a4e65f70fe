"""The child process that decodes images: `python -m holdfast.parse.image_child`.

Owns decoding, by Pillow. The rule: only the decoder of the sniffed format is tried, sizes are read before pixels, and one frame is
decoded; `parse/child_loop` limits time and memory.
"""

import base64
import io
import warnings
from contextlib import suppress
from typing import Any, Final, NamedTuple

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from holdfast.model.image import THUMBNAIL_SIZE, ImageProblem, to_signed
from holdfast.parse.child_loop import serve
from holdfast.parse.priority import lower_priority

NICE: Final = 10
"""The niceness of the process, so that fetching goes first."""
MEMORY_LIMIT: Final = 1536 << 20
"""Bytes of address space: an image of 100 megapixels has 400 MB, twice where the decoder has a buffer of its own."""
_PLUGINS: Final = (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
"""Imported for the formats that they register."""
_HASH_SIZE: Final = (9, 8)
_DRAFT_SIZE: Final = (72, 64)
"""Pixels to which a JPEG may be scaled while it is decoded, for its hash."""
_MIN_CONTRAST: Final = 8
"""Levels of grey, of 256, between the darkest and the brightest of the 72 values; an evener image has no hash."""
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})
"""Values of the EXIF orientation that exchange width and height."""
_ORIENTATION: Final = 0x0112
_DAMAGED: Final = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ZeroDivisionError,
)
"""What Pillow raises for images that cannot be decoded. Every other exception fails the request, too."""


class _Refused(Exception):
    """The image is refused."""

    def __init__(self, problem: ImageProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail


class _Limits(NamedTuple):
    pixels: int
    frames: int


def main() -> None:
    """Serve requests. Before: nothing. After: standard input has ended, and with it this process."""
    lower_priority(NICE)
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    serve(handle, memory=MEMORY_LIMIT)


def handle(body: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """Check an image, or make its thumbnail."""
    limits = _Limits(request["pixels"], request["frames"])
    try:
        if request["do"] == "thumbnail":
            return {"webp": base64.b64encode(thumbnail(body, request["format"], limits)).decode()}
        return check(body, request["format"], limits)
    except _Refused as refused:
        return {"problem": str(refused.problem), "detail": refused.detail}
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        detail = f"it holds an image of more pixels than images.max_pixels allows ({limits.pixels:,})"
        return {"problem": str(ImageProblem.TOO_LARGE), "detail": detail}
    except MemoryError:
        return {"problem": str(ImageProblem.TOO_COSTLY), "detail": "decoding it needs too much memory"}
    except _DAMAGED as problem:
        return {"problem": str(ImageProblem.DAMAGED), "detail": _said(problem)}


def check(body: bytes, name: str, limits: _Limits) -> dict[str, Any]:
    """Return width, height, frames and hash of an image. Raises `_Refused`, and what Pillow raises."""
    image = _open(body, name, limits)
    frames = _count_frames(image, body, name, limits)
    orientation = _orientation(image)
    image.draft("L" if image.mode in ("L", "RGB") else image.mode, _DRAFT_SIZE)  # only JPEG can
    # Read before the draft changes it; an icon has its true size only when it is loaded.
    width, height = _size(body, name, limits) if name == "jpeg" else image.size
    image.load()
    if name == "ico":
        width, height = image.size
    _check_pixels(width, height, limits)
    dhash = difference_hash(image, orientation) if width >= _HASH_SIZE[0] and height >= _HASH_SIZE[1] else None
    if orientation in _SIDEWAYS:
        width, height = height, width
    return {"width": width, "height": height, "frames": frames, "dhash": dhash}


def difference_hash(image: Image.Image, orientation: int = 1) -> int | None:
    """Return the difference hash of a loaded image: for each of 8 x 8 places, whether the grey to the right of it is brighter.

    A bit of 64, the first place first. The image is shrunk to 9 x 8 by averaging, then turned as `orientation` says. Transparency is
    white. None: the image is too even.
    """
    grey = _to_grey(image)
    size = _HASH_SIZE[::-1] if orientation in _SIDEWAYS else _HASH_SIZE
    small = grey.resize(size, Image.Resampling.BOX)
    transposition = _TRANSPOSITIONS.get(orientation)
    if transposition is not None:
        small = small.transpose(transposition)
    values = small.tobytes()
    if max(values) - min(values) < _MIN_CONTRAST:
        return None
    columns = _HASH_SIZE[0]
    number = 0
    for place in range(len(values)):
        if place % columns != columns - 1:
            number = number << 1 | (values[place] < values[place + 1])
    return to_signed(number)


_TRANSPOSITIONS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF orientation."""


def thumbnail(body: bytes, name: str, limits: _Limits) -> bytes:
    """Return a thumbnail as WebP, of the first frame, without metadata."""
    image = _open(body, name, limits)
    orientation = _orientation(image)
    image.draft("RGB" if image.mode in ("L", "RGB") else image.mode, (2 * THUMBNAIL_SIZE, 2 * THUMBNAIL_SIZE))
    image.load()
    small = _eight_bits(image)
    small = small.convert("RGBA" if _has_transparency(small) else "RGB")
    small.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE), Image.Resampling.BICUBIC)
    transposition = _TRANSPOSITIONS.get(orientation)
    if transposition is not None:
        small = small.transpose(transposition)
    output = io.BytesIO()
    small.save(output, "WEBP", quality=80, method=2, exif=b"", icc_profile=b"")
    return output.getvalue()


def _open(body: bytes, name: str, limits: _Limits) -> Image.Image:
    """Read the head of an image. Raises `_Refused` if it has too many pixels."""
    Image.MAX_IMAGE_PIXELS = limits.pixels if name == "ico" else None  # it holds a PNG, which is decoded here
    image = Image.open(io.BytesIO(body), formats=(name.upper(),))
    _check_pixels(*image.size, limits)
    return image


def _size(body: bytes, name: str, limits: _Limits) -> tuple[int, int]:
    return _open(body, name, limits).size


def _check_pixels(width: int, height: int, limits: _Limits) -> None:
    if width < 1 or height < 1:
        raise _Refused(ImageProblem.DAMAGED, "it has no pixels")
    if width * height > limits.pixels:
        detail = f"it has {width:,} x {height:,} pixels; images.max_pixels allows {limits.pixels:,}"
        raise _Refused(ImageProblem.TOO_LARGE, detail)


def _count_frames(image: Image.Image, body: bytes, name: str, limits: _Limits) -> int:
    if name == "gif":
        frames = _gif_frames(body, limits.frames + 1)
    elif name in ("jpeg", "ico", "bmp"):  # a JPEG with further pictures shows the first
        frames = 1
    elif name == "tiff":
        frames = _tiff_pages(image, limits.frames + 1)
    else:
        frames = getattr(image, "n_frames", 1)
    if frames > limits.frames:
        raise _Refused(
            ImageProblem.TOO_LARGE, f"it has more than {limits.frames:,} frames, which images.max_frames allows"
        )
    return max(frames, 1)


def _gif_frames(body: bytes, limit: int) -> int:
    """Count the frames of a GIF up to `limit`, by its blocks."""
    at = 13 + (3 << (body[10] & 7) + 1 if len(body) > 10 and body[10] & 0x80 else 0)
    frames = 0
    while at < len(body) and frames < limit:
        kind = body[at]
        if kind == 0x21:
            at += 2
        elif kind == 0x2C and at + 9 < len(body):
            frames += 1
            at += 11 + (3 << (body[at + 9] & 7) + 1 if body[at + 9] & 0x80 else 0)
        else:
            break
        while at < len(body) and body[at]:
            at += body[at] + 1
        at += 1
    return frames


def _tiff_pages(image: Image.Image, limit: int) -> int:
    """Count the pages of a TIFF up to `limit`. After: the first page is the present one."""
    pages = 1
    with suppress(EOFError):
        while pages < limit:
            image.seek(pages)
            pages += 1
    image.seek(0)
    return pages


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 if it has none or a broken one."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 — broken metadata is no reason to refuse an image
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _to_grey(image: Image.Image) -> Image.Image:
    """The image in 8-bit grey; transparent parts are white."""
    image = _eight_bits(image)
    if not _has_transparency(image):
        return image if image.mode == "L" else image.convert("L")
    with_alpha = image.convert("RGBA") if image.mode not in ("LA", "RGBA") else image
    white = Image.new("L", image.size, 255)
    white.paste(with_alpha.convert("L"), mask=with_alpha.getchannel("A"))
    return white


def _has_transparency(image: Image.Image) -> bool:
    return image.mode in ("LA", "RGBA", "PA", "La", "RGBa") or "transparency" in image.info


def _eight_bits(image: Image.Image) -> Image.Image:
    """An image of 16 or 32 bits in 8: 16 bits by their range, others from their darkest to their brightest."""
    if image.mode.startswith("I;16"):
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.mode in ("I", "F"):
        low, high = image.getextrema()
        if not isinstance(low, int | float) or not isinstance(high, int | float) or not high > low:
            return Image.new("L", image.size)
        scale = 255 / (high - low)
        return image.point(lambda value: value * scale + -low * scale).convert("L")
    return image


def _said(problem: BaseException) -> str:
    """What Pillow says of a damaged image, as a clause."""
    text = " ".join(str(problem).split())[:200]
    if isinstance(problem, OSError) and "cannot identify" in text:
        return "it is not what its first bytes say"
    return f"it cannot be decoded: {text or type(problem).__name__}"


if __name__ == "__main__":
    main()
