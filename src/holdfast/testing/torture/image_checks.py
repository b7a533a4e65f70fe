"""Checks of a crawl that stores images: what it found and stored against what the simulated web has, and its files against its rows.

The rule: every function returns its violations as sentences; an empty list is the proof. Nothing is decoded here.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.archive.image_store import FolderImageStore, sha256_of
from holdfast.db import images
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.images import queries
from holdfast.images.records import ExportedImage, Garbage
from holdfast.images.service import ImageService
from holdfast.images.thumbnails import Thumbnails
from holdfast.parse.image_check import ImageChecker, ImageLimits
from holdfast.testing.simweb.expected_images import ExpectedImages
from holdfast.testing.simweb.site import UrlKind
from holdfast.testing.torture.checks import limit_lines

_ALL: Final = 1_000_000
"""More files than a simulated web has."""


def compare_images(expected: ExpectedImages, database: Database) -> list[str]:
    """Images, duplicates, places and yields that differ from those of a complete crawl of this web."""
    with database.session() as connection:
        problems = images.problems(connection)
        rows = [row for chunk in queries.export_chunks(connection) for row in chunk]
        found = {name: domains.get(connection, name) for name in expected.domains}
    differences = [*_urls(expected, problems), *_stored(expected, rows)]
    for name, domain in expected.domains.items():
        known = found[name]
        seen = (known.pages_crawled, known.images_found, known.images_stored, known.image_yield_rate)
        wanted = (domain.pages, domain.candidates, len(domain.hashes), domain.image_yield)
        if seen != wanted:
            differences.append(
                f"I7 {name} has {seen} pages, images found, images stored and a yield; the web has {wanted}"
            )
    return limit_lines(differences)


def _urls(expected: ExpectedImages, problems: dict[str, str | None]) -> Iterator[str]:
    for url, image in expected.urls.items():
        if image.kind is UrlKind.DENIED:
            if url in problems:
                yield f"I9 {url} was fetched against robots.txt: {problems[url]}"
        elif url not in problems:
            yield f"I1 {url} was never fetched as an image"
        elif problems[url] != image.problem:
            yield f"I11 {url} ended with {problems[url]} instead of {image.problem}"
    yield from (f"I1 {url} is an image that no page names" for url in problems.keys() - expected.urls.keys())


def _stored(expected: ExpectedImages, rows: list[ExportedImage]) -> Iterator[str]:
    stored = {bytes.fromhex(row.sha256): row for row in rows}
    yield from (f"I11 the image {sha256.hex()} is missing" for sha256 in sorted(expected.stored - stored.keys()))
    yield from (f"I11 the image {row.file} is in no page" for row in rows if row.page_url is None)
    yield from (f"I11 the image {sha256.hex()} is unknown" for sha256 in sorted(stored.keys() - expected.stored))
    near = sum(row.near_duplicate_of is not None for row in stored.values())
    if near != expected.near_duplicates:
        yield f"I11 {near} images are near duplicates instead of {expected.near_duplicates}"
    places = Counter((row.page_url or "", bytes.fromhex(row.sha256)) for row in rows)
    yield from (f"I2 {url} has the image {sha256.hex()} {n} times" for (url, sha256), n in places.items() if n > 1)
    yield from (f"I1 {url} misses the image {sha256.hex()}" for url, sha256 in sorted(expected.places - places.keys()))
    extra = sorted(places.keys() - expected.places)
    yield from (f"I1 {url} must not have the image {sha256.hex()}" for url, sha256 in extra)


def collect_garbage(database: Database, store: FolderImageStore) -> tuple[Garbage, list[str]]:
    """Run `holdfast gc` without a grace time. Before: no process of the crawl runs. Returns what it deleted, and the violations
    afterwards: files to which no row points, and unfinished files."""
    service = ImageService(database, store, Thumbnails(lambda: ImageChecker(ImageLimits())))
    garbage = service.collect_garbage(timedelta())
    with database.session() as connection:
        named = {row["file"] for chunk in images.references(connection) for row in chunk}
    files = {file.key for file in store.list(limit=_ALL)}
    faults = [f"I11 gc has left the orphan {sha256_of(key).hex()}" for key in sorted(files - named)]
    faults += [f"I11 gc has deleted the file {key} of an image" for key in sorted(named - files)]
    if left := store.delete_leftovers(timedelta(), dry_run=True):
        faults.append(f"I11 gc has left {left} unfinished files")
    return garbage, limit_lines(faults)
