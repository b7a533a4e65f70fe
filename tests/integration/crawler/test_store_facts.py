"""What a crawl leaves in the store: runs, workers, pages with all their fields, text, archive, export; and while it runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from holdfast import Client
from holdfast.archive.reader import ArchiveReader
from holdfast.model.auth import Role
from holdfast.model.fetch_types import ArchiveRef
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, SpecialUrl, Web
from tests.support.api import serving, settings
from tests.support.crawls import Crawls, hits, now, wait_for
from tests.support.pages import Page, Pages


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    odd = {SpecialUrl.MISSING: 0.3, SpecialUrl.BINARY: 0.3, SpecialUrl.CHARSET: 0.3, SpecialUrl.NUL: 0.3}
    with WebProcess(Web(17, 2, Site(20, 6, 1500, images=2, odd=odd))) as served:
        yield served


def test_progress_is_visible_while_it_runs(crawls: Crawls, web: WebProcess) -> None:
    """Counters grow, the run and its worker give signs of life, and the claim's lease is kept up."""
    crawls.set(worker={"heartbeat": 0.1})
    job = crawls.begin(web.url(0), delay=0.1).job
    seen: set[int] = set()
    with crawls.worker(job, "busy"):
        wait_for(lambda: seen.add(crawls.total()) or len(seen) > 4, "five different counts")  # type: ignore[func-returns-value]
        domain = crawls.domain(web.address.host(0))
        assert (domain["claimed_by"], domain["status"]) == ("busy", "active")
        beat = crawls.value("SELECT heartbeat_at FROM workers WHERE name = 'busy'")
        lease = crawls.value("SELECT claim_expires_at FROM domains")
        wait_for(lambda: crawls.value("SELECT heartbeat_at > %s FROM workers WHERE name = 'busy'", beat), "a heartbeat")
        wait_for(lambda: crawls.value("SELECT claim_expires_at > %s FROM domains", lease), "a renewal")
        wait_for(lambda: crawls.value("SELECT in_window FROM crawl_runs") > 0, "what is in memory")
        running = crawls.rows("SELECT worker, status::text, job_id, crawl_id, completed_at FROM crawl_runs")
        assert running == [("busy", "running", job.id, job.crawl_id, None)]
        assert crawls.value("SELECT sum(pages_crawled) FROM crawl_runs") <= crawls.total()
    pages, errors, status, window = crawls.rows(
        "SELECT pages_crawled, errors, status::text, in_window FROM crawl_runs WHERE completed_at IS NOT NULL"
    )[0]
    assert (pages, errors, status, window) == (crawls.total(), 0, "completed", 0)
    assert crawls.held() == 0
    crawls.verify()


def test_every_field_of_a_page(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    assert crawls.crawl(web.url(0), text=True).completed
    seen = hits(web, 0, since=since)
    found = crawls.rows(
        "SELECT f.url, to_jsonb(p), t.body FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key) "
        "LEFT JOIN page_texts t USING (domain_id, job_id, url_key)"
    )
    rows = {url: (page, body) for url, page, body in found}
    assert set(rows) == {hit.url for hit in seen if hit.path != "/robots.txt"}
    home, text = rows[web.url(0)]
    assert home["title"] == "home of site 0, version 0"
    assert home["description"] == "Page 0 of 20"
    assert home["canonical"] == web.url(0)
    assert (home["status"], home["outcome"], home["depth"], home["images_count"]) == (200, "ok", 0, 2)
    assert (home["content_type"], home["charset"]) == ("text/html; charset=utf-8", "utf-8")
    assert home["content_length"] >= 1400
    assert home["links_count"] > 0
    assert home["problem"] is None
    assert home["duration_ms"] >= 0
    assert len(home["content_hash"]) == len(home["payload_digest"]) == len("\\x") + 64
    assert home["etag"] or home["last_modified"]
    words = zstandard.decompress(text).decode()
    assert words.startswith("home of site 0")
    assert "<" not in words
    missing = [page for url, (page, _) in rows.items() if "/missing/" in url]
    assert missing
    assert {(page["status"], page["outcome"], page["title"], page["problem"]) for page in missing} == {
        (404, "not_found", None, "not_found: HTTP 404")
    }
    assert [page for page, _ in rows.values() if (page["problem"] is None) != (page["outcome"] == "ok")] == []
    binary = [(page["outcome"], page["archive_segment"]) for url, (page, _) in rows.items() if "/binary/" in url]
    assert set(binary) == {("wrong_type", None)}
    titles = [page["title"] for url, (page, _) in rows.items() if "/nul/" in url]
    assert titles
    assert not any("\0" in (title or "") for title in titles)
    domain = crawls.domain(web.address.host(0))
    assert domain["pages_crawled"] == sum(hit.status == 200 for hit in seen if "/binary/" not in hit.path) - 1
    assert domain["images_found"] == crawls.value("SELECT sum(images_found) FROM crawl_log") > 0
    assert crawls.value("SELECT sum(bytes) FROM crawl_runs") == crawls.value("SELECT sum(bytes) FROM crawl_log") > 0
    crawls.verify()


def test_the_archive_holds_what_was_sent(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(1)).completed
    folder = crawls.folder / "data" / "archive"
    refs = crawls.rows(
        "SELECT f.url, p.archive_segment, p.archive_offset, p.archive_length, p.payload_digest, p.content_length "
        "FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key) WHERE p.outcome = 'ok'"
    )
    assert len(refs) >= 20
    for url, segment, offset, length, digest, size in refs:
        stored = ArchiveReader(folder).read(ArchiveRef(segment, offset, length, bytes(digest)))
        assert stored.url == url
        assert len(stored.body) == size
        assert stored.status == 200
    assert list(ArchiveReader(folder).check()) == []
    assert crawls.value("SELECT count(*) FROM page_texts") == 0  # nobody asked for them
    assert crawls.command("verify", "--json") == 0


def test_nothing_is_archived_where_nobody_wants_it(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(1), archive=False).completed
    assert crawls.value("SELECT count(archive_segment) FROM crawled_pages") == 0
    folder = crawls.folder / "data" / "archive"
    assert not folder.exists() or not [file for file in folder.rglob("*") if file.is_file()]
    crawls.verify()


def test_export(crawls: Crawls, web: WebProcess) -> None:
    crawls.crawl(web.url(1))
    target = crawls.folder / "pages.jsonl"
    assert crawls.command("export", "pages", str(target), "--text") == 0
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert {line["url"] for line in lines} == {
        url
        for (url,) in crawls.rows("SELECT url FROM crawled_pages JOIN url_frontier USING (domain_id, job_id, url_key)")
    }
    home = next(line for line in lines if line["url"] == web.url(1))
    assert home["title"] == "home of site 1, version 0"
    assert home["text"].startswith("home of site 1")  # from the archive


def test_a_flush_only_at_the_end(crawls: Crawls, web: WebProcess) -> None:
    """`DOMAIN_STATS_FLUSH_INTERVAL_PAGES` = 0: one commit for a site that needs no second look, and the same result."""
    crawls.set(flush={"pages": 0})
    assert crawls.crawl(web.url(0)).completed
    assert crawls.domain(web.address.host(0))["status"] == "exhausted"
    crawls.verify()


def test_the_language_of_a_page_wherever_pages_are_shown(
    crawls: Crawls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the page, else from the header; in the list, the facts, the export, the explanation, and through the client."""
    is_html = {"Content-Type": "text/html"}
    links = b"<a href=/header>a</a><a href=/long>b</a><a href=/none>c</a><a href=/gone>d</a>"
    pages = {
        "/": Page(b"<html lang=' de-AT '>" + links, headers={**is_html, "Content-Language": "en"}),
        "/header": Page(b"<html lang=''>x", headers={**is_html, "Content-Language": "EN, fr"}),
        "/long": Page(b"<html lang=%s>x" % (b"x" * 99), headers=is_html),
        "/none": Page(b"x", headers=is_html),
        "/gone": Page(b"x", 404, {**is_html, "Content-Language": "it"}),
    }
    with Pages(pages) as site:
        crawls.crawl(site.url(), delay=0)
        named = {"/": "de-at", "/header": "en, fr", "/long": "x" * 35, "/none": None, "/gone": "it"}
        expected = {site.url(path): language for path, language in named.items()}
    with serving(crawls.database, settings(tmp_path)) as api, Client(api.url, key=api.key(Role.USER)) as client:
        assert {page.url: page.content_language for page in client.pages()} == expected
        assert {url: client.page(url)[0].content_language for url in expected} == expected
        lines = b"".join(client.exported("pages")).splitlines()
        assert {row["url"]: row["content_language"] for row in map(json.loads, lines)} == expected
        told = {url: client.explain(url).told["entries"][0]["page"] for url in expected}
        assert {url: page["content_language"] for url, page in told.items()} == expected
    for url, language in expected.items():
        capsys.readouterr()
        assert crawls.command("explain", url) == 0
        shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Language ")]
        assert [line.split(maxsplit=1)[1] for line in shown] == ([] if language is None else [language])
