"""What a page costs at least: a crawl of the same site by the libraries that do the work, with nothing around them.

    python -m benchmarks.speed.limit URL DATABASE

The rule: it does with each page what the product must (the same bytes, the same rows, the same sync and durable commit every hundred
pages) and nothing else: no robots.txt, no pace, no lease, no fence, no guard, no other threads, nothing for pages that are not as these.
It keeps all URLs in memory, and any error ends it. SIGTERM ends it, too; then it prints, as JSON, its pages and the milliseconds of CPU
that each part took of one. PostgreSQL's are not among them.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import Final, NamedTuple

import psycopg
import pycurl
from isal import igzip_lib
from selectolax.lexbor import LexborHTMLParser

BATCH: Final = 100
CONCURRENCY: Final = 16
BUFFER: Final = 64 * 1024
DOMAIN = JOB = 1 << 40
WITHOUT_EVENTS: Final = 1
"""As the product parses."""


class Page(NamedTuple):
    """What is written of a page."""

    key: bytes
    url: str
    title: str
    digest: bytes
    size: int


class Url(NamedTuple):
    """What is written of a URL that was found."""

    key: bytes
    url: str
    parent: bytes


class Crawl:
    """One crawl of one host."""

    def __init__(self, url: str, database: str) -> None:
        self._origin = url.rstrip("/")
        self._seen = {url}
        self._waiting = deque([url])
        self._connection = psycopg.connect(database)
        self._segment = os.open("limit.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._packed: list[bytes] = []
        self._pages: list[Page] = []
        self._found: list[Url] = []
        self._over = False
        self._since = 0.0
        self.pages = 0
        self.took: dict[str, float] = defaultdict(float)
        """Seconds of CPU by part."""

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """After: it ends with the page that it is at."""
        self._over = True

    def run(self) -> None:
        """Until it is stopped, or there are no pages left."""
        bodies: dict[pycurl.Curl, list[bytes]] = {}
        urls: dict[pycurl.Curl, str] = {}
        multi = pycurl.CurlMulti()
        free = []
        for _ in range(CONCURRENCY):
            handle = pycurl.Curl()
            bodies[handle] = []
            handle.setopt(pycurl.WRITEFUNCTION, bodies[handle].append)
            handle.setopt(pycurl.HEADERFUNCTION, len)  # a call for each line, and nothing else
            handle.setopt(pycurl.BUFFERSIZE, BUFFER)
            free.append(handle)
        self._since = time.thread_time()
        while not self._over and (self._waiting or len(free) < CONCURRENCY):
            while free and self._waiting:
                handle = free.pop()
                urls[handle] = self._waiting.popleft()
                handle.setopt(pycurl.URL, urls[handle])
                multi.add_handle(handle)
            multi.perform()
            _, done, failed = multi.info_read(CONCURRENCY)
            if failed:
                raise RuntimeError(f"a page could not be fetched: {failed[0][2]}")
            if not done:
                multi.select(1.0)
            for handle in done:
                multi.remove_handle(handle)
                body = b"".join(bodies[handle])
                bodies[handle].clear()
                free.append(handle)
                self._was("fetch")
                self._walk(urls[handle], body)

    def _walk(self, url: str, body: bytes) -> None:
        title, hrefs, digest = parse(body)
        self._was("parse")
        key = key_of(url)
        for href in hrefs:
            if href and href[0] == "/" and (address := self._origin + href) not in self._seen:
                self._seen.add(address)
                self._waiting.append(address)
                self._found.append(Url(key_of(address), address, key))
        self._was("links, dedup")
        hashlib.sha256(body).digest()
        self._packed.append(igzip_lib.compress(body, 1, flag=igzip_lib.COMP_GZIP))
        self._was("archive")
        self._pages.append(Page(key, url, title, digest, len(body)))
        self.pages += 1
        if len(self._pages) >= BATCH:
            os.write(self._segment, b"".join(self._packed))
            os.fdatasync(self._segment)
            self._packed.clear()
            self._was("archive")
            self._commit()
            self._was("rows to PostgreSQL")

    def _commit(self) -> None:
        """The rows in the plainest way: nobody looks whether they may be written, or are there already."""
        now = datetime.now(UTC)
        connection, pages = self._connection, self._pages
        columns = "domain_id, job_id, url_key, url, depth, priority, parent_key"
        with connection.cursor().copy(f"COPY url_frontier ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "bytea", "text", "int2", "int2", "bytea"])
            for key, url, parent in self._found:
                copy.write_row((DOMAIN, JOB, key, url, 3, 2, parent))
        columns = "domain_id, job_id, url_key, crawled_at, outcome, content_length, content_hash, title, content_type"
        with connection.cursor().copy(f"COPY crawled_pages ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "bytea", "timestamptz", "varchar", "int8", "bytea", "text", "varchar"])
            for key, _, title, digest, size in pages:
                copy.write_row((DOMAIN, JOB, key, now, "ok", size, digest, title, "text/html"))
        columns = "domain_id, job_id, claim_epoch, crawled_at, url_key, outcome, page_url, bytes"
        with connection.cursor().copy(f"COPY crawl_log ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int8", "int8", "timestamptz", "bytea", "varchar", "text", "int8"])
            for key, url, _, _, size in pages:
                copy.write_row((DOMAIN, JOB, 1, now, key, "ok", url, size))
        connection.execute(
            "UPDATE url_frontier SET state = 'done', attempts = 1 WHERE domain_id = %s AND job_id = %s AND url_key = ANY(%s)",
            (DOMAIN, JOB, [page.key for page in pages]),
        )
        connection.commit()
        self._found.clear()
        pages.clear()

    def _was(self, part: str) -> None:
        """What was done since the last call was that."""
        now = time.thread_time()
        self.took[part] += now - self._since
        self._since = now


def parse(body: bytes) -> tuple[str, list[str | None], bytes]:
    """Title, links and the hash of the text by Lexbor, and a look at what else the product looks at."""
    tree = LexborHTMLParser(body, options=WITHOUT_EVENTS)
    titles = tree.tags("title")
    for name in ("meta", "link", "img"):
        tree.tags(name)
    hrefs = [node.attributes.get("href") for node in tree.tags("a")]
    root = tree.body
    text = root.text(separator=" ", strip=True, skip_empty=True) if root is not None else ""
    return titles[0].text() if titles else "", hrefs, hashlib.sha256(text.encode()).digest()


def key_of(url: str) -> bytes:
    """By which the frontier knows it."""
    return hashlib.sha256(url.encode()).digest()[:16]


def main(arguments: Sequence[str]) -> int:
    """Crawl, and print what it cost."""
    crawl = Crawl(*arguments)
    signal.signal(signal.SIGTERM, crawl.stop)
    crawl.run()
    print(
        json.dumps(
            {"pages": crawl.pages, "took": {part: took * 1000 / crawl.pages for part, took in crawl.took.items()}}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
