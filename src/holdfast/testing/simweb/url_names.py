"""Paths of pages, and reproducible pseudo-random numbers.

The rule: both are functions of (seed, site, number). Page 0 is "/", page 123 is "/garden/ghd": letters, not digits, because a crawler may
rightly take a site whose URLs differ only in numbers for a trap.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b, shake_128
from typing import Final

TOPICS: Final = (
    "garden", "harbor", "market", "museum", "orchard", "railway", "library", "theater",
    "bakery", "forest", "island", "castle", "valley", "bridge", "meadow", "temple",
)  # fmt: skip
LETTERS: Final = "bcdfghjklmnpqrstvwxz"
_DIGITS: Final = {letter: value for value, letter in enumerate(LETTERS)}
_MAX_CHARACTERS: Final = 12


def name_of(number: int) -> str:
    """Encode *number* in letters."""
    name = ""
    while True:
        number, digit = divmod(number, 20)
        name = LETTERS[digit] + name
        if not number:
            return name


def number_of(name: str) -> int | None:
    """Decode *name*; None if it is not a valid name."""
    if not name or len(name) > _MAX_CHARACTERS or (name[0] == LETTERS[0] and len(name) > 1):
        return None
    number = 0
    for letter in name:
        value = _DIGITS.get(letter)
        if value is None:
            return None
        number = number * 20 + value
    return number


def path_of(number: int) -> str:
    """The path of page *number*."""
    return f"/{TOPICS[number % 16]}/{name_of(number)}" if number else "/"


def page_of(path: str) -> int | None:
    """The number of the page at *path*; None if it is not a valid path."""
    if path == "/":
        return 0
    topic, _, name = path[1:].partition("/")
    number = number_of(name)
    return number if number and path[:1] == "/" and TOPICS[number % 16] == topic else None


def draw(seed: int, site: int, about: str, number: int | str = 0) -> int:
    """64 pseudo-random bits, always the same for the same arguments."""
    return int.from_bytes(blake2b(f"{seed}/{site}/{about}/{number}".encode(), digest_size=8).digest(), "big")


def chance(seed: int, site: int, about: str, number: int | str = 0) -> float:
    """A pseudo-random number from 0 to below 1, always the same for the same arguments."""
    return draw(seed, site, about, number) / 2**64


def draws(seed: int, site: int, about: str, number: int, count: int) -> Sequence[int]:
    """*count* pseudo-random numbers of 32 bits, for the cost of one hash."""
    drawn = shake_128(f"{seed}/{site}/{about}/{number}".encode()).digest(4 * count)
    return struct.unpack(f">{count}I", drawn)
