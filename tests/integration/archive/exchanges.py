"""Exchanges to be archived, and warcio, which judges what became of them."""

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator

from holdfast.archive.warc import Exchange
from holdfast.archive.writer import ArchiveWriter
from holdfast.model.fetch_types import ArchiveRef, FetchResult
from holdfast.model.outcome import Outcome
from holdfast.settings import Archive

MOMENT = datetime(2026, 11, 15, 20, 15, 0, 250_000, tzinfo=UTC)
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: holdfast\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"


def body_of(number: int, size: int = 400) -> bytes:
    """A body that no other number has and that compresses like text, not like zeros."""
    words = (hashlib.sha256(b"%d %d" % (number, i)).hexdigest().encode() for i in range(size // 65 + 1))
    return b" ".join(words)[:size]


def exchange(url: str = "https://a.example/", body: bytes = b"<p>Hello", **fields: Any) -> Exchange:
    """An answer 200, unless `fields` of the result say otherwise."""
    metadata = fields.pop("metadata", {"job": "default", "depth": "0"})
    known: dict[str, Any] = {
        "status": 200,
        "request_head": REQUEST,
        "response_head": HEAD,
        "address": "192.0.2.1",
    } | fields
    return Exchange(url, FetchResult(url, Outcome.OK, body=body, **known), MOMENT, metadata)


def numbered(numbers: Iterable[int], size: int = 400) -> list[Exchange]:
    """Exchanges with different bodies."""
    return [exchange(f"https://a.example/{n}", body_of(n, size)) for n in numbers]


def writer(folder: Path, worker: str = "w1", **settings: int) -> ArchiveWriter:
    """A worker's archive in `folder`."""
    return ArchiveWriter(folder, worker, Archive.model_validate(settings), software="holdfast test")


def keep(segments: ArchiveWriter, exchanges: list[Exchange]) -> list[ArchiveRef]:
    """Append and sync, as a commit does."""
    refs = segments.append(exchanges)
    segments.sync()
    return refs


def files(folder: Path) -> list[Path]:
    """All segments."""
    return sorted(folder.glob("*/*.warc.gz"))


def records(path: Path) -> list[tuple[str, Any, bytes]]:
    """Type, record and content of all records of a segment, as warcio reads them, digests checked."""
    with path.open("rb") as stream:
        return [
            (record.rec_type, record, record.content_stream().read())
            for record in ArchiveIterator(stream, check_digests="raise")
        ]


def warcio_check(folder: Path) -> subprocess.CompletedProcess[str]:
    """`warcio check` of all segments."""
    # Not `-m warcio.cli`: warnings about the way it is imported are not ours.
    program = "import sys; from warcio.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "check", *map(str, files(folder))], capture_output=True, text=True, check=False
    )
