"""The archived source of a page: what the server sent, what the page says, and why something is not there."""

import time
from pathlib import Path

import psycopg
import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.db.connection import Database
from holdfast.errors import NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.pages.records import PageLink
from holdfast.pages.service import PageService
from holdfast.pages.source import MAX_LINKS, MAX_TEXT, SourceReader
from tests.integration.archive.exchanges import exchange, keep, writer
from tests.support.crawled import HOME, TEXT, crawl_a_little
from tests.support.factories import Store
from tests.unit.parse.bombs import BOMBS

HEAD = b"HTTP/1.1 200 Fine\r\nContent-Type: text/html; charset=iso-8859-1\r\nX-Served-By: one\r\n\r\n"
BODY = """<html lang=de><head><title>Grüße</title><base href="/shop/"></head><body><p>Grüße aus Köln</p>
<a href="lamp?x=1" rel="nofollow sponsored"> A   lamp </a><a href="https://other.example/"><b>Else</b>where</a>
<a href="mailto:x@example.com">Mail</a><a href="#top">Up</a><area href="../map"></body></html>""".encode("latin-1")


@pytest.fixture
def service(database: Database, store: Store, tmp_path: Path) -> PageService:
    crawl_a_little(database, store)
    return PageService(database, sources=SourceReader(ArchiveReader(tmp_path / "archive")))


def put(
    connection: psycopg.Connection, folder: Path, body: bytes, url: str = f"{HOME}a", head: bytes = HEAD
) -> ArchiveRef:
    """Archive a response for a page."""
    segments = writer(folder)
    (ref,) = keep(segments, [exchange(url, body, response_head=head)])
    segments.close()
    connection.execute(
        """UPDATE crawled_pages SET archive_segment = %s, archive_offset = %s, archive_length = %s, payload_digest = %s
        WHERE url_key = substr(sha256(%s), 1, 16)""",
        (ref.segment, ref.offset, ref.length, ref.payload_digest, url.encode()),
    )
    return ref


def test_what_was_sent_and_what_the_page_says(
    service: PageService, connection: psycopg.Connection, tmp_path: Path
) -> None:
    put(connection, tmp_path / "archive", BODY)
    found = service.source(f"{HOME}a")
    assert (found.url, found.domain, found.job, found.state) == (f"{HOME}a", "example.com", "default", "done")
    assert found.status_line == "HTTP/1.1 200 Fine"
    assert found.headers["x-served-by"] == "one"
    assert found.fetched_at is not None
    assert (found.content_type, found.charset) == ("text/html; charset=iso-8859-1", "windows-1252")
    assert found.body == BODY.decode("latin-1")
    assert (found.body_bytes, found.truncated, found.incomplete) == (len(BODY), False, False)
    assert found.text == "Grüße aus Köln A   lamp Else where Mail Up"
    assert (found.missing, found.text_missing, found.problem) == (None, None, None)
    assert found.links == [
        PageLink("https://example.com/shop/lamp?x=1", "A lamp", "nofollow sponsored"),
        PageLink("https://other.example/", "Else where", ""),
        PageLink("https://example.com/map", "", ""),
    ]
    assert found.links_left_out == 0


def test_the_newest_archived_response_is_taken_or_that_of_a_version(
    service: PageService, connection: psycopg.Connection, tmp_path: Path
) -> None:
    put(connection, tmp_path / "archive", b"<p>old")
    put(connection, tmp_path / "archive", b"<p>new")
    assert service.source(f"{HOME}a", "default").body == "<p>new"
    assert service.source(f"{HOME}a", version=1).body == "<p>old"
    assert service.source(f"{HOME}a", version=2).body == "<p>new"
    connection.execute(
        "UPDATE page_versions SET archive_segment = NULL, archive_offset = NULL, archive_length = NULL, payload_digest = NULL"
    )
    assert "is not archived" in str(service.source(f"{HOME}a", version=1).missing)
    with pytest.raises(NotFound, match="has no version 3; it has 1, 2"):
        service.source(f"{HOME}a", version=3)


def test_long_bodies_and_many_links_are_cut(
    service: PageService, connection: psycopg.Connection, tmp_path: Path
) -> None:
    put(connection, tmp_path / "archive", b"<p>" + b"word " * 300_000 + b'<a href="/x">x</a>' * (MAX_LINKS + 7))
    found = service.source(f"{HOME}a")
    assert (len(found.body or ""), len(found.text or ""), found.truncated) == (MAX_TEXT, MAX_TEXT, True)
    assert found.body_bytes == 3 + 1_500_000 + 18 * (MAX_LINKS + 7)
    assert (len(found.links), found.links_left_out) == (MAX_LINKS, 7)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_page_is_read_within_the_deadline(
    service: PageService, connection: psycopg.Connection, tmp_path: Path, bomb: str
) -> None:
    page = b"<title>t</title><a href=/first rel=nofollow>one</a><a href=/second>two</a>" + BOMBS[bomb]
    put(connection, tmp_path / "archive", page)
    reading = SourceReader(ArchiveReader(tmp_path / "archive"), deadline=1.0)
    began = time.monotonic()
    found = PageService(service.database, sources=reading).source(f"{HOME}a")
    assert time.monotonic() - began < 10
    assert found.body is not None
    assert {"https://example.com/first", "https://example.com/second"} <= {link.url for link in found.links}
    if found.problem is not None:
        assert found.text or found.text_missing is not None


def test_links_in_links_do_not_take_long(service: PageService, connection: psycopg.Connection, tmp_path: Path) -> None:
    """Each text would be read once for each link around it."""
    nested = b'<a href="/x"><table><tr><td>' * 100 + b"word " * 200_000
    put(connection, tmp_path / "archive", nested)
    began = time.monotonic()
    found = service.source(f"{HOME}a")
    assert time.monotonic() - began < 10
    assert found.links


def test_why_there_is_none(service: PageService, connection: psycopg.Connection, tmp_path: Path) -> None:
    never = service.source(f"{HOME}slow")
    assert never.missing == "It has no response that is stored: the URL is waiting (timeout: no answer within 30 s)."
    assert (never.text_missing, never.body, never.fetched_at) == (never.missing, None, None)
    bare = service.source(f"{HOME}a")
    assert bare.missing is not None
    assert bare.missing.endswith("(ok) is not archived: it had no body, or the job was crawled with `--no-archive`.")
    kept = service.source(HOME)
    assert (kept.text, kept.text_missing, kept.body) == (TEXT, None, None)
    ref = put(connection, tmp_path / "archive", BODY)
    (tmp_path / "archive" / ref.segment).rename(tmp_path / "elsewhere")
    far = service.source(f"{HOME}a")
    assert far.missing is not None
    assert "is not in the archive folder of this machine: ask on the machine of worker w1" in far.missing
    none = PageService(service.database).source(f"{HOME}a")
    assert none.missing == far.missing
    (tmp_path / "archive" / ref.segment).write_bytes(b"damaged" * 1000)
    damaged = service.source(f"{HOME}a")
    assert damaged.missing is not None
    assert "is damaged" in damaged.missing
    with pytest.raises(NotFound, match="is not in the frontier"):
        service.source(f"{HOME}nowhere")


def test_what_is_no_text_or_may_not_be_shown(
    service: PageService, connection: psycopg.Connection, tmp_path: Path
) -> None:
    put(connection, tmp_path / "archive", b"\x89PNG", head=b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
    image = service.source(f"{HOME}a")
    assert (image.status_line, image.body) == ("HTTP/1.1 200 OK", None)
    assert image.missing == image.text_missing == "The body is image/png, 4 bytes, and no text."
    put(connection, tmp_path / "archive", b"<meta name=robots content=noindex><p>hidden")
    hidden = service.source(f"{HOME}a")
    assert hidden.text is None
    assert hidden.text_missing == "The page asks robots not to index it (noindex), so its text is not shown."
