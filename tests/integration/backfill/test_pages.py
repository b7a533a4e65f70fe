"""Responses of other tools become pages: archived, counted as a crawl would have counted them, exported and parsed again."""

import hashlib
import io
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from holdfast.archive.reader import ArchiveReader
from holdfast.backfill import pages
from holdfast.model.fetch_types import ArchiveRef
from tests.support import dynamic_site
from tests.support.cli import Cli
from tests.support.dynamic_site import page
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.killed import run_through_kills

HTML = ("Content-Type", "text/html; charset=utf-8")
PARSER = """
from holdfast.parse.plugin_api import Document, tree

version = "1"


def parse(document: Document):
    yield {"title": tree(document).css_first("title").text()}
"""
URLS = "SELECT url, state::text, reason FROM url_frontier ORDER BY url"
PAGES = """
SELECT f.url, p.status, p.outcome, p.title, p.crawled_at, p.archive_segment, p.archive_offset, p.archive_length, p.payload_digest
FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key) ORDER BY f.url
"""


def html(title: str, more: str = "") -> bytes:
    return f"<!doctype html><title>{title}</title><p>Words of {title}. {more}<img src=a.png><a href='/x'>x</a>".encode()


def warc(records: Sequence[tuple[Any, ...]], *, pack: bool = True) -> bytes:
    """A file with (URL, day, status, headers, body); status "revisit": the body is that of the URL `body` with this digest."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # warcio leaves its temporary files open
        writer = WARCWriter(file, gzip=pack)
        for url, day, status, headers, body in records:
            date = {"WARC-Date": f"2026-01-{day:02}T12:00:00Z"}
            if status == "revisit":
                original, content = body
                digest = f"sha1:{hashlib.sha1(content).hexdigest()}"  # noqa: S324 — what most tools write
                record = writer.create_revisit_record(
                    url, digest, original, "2026-01-01T00:00:00Z", warc_headers_dict=date
                )
            else:
                head = StatusAndHeaders(status, list(headers), protocol="HTTP/1.1")
                if status.startswith("200"):
                    date["WARC-Payload-Digest"] = f"sha1:{hashlib.sha1(body).hexdigest()}"  # noqa: S324
                record = writer.create_warc_record(
                    url, "response", payload=io.BytesIO(body), http_headers=head, warc_headers_dict=date
                )
            writer.write_record(record)
            del record
    return file.getvalue()


def stored(store: Store) -> dict[str, tuple[Any, ...]]:
    return {url: tuple(rest) for url, *rest in store.connection.execute(PAGES)}


def body_of(cli: Cli, row: tuple[Any, ...]) -> bytes:
    segment, offset, length, digest = row[4:]
    return ArchiveReader(cli.folder / ".holdfast" / "archive").read(ArchiveRef(segment, offset, length, digest)).body


def assert_all_sound(cli: Cli, store: Store) -> None:
    assert_invariants(store.connection)
    verified = cli("verify")
    assert verified.code == 0, verified.out
    assert cli("backfill", "--check").code == 0


SITE = {
    "/": page("Front", "/one.html", "/two.html", "/moved"),
    "/one.html": page("One", "/"),
    "/two.html": page("Two", "/gone"),
}


def test_a_warc_of_wget_is_imported_exported_and_parsed_again(cli: Cli, store: Store) -> None:
    if shutil.which("wget") is None:
        pytest.skip("there is no wget")
    with dynamic_site.served(lambda path: SITE.get(path, 404)) as site:
        command = ["wget", "-q", "-r", "--warc-file=site", "-P", "files", site.url]
        subprocess.run(command, cwd=cli.folder, capture_output=True, check=False, timeout=60)
    answer = cli("backfill", "site.warc.gz", "--job", "old", "--json")
    (one,) = answer.json["imports"]
    assert (answer.code, one["pages"], one["bad"], one["job"], one["domains_new"]) == (0, 3, 0, "old", 1), answer
    found = stored(store)
    assert {url.removeprefix(site.url): row[1:3] for url, row in found.items()} == {
        "": ("ok", "Front"),
        "one.html": ("ok", "One"),
        "two.html": ("ok", "Two"),
        "moved": ("not_found", None),
        "gone": ("not_found", None),
    }
    for url, row in found.items():
        if row[1] == "ok":
            assert body_of(cli, row) == SITE["/" + url.removeprefix(site.url)].encode()
    assert_all_sound(cli, store)
    before = store.connection.execute("SELECT d::text FROM domains d").fetchall()
    assert "Nothing was changed." in cli("backfill", "site.warc.gz").out
    assert store.connection.execute("SELECT d::text FROM domains d").fetchall() == before
    assert cli("export", "pages", "pages.jsonl", "--text", "--job", "old").code == 0
    assert (cli.folder / "pages.jsonl").read_text().count('"title": "Two"') == 1
    (cli.folder / "titles.py").write_text(PARSER)
    parsed = cli("parse", "--again", "--job", "old", "--with", "./titles.py", "--apply")
    assert parsed.code == 0, parsed
    titles = store.connection.execute("SELECT data ->> 'title' FROM items ORDER BY 1").fetchall()
    assert titles == [("Front",), ("One",), ("Two",)]
    assert cli("jobs", "show", "old").code == 0


A = "http://a.example"
LONG = html("Long", "x" * 500)


def test_what_responses_become(cli: Cli, store: Store) -> None:
    (cli.folder / "a.warc").write_bytes(
        warc(
            [
                (f"{A}/robots.txt", 1, "200 OK", [("Content-Type", "text/plain")], b"User-agent: *"),
                (f"{A}/1", 1, "200 OK", [HTML], LONG),
                (f"{A}/2", 1, "302 Found", [("Location", "/1")], b""),
                (f"{A}/3", 1, "500 Oops", [HTML], b"no"),
                (f"{A}/4", 1, "200 OK", [("Content-Type", "image/png")], b"png"),
                (f"{A}/5", 2, "revisit", (), (f"{A}/1", LONG)),
                (f"{A}/6", 2, "revisit", (), (f"{A}/unknown", b"?")),
                (f"{A}/1", 3, "200 OK", [HTML], html("New")),
                (f"{A}/1", 2, "200 OK", [HTML], html("Older")),
                ("http://www.A.example:80/7#x", 1, "200 OK", [HTML], html("Seven")),
                ("https://b.example/", 1, "403 No", [HTML], b"no"),
                (f"{A}/" + "x" * 3000, 1, "200 OK", [HTML], b""),
            ],
            pack=False,
        )
    )
    answer = cli("backfill", "a.warc", "--json")
    (one,) = answer.json["imports"]
    assert answer.code == 1  # bad records
    assert one["reasons"] == {
        "robots.txt": 1,
        "revisit of an unknown record": 1,
        "not newer than the stored page": 1,
        "not a URL": 1,
    }
    assert (one["rows"], one["bad"], one["skipped"], one["pages"], one["errors"], one["domains_new"]) == (
        12,
        2,
        2,
        4,
        2,
        2,
    )
    found = stored(store)
    assert {url: row[:3] for url, row in found.items()} == {
        f"{A}/1": (200, "ok", "New"),
        f"{A}/3": (500, "server_error", None),
        f"{A}/4": (200, "wrong_type", None),
        f"{A}/5": (200, "ok", "Long"),
        "http://www.a.example/7": (200, "ok", "Seven"),
        "https://b.example/": (403, "forbidden", None),
    }
    assert found[f"{A}/1"][3] == datetime(2026, 1, 3, 12, tzinfo=UTC)
    assert body_of(cli, found[f"{A}/5"]) == LONG
    assert (f"{A}/2", "done", "redirect") in store.connection.execute(URLS).fetchall()
    (version,) = store.connection.execute("SELECT title, change FROM page_versions").fetchall()
    assert version == ("Long", "changed")
    facts = "SELECT domain, status::text, pages_crawled, total_error_count, images_found FROM domains ORDER BY domain"
    assert store.connection.execute(facts).fetchall() == [
        ("a.example", "exhausted", 4, 1, 4),
        ("b.example", "exhausted", 0, 1, 0),
    ]
    assert_all_sound(cli, store)
    # Another file of the same site into the same job: what is there stays, what is new comes.
    (cli.folder / "b.warc.gz").write_bytes(
        warc(
            [
                (f"{A}/1", 3, "200 OK", [HTML], html("New")),
                (f"{A}/2", 1, "302 Found", [("Location", "/1")], b""),
                (f"{A}/4", 9, "200 OK", [("Content-Type", "image/png")], b"png"),
                (f"{A}/8", 4, "revisit", (), (f"{A}/1", html("New"))),
            ]
        )
    )
    answer = cli("backfill", "b.warc.gz", "--all-types", "--json")
    (one,) = answer.json["imports"]
    assert (answer.code, one["rows"], one["skipped"], one["pages"]) == (0, 4, 2, 2), answer
    assert {url: row[:3] for url, row in stored(store).items() if url in {f"{A}/4", f"{A}/8"}} == {
        f"{A}/4": (200, "ok", None),
        f"{A}/8": (200, "ok", "New"),
    }
    assert body_of(cli, stored(store)[f"{A}/4"]) == b"png"
    assert_all_sound(cli, store)


def test_kills_neither_lose_nor_double_a_page(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [(f"http://d{n % 5}.example/{n}", 1, "200 OK", [HTML], html(f"Page {n}", "y" * 300)) for n in range(60)]
    (cli.folder / "a.warc.gz").write_bytes(warc(records))
    (cli.folder / "sitecustomize.py").write_text("from holdfast.backfill import pages\npages.CHUNK = 20\n")
    monkeypatch.setenv("PYTHONPATH", str(cli.folder))
    assert run_through_kills("in_backfill", "backfill", "a.warc.gz", folder=cli.folder) >= 2
    found = stored(store)
    assert sorted(row[2] for row in found.values()) == sorted(f"Page {n}" for n in range(60))
    assert all(body_of(cli, row) == html(row[2], "y" * 300) for row in found.values())
    assert store.value("SELECT sum(pages_crawled)::bigint FROM domains") == 60
    assert_invariants(store.connection)
    assert cli("backfill", "--check").code == 0


def test_a_cache_of_scrapy_that_grows(cli: Cli, store: Store) -> None:
    def cached(entry: str, url: str, title: str) -> None:
        folder = cli.folder / "httpcache" / entry
        folder.mkdir(parents=True)
        meta = {"url": url, "method": "GET", "status": 200, "response_url": url, "timestamp": 1770969600.5}
        files = {
            "meta": repr(meta).encode(),
            "response_headers": b"Content-Type: text/html",
            "response_body": html(title),
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / "pickled_meta").write_bytes(b"not a pickle")

    cached("spider/aa/aa1", f"{A}/1", "One")
    answer = cli("backfill", "httpcache")
    assert (answer.code, "1 page and 0 errors were imported into the job backfill" in answer.out) == (0, True), answer
    assert "Nothing was changed." in cli("backfill", "httpcache").out
    cached("spider/ab/ab1", f"{A}/2", "Two")
    (one,) = cli("backfill", "httpcache", "--json").json["imports"]
    assert (one["rows"], one["skipped"], one["pages"]) == (2, 1, 1)
    assert [row[2] for row in stored(store).values()] == ["One", "Two"]
    assert_all_sound(cli, store)


def test_a_domain_that_a_worker_holds_and_a_job_of_that_name(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "WAIT", 0.0)
    store.seed("a.example")
    store.claim("w1")
    (cli.folder / "a.warc").write_bytes(warc([(f"{A}/1", 1, "200 OK", [HTML], html("One"))], pack=False))
    assert "a.example is held by worker w1" in cli("backfill", "a.warc").refused(5)
    assert stored(store) == {}
    store.connection.execute(
        "UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, claim_epoch = claim_epoch + 1"
    )
    store.connection.execute("UPDATE claim_log SET ended_at = clock_timestamp(), why = 'released'")
    answer = cli("backfill", "a.warc")
    assert (answer.code, "continued after row 0" in answer.err) == (0, True), answer
    (cli.folder / "b.warc").write_bytes(warc([(f"{A}/2", 1, "200 OK", [HTML], html("Two"))], pack=False))
    assert "not made by an import" in cli("backfill", "b.warc", "--job", "default").refused(5)
    facts = "SELECT status::text, pages_crawled, frontier_size FROM domains"
    assert store.connection.execute(facts).fetchall() == [("pending", 1, 1)]
