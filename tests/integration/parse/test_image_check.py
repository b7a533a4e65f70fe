"""Images are checked by their bytes, in a child process, within bounds of time and memory; near duplicates have near hashes."""

import asyncio
import io
import zlib
from collections.abc import Awaitable, Callable
from functools import cache
from struct import pack

import psutil
import pytest
from PIL import Image

from holdfast.model.image import ImageFacts, ImageProblem, distance
from holdfast.parse.image_check import ImageChecker, ImageLimits
from tests.support.pictures import encoded, gif, gif_bomb, jpeg, photo, png_bomb, png_chunk

P = ImageProblem
_PNG = b"\x89PNG\r\n\x1a\n"


def run(
    test: Callable[[ImageChecker], Awaitable[None]],
    *,
    limits: ImageLimits | None = None,
    deadline: float = 60.0,
    processes: int = 1,
) -> None:
    """Run `test` with a checker, and assert that none of its processes is left."""
    pids: list[int] = []

    async def whole() -> None:
        checker = ImageChecker(limits or ImageLimits(), deadline=deadline, processes=processes)
        try:
            await test(checker)
        finally:
            pids.extend(checker.pids)
            await checker.aclose()

    asyncio.run(whole())
    assert not any(psutil.pid_exists(pid) for pid in pids)


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _with_alpha() -> Image.Image:
    image = photo(3, mode="RGBA")
    image.putalpha(128)
    return image


@cache
def good() -> dict[str, tuple[bytes, tuple[str, int | None, int | None, int, bool]]]:
    """Images, each with what is said of it."""
    sixteen_bits = Image.frombytes(
        "I;16", (64, 64), b"".join(pack("<H", (x * y * 16) % 65536) for y in range(64) for x in range(64))
    )
    return {
        "jpeg": (jpeg(), ("jpeg", 320, 240, 1, False)),
        "progressive": (jpeg(progressive=True), ("jpeg", 320, 240, 1, False)),
        "CMYK": (encoded(photo(1, mode="CMYK"), "JPEG"), ("jpeg", 320, 240, 1, False)),
        "grey": (encoded(photo(1, mode="L"), "JPEG"), ("jpeg", 320, 240, 1, False)),
        "sideways": (jpeg(exif=_exif(6)), ("jpeg", 240, 320, 1, False)),
        "broken exif": (jpeg(exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 50), ("jpeg", 320, 240, 1, False)),
        "two pictures": (
            encoded(photo(1), "MPO", save_all=True, append_images=[photo(2)]),
            ("jpeg", 320, 240, 1, False),
        ),
        "something after it": (jpeg() + b"PK\x03\x04" + bytes(1000), ("jpeg", 320, 240, 1, False)),
        "png": (encoded(photo(1), "PNG"), ("png", 320, 240, 1, False)),
        "palette": (encoded(photo(1).quantize(16), "PNG"), ("png", 320, 240, 1, False)),
        "transparent palette": (encoded(photo(1).quantize(16), "PNG", transparency=0), ("png", 320, 240, 1, False)),
        "16 bits": (encoded(sixteen_bits, "PNG"), ("png", 64, 64, 1, False)),
        "transparent": (encoded(_with_alpha(), "PNG"), ("png", 320, 240, 1, False)),
        "grey with alpha": (encoded(photo(1, mode="LA"), "PNG"), ("png", 320, 240, 1, False)),
        "one bit": (encoded(photo(1, mode="1"), "PNG"), ("png", 320, 240, 1, False)),
        "animated png": (
            encoded(photo(1), "PNG", save_all=True, append_images=[photo(2)]),
            ("png", 320, 240, 2, True),
        ),
        "one frame": (gif(1), ("gif", 16, 16, 1, False)),
        "animated gif": (gif(5), ("gif", 16, 16, 5, True)),
        "webp": (encoded(photo(1), "WEBP"), ("webp", 320, 240, 1, False)),
        "animated webp": (
            encoded(photo(1), "WEBP", save_all=True, append_images=[photo(2), photo(3)]),
            ("webp", 320, 240, 3, True),
        ),
        "avif": (encoded(photo(1, (64, 48)), "AVIF"), ("avif", 64, 48, 1, False)),
        "bmp": (encoded(photo(1), "BMP"), ("bmp", 320, 240, 1, False)),
        "tiff": (
            encoded(photo(1), "TIFF", save_all=True, append_images=[photo(2)]),
            ("tiff", 320, 240, 2, False),
        ),
        "float tiff": (encoded(photo(1, mode="F"), "TIFF"), ("tiff", 320, 240, 1, False)),
        "ico": (encoded(photo(1, (64, 64)), "ICO", sizes=[(16, 16), (64, 64)]), ("ico", 64, 64, 1, False)),
        "svg": (b"<svg xmlns='http://www.w3.org/2000/svg' width='20mm' height=\"10px\"/>", ("svg", 76, 10, 1, False)),
        "svg of a box": (
            (
                b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a > b -->\n<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'x.dtd' "
                b"[<!ENTITY a 'b'>]>\n<svg:svg viewBox='0 0 30 40.4' width='100%'>"
            ),
            ("svg", 30, 40, 1, False),
        ),
        "svg without a size": ("<svg \n>".encode("utf-16"), ("svg", None, None, 1, False)),
    }


@cache
def bad() -> dict[str, tuple[bytes, ImageProblem, str]]:
    """What is refused, as what, and a word of why. Not a constant: that costs a seventh of the collection of all tests."""
    return {
        "empty": (b"", P.NOT_AN_IMAGE, "empty"),
        "html": (b"\n<!DOCTYPE html><html><svg></svg>", P.NOT_AN_IMAGE, "an HTML page"),
        "text": (b"GIF is a format", P.NOT_AN_IMAGE, "begin like none of"),
        "heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", P.NOT_AN_IMAGE, "HEIC"),
        "svg in a comment": (b"<!-- <svg> -->", P.NOT_AN_IMAGE, "begin like none of"),
        "endless comment": (b"<!--" + b"-" * 100_000 + b"<svg>", P.NOT_AN_IMAGE, "begin like none of"),
        "huge svg": (b"<svg>" + b" " * 6_000_000, P.TOO_LARGE, "SVG of 6,000,005 bytes"),
        "too many bytes": (jpeg() + bytes(20_000_000), P.TOO_LARGE, "20,000,000"),
        "truncated jpeg": (jpeg()[:3000], P.DAMAGED, "truncated"),
        "truncated png": (encoded(photo(1), "PNG")[:3000], P.DAMAGED, "truncated"),
        "head only": (jpeg()[:3], P.DAMAGED, "not what its first bytes say"),
        "polyglot": (b"GIF89a/*<script>*/=1;" + bytes(100), P.DAMAGED, "it "),
        "html with a magic number": (_PNG + b"<html><script>alert(1)</script>", P.DAMAGED, "it "),
        # A header of 10^9 pixels with little after it, and 2 · 10^8 pixels that are all there: 600 kB unpack to 600 MB.
        "huge head": (png_bomb(50_000, 20_000, rows=1), P.TOO_LARGE, "50,000 x 20,000 pixels"),
        "huge gif": (b"GIF89a\xff\xff\xff\xff\0\0\0" + b"\x2c" + bytes(10), P.TOO_LARGE, "65,535 x 65,535 pixels"),
        "png bomb": (png_bomb(20_000, 10_000, rows=2000), P.TOO_LARGE, "pixels"),
        "png in an icon": (
            b"\0\0\1\0\1\0\1\1\0\0\1\0\x20\0"
            + pack("<II", len(png_bomb(20_000, 20_000, rows=1)), 22)
            + png_bomb(20_000, 20_000, rows=1),
            P.TOO_LARGE,
            "pixels",
        ),
        "text bomb": (
            encoded(photo(1), "PNG")[:33]
            + png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
            + encoded(photo(1), "PNG")[33:],
            P.DAMAGED,
            "too large",
        ),
        "many frames": (gif_bomb(3000), P.TOO_LARGE, "more than 2,000 frames"),
        "tiff that leads back": (b"II*\0\x08\0\0\0\0\0\x08\0\0\0", P.DAMAGED, "it "),
    }


def test_formats() -> None:
    async def test(checker: ImageChecker) -> None:
        found = {name: await checker.check(body) for name, (body, _) in good().items()}
        seen = {name: (one.format, one.width, one.height, one.frames, one.animated) for name, one in found.items()}
        assert {name: one.detail for name, one in found.items() if one.problem} == {}
        assert seen == {name: expected for name, (_, expected) in good().items()}
        without = {name for name, one in found.items() if one.dhash is None}
        assert without == {"svg", "svg of a box", "svg without a size"}
        assert (found["svg"].media_type, found["tiff"].extension) == ("image/svg+xml", "tif")

    run(test)


def test_what_is_refused() -> None:
    async def test(checker: ImageChecker) -> None:
        found = {name: await checker.check(body) for name, (body, _, _) in bad().items()}
        assert {name: one.problem for name, one in found.items()} == {name: why for name, (_, why, _) in bad().items()}
        for name, (_, _, words) in bad().items():
            assert words in found[name].detail, name
        # None of them cost the process.
        assert (await checker.check(jpeg())).problem is None
        assert len(checker.pids) == 1
        assert psutil.Process(checker.pids[0]).memory_info().rss < 300 << 20

    run(test)


def test_decoding_is_bounded_in_time_and_memory() -> None:
    async def test(checker: ImageChecker) -> None:
        assert (await checker.check(jpeg())).problem is None
        (before,) = checker.pids
        slow = await checker.check(png_bomb(9000, 9000))
        assert (slow.problem, slow.detail) == (P.TOO_COSTLY, "the decoder did not finish within 0.3 s")
        assert checker.pids == []
        assert (await checker.check(jpeg())).problem is None
        assert checker.pids != [before]

    run(test, deadline=0.3)

    async def hungry(checker: ImageChecker) -> None:
        found = await checker.check(png_bomb(30_000, 30_000, rows=1))
        assert found.problem in (P.TOO_COSTLY, P.DAMAGED)  # 3.6 GB are refused before they are had
        assert (await checker.check(jpeg())).problem is None

    run(hungry, limits=ImageLimits(pixels=10**10))


def test_a_killed_process_costs_one_image_and_images_share_processes() -> None:
    async def test(checker: ImageChecker) -> None:
        found = await asyncio.gather(*(checker.check(jpeg(seed)) for seed in range(8)))
        assert [one.problem for one in found] == [None] * 8
        assert len({one.sha256 for one in found}) == 8
        assert len(checker.pids) == 2
        for pid in checker.pids:
            psutil.Process(pid).kill()
        assert (await checker.check(jpeg())).problem is None

    run(test, processes=2)


def test_hashes_know_an_image_again() -> None:
    async def test(checker: ImageChecker) -> None:
        async def dhash(body: bytes) -> int:
            found: ImageFacts = await checker.check(body)
            assert found.dhash is not None, found.detail
            return found.dhash

        for seed in range(5):
            original = await dhash(encoded(photo(seed), "PNG"))
            rotated = photo(seed).transpose(Image.Transpose.ROTATE_90)
            near = {
                "compressed": jpeg(seed, quality=40),
                "smaller": encoded(photo(seed, (160, 120)), "WEBP"),
                "larger": jpeg(seed, (1280, 960)),
                "grey": encoded(photo(seed, mode="L"), "PNG"),
                "few colours": encoded(photo(seed).quantize(64), "GIF"),
                "turned, and said so": encoded(rotated, "JPEG", exif=_exif(6)),
            }
            for name, body in near.items():
                assert distance(original, await dhash(body)) <= 5, name
            assert distance(original, await dhash(jpeg(seed + 100))) > 10
        for even in (Image.new("RGB", (100, 100), "red"), photo(1, (8, 8))):
            assert (await checker.check(encoded(even, "PNG"))).dhash is None

    run(test)


@pytest.mark.parametrize(
    "name", ["sideways", "transparent", "CMYK", "16 bits", "animated gif", "avif", "ico", "float tiff"]
)
def test_thumbnails(name: str) -> None:
    async def test(checker: ImageChecker) -> None:
        small = await checker.thumbnail(good()[name][0])
        assert small is not None
        with Image.open(io.BytesIO(small)) as image:
            width, height = good()[name][1][1] or 0, good()[name][1][2] or 0
            scale = min(1, 256 / max(width, height))
            assert (image.format, image.size) == ("WEBP", (round(width * scale), round(height * scale)))
            assert not image.getexif()
        for body in (bad()["truncated jpeg"][0], good()["svg"][0], b"text"):
            assert await checker.thumbnail(body) is None

    run(test)
