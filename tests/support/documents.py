"""Documents as the parser `markdown` finds them, made from lines of Markdown."""

import hashlib
import re
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.crawler.document_rows import document_row
from holdfast.db import documents, items
from holdfast.db.connection import Database
from holdfast.db.documents import DocumentKey
from holdfast.db.items import Due, PageKey, Parsed
from holdfast.documents import queries
from holdfast.documents.content import read_content
from holdfast.model.commit_batch import PageRow
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.job import MARKDOWN
from holdfast.model.outcome import Outcome
from holdfast.model.parse_result import Extracted, ParseDone
from holdfast.model.url import url_key
from tests.integration.archive.exchanges import exchange, keep, writer
from tests.support.crawled import HOME, Crawl
from tests.support.factories import Store


def extracted(
    *blocks: str, title: str | None = None, language: str | None = "en", kind: str = "article"
) -> dict[str, Any]:
    """A document of these blocks: headings begin with #, all others are paragraphs."""
    markdown = text = ""
    places: list[list[int]] = []
    headings: list[list[Any]] = []
    for block in blocks:
        plain = re.sub("^#+ ", "", block)
        markdown, text = (part + "\n\n" if part else "" for part in (markdown, text))
        if plain != block:
            headings.append([block.index(" "), plain, len(markdown), len(text)])
        name = int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big", signed=True)
        places.append([len(markdown), len(markdown) + len(block), len(text), len(text) + len(plain), name])
        markdown, text = markdown + block, text + plain
    return {
        "markdown": markdown,
        "text": text,
        "blocks": places,
        "headings": headings,
        "title": title,
        "author": None,
        "published": None,
        "language": language,
        "site_name": None,
        "kind": kind,
        "words": len(text.split()),
        "extractor": "1",
    }


HTML: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
MENU: Final = "Home Docs Download"
FOOTER: Final = "All rights reserved"


def put_document(connection: psycopg.Connection, url: str, *blocks: str) -> None:
    """The page has a document of these blocks, in each job that knows it."""
    row = document_row(extracted(*blocks))
    assert row
    query = "SELECT domain_id, job_id, url_key, crawled_at FROM crawled_pages WHERE url_key = %s"
    for *key, at in connection.execute(query, (url_key(url),)).fetchall():
        documents.put(connection, DocumentKey(*key), row, at)


class DocumentSite:
    """example.com, crawled with its documents."""

    def __init__(self, database: Database, store: Store, pages: int) -> None:
        self.store, self.connection = store, store.connection
        self.urls = [HOME, *(f"{HOME}{number}" for number in range(1, pages))]
        self.crawl = Crawl(database, store)
        store.seed(HOME)
        self.claim = store.claim_one(self.crawl.worker)
        self.number = 0
        found = [self.crawl.found(HOME, url) for url in self.urls[1:]]
        home = self.crawl.outcome(HOME, Outcome.OK, page=self._page())
        self.crawl.commit(self.claim, [home], found)
        self.crawl.commit(self.claim, [self.crawl.outcome(url, Outcome.OK, page=self._page()) for url in self.urls[1:]])
        for number, url in enumerate(self.urls):
            self.save(url, MENU, f"# Page {number}", f"What only page {number} says: {number * 'x'}.", FOOTER)

    @property
    def domain(self) -> int:
        return self.claim.domain_id

    def _page(self) -> PageRow:
        self.number += 1
        ref = ArchiveRef("w1/1.warc.gz", self.number, 9, b"d" * 32)
        return PageRow(200, archive=ref, parsers=("shop", MARKDOWN))

    def save(self, url: str, *blocks: str, title: str | None = None) -> int:
        """The parser has found these blocks on the newest answer for a URL."""
        (due,) = [one for one in self.due() if one.key.url_key == url_key(url)] or [self.known(url)]
        data = extracted(*blocks, title=title)
        done = ParseDone(MARKDOWN, "1", Extracted(data))
        return items.save(
            self.connection, [Parsed(due, url, done, document=document_row(data), again=True)], attempts=2
        )

    def unstore(self, url: str, archive: Path, body: bytes, head: bytes = HTML) -> None:
        """The job has no document of this page, but the archive in this folder has its response."""
        segments = writer(archive)
        (ref,) = keep(segments, [exchange(url, body, response_head=head)])
        segments.close()
        self.connection.execute("DELETE FROM documents WHERE url_key = %s", (url_key(url),))
        self.connection.execute(
            """UPDATE crawled_pages SET archive_segment = %s, archive_offset = %s, archive_length = %s, payload_digest = %s
            WHERE url_key = %s""",
            (ref.segment, ref.offset, ref.length, ref.payload_digest, url_key(url)),
        )

    def due(self) -> list[Due]:
        return items.due(self.connection, "w1", parsers=[MARKDOWN], limit=1_000)

    def known(self, url: str) -> Due:
        row = self.connection.execute(
            "SELECT archive_segment, archive_offset, archive_length, payload_digest FROM page_parses WHERE url_key = %s AND parser = %s",
            (url_key(url), MARKDOWN),
        ).fetchone()
        assert row
        return Due(PageKey(self.domain, self.store.job, url_key(url), MARKDOWN), ArchiveRef(*row))

    def markdown(self, url: str = HOME) -> str:
        found = queries.find(self.connection, self.domain, url_key(url), None)
        assert found
        return read_content(found.body, found.removed).markdown
