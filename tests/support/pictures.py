"""Images for tests, made from a seed: photographs (smooth shapes), and hostile files."""

import io
import random
import struct
import zlib
from typing import Any

from PIL import Image, ImageDraw, ImageFilter


def photo(seed: int, size: tuple[int, int] = (320, 240), mode: str = "RGB") -> Image.Image:
    """A picture of smooth shapes, the same for the same seed at every size."""
    draw_from = random.Random(seed)
    image = Image.new("RGB", (320, 240), tuple(draw_from.randrange(256) for _ in range(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, radius = draw_from.randrange(320), draw_from.randrange(240), draw_from.randrange(20, 90)
        color = tuple(draw_from.randrange(256) for _ in range(3))
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)
    return image.filter(ImageFilter.GaussianBlur(6)).resize(size, Image.Resampling.LANCZOS).convert(mode)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of an image."""
    output = io.BytesIO()
    image.save(output, kind, **options)
    return output.getvalue()


def jpeg(seed: int = 1, size: tuple[int, int] = (320, 240), **options: Any) -> bytes:
    """A photograph as JPEG."""
    return encoded(photo(seed, size), "JPEG", **options)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bomb(width: int, height: int, *, rows: int | None = None) -> bytes:
    """A PNG of one colour of that size, with the pixels of `rows` rows (None: all), which compress a thousand to one."""
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    compressor = zlib.compressobj(9)
    row = b"\0" * (1 + 3 * width)
    data = b"".join(compressor.compress(row) for _ in range(height if rows is None else rows)) + compressor.flush()
    return b"\x89PNG\r\n\x1a\n" + head + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def gif(frames: int, size: tuple[int, int] = (16, 16)) -> bytes:
    """An animated GIF."""
    first, *rest = [photo(seed, size) for seed in range(frames)]
    return encoded(first, "GIF", save_all=True, append_images=rest, duration=50)


def gif_bomb(frames: int) -> bytes:
    """A GIF with that many frames of one pixel."""
    frame = b"\x2c" + bytes(4) + b"\1\0\1\0\0" + b"\2\2\x4c\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0" + b"\0\0\0\xff\xff\xff" + frame * frames + b";"
