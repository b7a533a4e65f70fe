"""The bytes of simulated images, written by hand: PNG, BMP, GIF and SVG.

The rule: a motif is 9 x 8 squares of grey, so that a difference hash of 64 bits (one for each pair of neighbours in a row) is known without
decoding; every size and format of a motif has the same hash, except `marked`, which differs in one bit.
"""

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_128
from typing import Final

COLUMNS: Final = 9
ROWS: Final = 8
SIDE: Final = 4
"""Pixels of a square of the plain image."""
MAX_FRAMES: Final = 2000
_VAST_SIDE: Final = 16_000
_DARKEST: Final = 1
_LEVELS: Final = 254

Motif = tuple[bytes, ...]
"""The levels of grey of each row, from 1 to 254."""


def motif(name: str) -> Motif:
    """The motif of that name: pseudo-random levels of grey."""
    drawn = shake_128(name.encode()).digest(COLUMNS * ROWS)
    levels = bytes(_DARKEST + level % _LEVELS for level in drawn)
    return tuple(levels[at : at + COLUMNS] for at in range(0, len(levels), COLUMNS))


def marked(squares: Motif) -> Motif:
    """The motif with another first square: brighter than its neighbour if it was darker, and darker if it was not."""
    first, *others = squares
    level = first[1] if first[0] < first[1] else first[1] - 1
    return (bytes([level]) + first[1:], *others)


def png(squares: Motif, side: int = SIDE) -> bytes:
    """A grey PNG, with squares of `side` pixels."""
    rows = b"".join((b"\0" + row) * side for row in _pixels(squares, side))
    return _png(COLUMNS * side, ROWS * side, 8, zlib.compress(rows))


def bmp(squares: Motif, side: int = SIDE) -> bytes:
    """The same pixels as `png`, as a BMP of 24 bits."""
    width, height = COLUMNS * side, ROWS * side
    padding = bytes(-3 * width % 4)
    lines = [bytes(level for level in row for _ in range(3)) + padding for row in _pixels(squares, side)]
    body = b"".join(line * side for line in reversed(lines))  # from the last row to the first
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(body), 0, 0, 14 + len(head)) + head + body


def svg(name: str) -> bytes:
    """An SVG with that name on it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * SIDE}" height="{ROWS * SIDE}"><text y="16">{name}</text></svg>'
    ).encode()


@lru_cache(maxsize=1)
def vast() -> bytes:
    """A complete PNG of 16 000 x 16 000 black pixels, in 33 KB."""
    row = bytes(1 + _VAST_SIDE // 8)
    compressor = zlib.compressobj(9)
    data = b"".join(compressor.compress(row) for _ in range(_VAST_SIDE)) + compressor.flush()
    return _png(_VAST_SIDE, _VAST_SIDE, 1, data)


@lru_cache(maxsize=1)
def too_many_frames() -> bytes:
    """A GIF of one pixel with 2001 frames."""
    frame = b"\x2c" + bytes(4) + b"\1\0\1\0\0" + b"\2\2\x4c\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0" + b"\0\0\0\xff\xff\xff" + frame * (MAX_FRAMES + 1) + b";"


def _pixels(squares: Motif, side: int) -> Sequence[bytes]:
    """One row of pixels for each row of squares."""
    return [bytes(level for level in row for _ in range(side)) for row in squares]


def _png(width: int, height: int, depth: int, data: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
