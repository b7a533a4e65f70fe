"""The file cache of Scrapy (HTTPCACHE_DIR): a folder for each response, below a folder for each spider.

The rule: nothing is unpickled. `meta` is read as a Python literal, `pickled_meta` is not opened; queues of a JOBDIR and the DBM cache have
pickles only, and are refused.
"""

import ast
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.client import responses
from pathlib import Path
from typing import Any, Final

from holdfast.backfill.records import BadRow, Capture
from holdfast.backfill.sources import http_message
from holdfast.backfill.sources.warc import BAD_HTTP, Skipped
from holdfast.errors import UsageError

_META: Final = "meta"
_DEPTH: Final = 3
"""Folders of a response: spider, the first two digits of its fingerprint, its fingerprint."""
_MAX_META: Final = 64 * 1024
_GZIP: Final = b"\x1f\x8b"
_JOBDIR: Final = ("requests.seen", "spider.state", "requests.queue")
BAD_META: Final = "no meta"
NOT_GET: Final = "not a GET"


def is_cache(folder: Path) -> bool:
    """Whether a folder is a cache, or that of one spider."""
    return next(_entries(folder, ""), None) is not None


def identity(folder: Path) -> bytes:
    """The identity of a cache: of its responses and their times. One that has grown is another source."""
    known = hashlib.sha256(b"scrapy-cache\n")
    for entry in _entries(folder, ""):
        known.update(f"{entry} {(folder / entry / _META).stat().st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return known.digest()[:16]


def check(folder: Path) -> None:
    """Raise UsageError for a folder of Scrapy that cannot be read."""
    if any((folder / name).exists() for name in _JOBDIR):
        raise UsageError(
            f"{folder} is a JOBDIR of Scrapy. Its queues are pickles, which can run any code when they are read, so Holdfast does not read "
            "them. Seed the start URLs again (`holdfast seeds load`), or import the HTTP cache (HTTPCACHE_DIR)."
        )
    if any(folder.glob("*.db*")) and not is_cache(folder):
        raise UsageError(
            f"{folder} is a DBM cache of Scrapy, which has pickles; only the file cache (FilesystemCacheStorage) can be read."
        )


class CacheCaptures:
    """The responses of a cache."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def captures(
        self, position: Mapping[str, Any] | None, number: int
    ) -> Iterator[tuple[dict[str, Any], Capture | BadRow]]:
        """Yield every response after `number` ones from `position` on, each with its own position."""
        for entry in _entries(self._folder, position["from"] if position else ""):
            number += 1
            yield {"from": entry}, self._capture(self._folder / entry, number)

    def _capture(self, folder: Path, number: int) -> Capture | BadRow:
        try:
            meta = ast.literal_eval(_read(folder / _META, _MAX_META).decode())
            url, at = str(meta["url"]), datetime.fromtimestamp(float(meta["timestamp"]), UTC)
            method, status = str(meta["method"]), int(meta["status"])
        except (
            OSError,
            EOFError,
            zlib.error,
            ValueError,
            SyntaxError,
            TypeError,
            KeyError,
            MemoryError,
            RecursionError,
        ) as problem:
            return BadRow(number, BAD_META, f"{folder.name}/meta cannot be read: {type(problem).__name__}.")
        if method != "GET":
            return Skipped(number, NOT_GET, f"The request was a {method[:20]!a}.")
        try:
            lines = _read(folder / "response_headers", http_message.MAX_HEAD).strip(b"\r\n")
            head = f"HTTP/1.1 {status} {responses.get(status, '')}".rstrip().encode() + b"\r\n" + lines + b"\r\n\r\n"
            status, headers = http_message.parse_head(head)
            raw = _read(folder / "response_body", self._max_bytes * 4 + 1)
            body, cut = http_message.decode(raw, headers, self._max_bytes)
        except (OSError, EOFError, zlib.error, ValueError) as problem:
            return BadRow(number, BAD_HTTP, f"The response for {url[:200]!a} cannot be used: {problem}.")
        return Capture(number, url, at, status, head, headers, body, cut)


def _entries(folder: Path, first: str) -> Iterator[str]:
    """Yield the folders of responses, relative to `folder`, in the order of their names, from `first` on."""

    start = tuple(first.split("/")) if first else ()

    def walk(place: tuple[str, ...]) -> Iterator[str]:
        path = folder.joinpath(*place)
        if (path / _META).is_file():
            if place >= start:
                yield "/".join(place)
            return
        if len(place) == _DEPTH:
            return
        try:
            with os.scandir(path) as found:
                names = sorted(one.name for one in found if one.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in names:
            below = (*place, name)
            if below >= start[: len(below)]:
                yield from walk(below)

    return walk(())


def _read(path: Path, limit: int) -> bytes:
    """Read at most `limit` bytes of a file, which Scrapy may have compressed (HTTPCACHE_GZIP)."""
    # A body may be gzip by itself; only where Scrapy compresses is its meta so, too.
    with path.open("rb") as file:
        if _is_compressed(path.parent):
            with gzip.GzipFile(fileobj=file) as unpacked:
                return unpacked.read(limit)
        return file.read(limit)


def _is_compressed(folder: Path) -> bool:
    with (folder / _META).open("rb") as file:
        return file.read(2) == _GZIP
