"""What a page costs at least: the libraries that do the work, called without anything around them, on the pages of the benchmark's site.

The rule: each part does what the product needs done (the same bytes, the same rows, the same sync), and nothing else. Seconds of CPU a
page; caches are warm here, which they are not in a crawl, so this is what could be reached, not what can.
"""

import hashlib
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psycopg
import pycurl
from isal import igzip_lib
from selectolax.lexbor import LexborHTMLParser

BATCH: Final = 100
NEW_URLS: Final = 250
"""That a batch of pages leads to, as in the first 20 s of the crawl."""
CONCURRENCY: Final = 16
ROUNDS: Final = 5


def bodies(root: Path, count: int = 400) -> list[bytes]:
    """Pages of the site, in no order."""
    files = sorted(root.glob("*/*.html"))
    random.Random(1).shuffle(files)
    return [file.read_bytes() for file in files[:count]]


def best(work: Callable[[bytes], object], pages: Sequence[bytes]) -> float:
    """Seconds of CPU a page, in the best of the rounds: whatever else the machine does only ever adds to it."""
    took = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for page in pages:
            work(page)
        took.append(time.process_time() - started)
    return min(took) / len(pages)


def parse(page: bytes) -> bytes:
    """Title, description, links and text by Lexbor, and the hash of the text."""
    tree = LexborHTMLParser(page, options=1)
    for name in ("title", "meta", "link", "img"):
        tree.tags(name)
    for node in tree.tags("a"):
        node.attributes.get("href")
    root = tree.body
    text = root.text(separator=" ", strip=True, skip_empty=True) if root is not None else ""
    return hashlib.sha256(text.encode()).digest()


def archive(page: bytes) -> bytes:
    """The digest of a body, and the body as a gzip member."""
    hashlib.sha256(page).digest()
    packed: bytes = igzip_lib.compress(page, 1, flag=igzip_lib.COMP_GZIP)
    return packed


def fetch(urls: Sequence[str]) -> float:
    """libcurl through PycURL, sixteen at a time over kept-alive connections: seconds of CPU a page, the kernel's too."""
    multi = pycurl.CurlMulti()
    waiting = list(urls)
    parts: list[bytes] = []
    handles = []
    for _ in range(CONCURRENCY):
        handle = pycurl.Curl()
        handle.setopt(pycurl.WRITEFUNCTION, parts.append)
        handle.setopt(pycurl.HEADERFUNCTION, parts.append)
        handle.setopt(pycurl.BUFFERSIZE, 64 * 1024)
        handles.append(handle)
    started = time.process_time()
    for handle in handles:
        handle.setopt(pycurl.URL, waiting.pop())
        multi.add_handle(handle)
    left = len(handles)
    while left:
        multi.perform()
        more = 1
        while more:
            more, done, failed = multi.info_read()
            if failed:
                raise RuntimeError(f"a page could not be fetched: {failed[0][2]}")
            for handle in done:
                multi.remove_handle(handle)
                parts.clear()
                if waiting:
                    handle.setopt(pycurl.URL, waiting.pop())
                    multi.add_handle(handle)
                else:
                    left -= 1
        if left:
            multi.select(1.0)
    took = time.process_time() - started
    multi.close()
    return took / len(urls)


class Database:
    """The rows of pages, written in the plainest way into the product's own tables, and committed durably every hundred."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address)
        self._pid = self._connection.info.backend_pid
        self._number = 0
        self.client = self.server = 0.0
        """Seconds of CPU a page."""

    def run(self, batches: int) -> None:
        """After: `client` and `server` are known."""
        self._batch()
        started, before = time.process_time(), _cpu(self._pid)
        for _ in range(batches):
            self._batch()
        self.client = (time.process_time() - started) / (batches * BATCH)
        self.server = (_cpu(self._pid) - before) / (batches * BATCH)

    def close(self) -> None:
        """After: the connection is."""
        self._connection.close()

    def _batch(self) -> None:
        now, domain, job = datetime.now(UTC), 1 << 40, 1 << 40
        keys = [hashlib.sha256(b"%d" % (self._number + i)).digest()[:16] for i in range(NEW_URLS)]
        self._number += NEW_URLS
        settled = keys[:BATCH]
        connection = self._connection
        columns = "domain_id, job_id, url_key, url, depth, priority, parent_key"
        with connection.cursor().copy(f"COPY url_frontier ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "bytea", "text", "int2", "int2", "bytea"])
            for key in keys:
                copy.write_row(
                    (domain, job, key, f"http://127.0.0.1:8960/some/page-{key.hex()[:8]}.html", 3, 2, keys[0])
                )
        columns = "domain_id, job_id, url_key, crawled_at, outcome, content_length, content_hash, title, content_type"
        with connection.cursor().copy(f"COPY crawled_pages ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "bytea", "timestamptz", "varchar", "int8", "bytea", "text", "varchar"])
            for key in settled:
                copy.write_row((domain, job, key, now, "ok", 20_000, key * 2, "Page 12345 of the site", "text/html"))
        columns = "domain_id, job_id, claim_epoch, crawled_at, url_key, outcome, page_url, bytes"
        with connection.cursor().copy(f"COPY crawl_log ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "int8", "timestamptz", "bytea", "varchar", "text", "int8"])
            for key in settled:
                copy.write_row((domain, job, 1, now, key, "ok", "http://127.0.0.1:8960/some/page.html", 20_000))
        connection.execute(
            "UPDATE url_frontier SET state = 'done', attempts = 1 WHERE domain_id = %s AND job_id = %s AND url_key = ANY(%s)",
            (domain, job, settled),
        )
        connection.commit()


def sync(folder: Path, page: bytes) -> float:
    """A packed page appended, synced with a hundred others."""
    packed = archive(page)
    path = folder / "limit.bin"
    started = time.process_time()
    with path.open("wb", buffering=0) as file:
        for _ in range(10):
            file.write(packed * BATCH)
            os.fdatasync(file.fileno())
    took = time.process_time() - started
    with suppress(OSError):
        path.unlink()
    return took / (10 * BATCH)


def _cpu(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text()
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
