"""The image checker: what an image is by its bytes, decided in child processes that are killed when it takes too long.

Owns the processes. The rule: `ImageChecker.check` returns for every body, within its deadline once it is its turn; nothing is decoded in
this process. `sniff` and the limits are here, decoding is in `parse/image_child`.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.model.image import FORMATS, ImageFacts, ImageProblem
from holdfast.parse.child_process import ChildProcess

MAX_SVG_BYTES: Final = 5_000_000
_SVG_HEAD: Final = 65_536
"""Bytes in which the root element of an SVG must begin."""
_HASH_INLINE: Final = 1 << 20
"""Bytes up to which a body is hashed on the event loop."""
_LENGTH: Final = r"\s*([0-9]{1,7}(?:\.[0-9]{0,6})?)\s*([a-z%]{0,4})\s*"
_SVG_START: Final = re.compile(
    r"\s*(?:<\?xml[^>]{0,500}\?>\s*)?(?:<!--(?:[^-]|-(?!->))*+-->\s*|<!DOCTYPE\s+(?:svg:)?svg\b[^\[>]{0,1000}(?:\[[^\]]{0,20000}\]\s*)?>\s*)*+"
    r"<(?:[a-zA-Z_][\w.-]{0,30}:)?svg(?=[\s/>])([^>]{0,20000})>"
)
_ATTRIBUTE: Final = re.compile(r"(?:^|\s)(width|height|viewBox)\s*=\s*(?:\"([^\"]{0,200})\"|'([^']{0,200})')")
_UNITS: Final = {"": 1.0, "px": 1.0, "pt": 96 / 72, "pc": 16.0, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0}
_MAX_SVG_SIDE: Final = 1_000_000
_AVIF_BRANDS: Final = (b"avif", b"avis")
_OTHER_FORMATS: Final = {
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"mif1": "HEIF",
    b"jxl ": "JPEG XL",
    b"qt  ": "QuickTime video",
    b"isom": "MP4 video",
    b"mp42": "MP4 video",
}


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What an image may have at most."""

    size: int = 20_000_000
    """Bytes."""
    pixels: int = 100_000_000
    """Of a frame."""
    frames: int = 2000


def sniff(body: bytes) -> str | None:
    """Return the format that the first bytes say, a name in `FORMATS`; None if it is none of them."""
    if body.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if body.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if body.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return "webp"
    if body[4:8] == b"ftyp":
        brands = [body[8:12], *(body[at : at + 4] for at in range(16, min(int.from_bytes(body[:4]), 80), 4))]
        return "avif" if any(brand in _AVIF_BRANDS for brand in brands) else None
    if body.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "tiff"
    if body.startswith(b"BM") and len(body) > 26 and body[6:10] == bytes(4):
        return "bmp"
    if body.startswith(b"\0\0\x01\0") and len(body) > 22 and body[4] and body[5] == 0:
        return "ico"
    return "svg" if _svg_root(body) is not None else None


def svg_size(body: bytes) -> tuple[int | None, int | None]:
    """Return width and height of an SVG in pixels, from the attributes of its root; None where they do not say it."""
    attributes = {name: double or single for name, double, single in _ATTRIBUTE.findall(_svg_root(body) or "")}
    width, height = _pixels(attributes.get("width")), _pixels(attributes.get("height"))
    if width is None and height is None:
        box = re.split(r"[\s,]+", attributes.get("viewBox", "").strip())
        if len(box) == 4:
            width, height = _pixels(box[2]), _pixels(box[3])
    return width, height


def _svg_root(body: bytes) -> str | None:
    """The attributes of the root of an SVG, as text; None if the body is none. Read by a pattern, as XML has entities."""
    head = body[:_SVG_HEAD]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = head.decode("utf-16", "replace")
    else:
        if b"svg" not in head or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"<":
            return None
        text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    found = _SVG_START.match(text)
    return found[1] if found else None


def _pixels(length: str | None) -> int | None:
    found = re.fullmatch(_LENGTH, length) if length else None
    if found is None or found[2] not in _UNITS:
        return None
    pixels = round(float(found[1]) * _UNITS[found[2]])
    return pixels if 0 < pixels <= _MAX_SVG_SIDE else None


class ImageChecker:
    """Checks images, for one event loop, in at most `processes` child processes; each is started when it is needed."""

    def __init__(self, limits: ImageLimits, *, deadline: float = 10.0, processes: int = 1) -> None:
        self._limits = limits
        self._processes = [ChildProcess("holdfast.parse.image_child", deadline, "decoder") for _ in range(processes)]
        self._next = 0

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [process.pid for process in self._processes if process.pid is not None]

    async def check(self, body: bytes, *, before_waiting: Callable[[], None] | None = None) -> ImageFacts:
        """Return the facts of an image; `problem` says why it is refused. `before_waiting` is called before the call waits for a child.

        What is no image, or has too many bytes, needs no process.
        """
        facts = ImageFacts(await self._hash(body), len(body))
        if len(body) > self._limits.size:
            why = f"it has {len(body):,} bytes; images.max_bytes allows {self._limits.size:,}"
            return replace(facts, problem=ImageProblem.TOO_LARGE, detail=why)
        name = sniff(body)
        if name is None:
            return replace(facts, problem=ImageProblem.NOT_AN_IMAGE, detail=_what_it_is(body))
        if name == "svg":
            if len(body) > MAX_SVG_BYTES:
                why = f"it is an SVG of {len(body):,} bytes; {MAX_SVG_BYTES:,} are allowed"
                return replace(facts, format=name, problem=ImageProblem.TOO_LARGE, detail=why)
            width, height = svg_size(body)
            return replace(facts, format=name, width=width, height=height)
        if before_waiting is not None:
            before_waiting()
        reply = await self._ask(body, {"do": "check", "format": name})
        if isinstance(reply, str):
            return replace(facts, format=name, problem=ImageProblem.TOO_COSTLY, detail=reply)
        problem = reply.pop("problem", None)
        return replace(facts, format=name, **reply, problem=ImageProblem(problem) if problem else None)

    async def thumbnail(self, body: bytes) -> bytes | None:
        """Return a thumbnail as WebP, or None if the image cannot be decoded, or is an SVG, which is not rendered."""
        name = sniff(body) if len(body) <= self._limits.size else None
        if name in (None, "svg"):
            return None
        reply = await self._ask(body, {"do": "thumbnail", "format": name})
        return base64.b64decode(reply["webp"]) if isinstance(reply, dict) and "webp" in reply else None

    async def aclose(self) -> None:
        """Before: nothing. After: all child processes are gone."""
        for process in self._processes:
            await process.aclose()

    async def _ask(self, body: bytes, request: dict[str, Any]) -> dict[str, Any] | str:
        limits = {"pixels": self._limits.pixels, "frames": self._limits.frames}
        return await self._choose().ask(body, request | limits)

    def _choose(self) -> ChildProcess:
        """An idle process, the first of them, so that no more are started than are needed; else the next in turn."""
        idle = next((process for process in self._processes if not process.is_busy), None)
        if idle is not None:
            return idle
        self._next = (self._next + 1) % len(self._processes)
        return self._processes[self._next]

    async def _hash(self, body: bytes) -> bytes:
        if len(body) <= _HASH_INLINE:
            return hashlib.sha256(body).digest()
        return await asyncio.to_thread(lambda: hashlib.sha256(body).digest())


def _what_it_is(body: bytes) -> str:
    """A clause that says what the bytes are instead of an image."""
    if not body:
        return "it is empty"
    if body[4:8] == b"ftyp" and (name := _OTHER_FORMATS.get(body[8:12])):
        return f"it is {name}, which is not stored"
    start = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "it is an HTML page"
    known = ", ".join(sorted(name.upper() for name in FORMATS))
    return f"its bytes begin like none of {known}"
