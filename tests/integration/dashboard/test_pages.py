"""Pages in the dashboard: search, everything about one page, actions, purge."""

import html as markup
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

from holdfast.dashboard.pages.pages import diff_lines
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.model.url import url_key
from holdfast.operations.service import OperationService
from holdfast.pages import queries
from tests.integration.archive.exchanges import exchange, keep, writer
from tests.support.api import serving, settings
from tests.support.browsing import Browser, log_in
from tests.support.crawled import HOME, NASTY, crawl_a_little
from tests.support.crawls import Crawls
from tests.support.factories import Store
from tests.support.furnished import put_items
from tests.support.pages import Pages, html


@pytest.fixture
def store(connection: psycopg.Connection) -> Store:
    return Store(connection)


@pytest.fixture
def job(database: Database, store: Store) -> str:
    """The name of a job that has crawled a little."""
    crawl_a_little(database, store)
    return str(store.value("SELECT name FROM crawl_jobs WHERE id = %s", store.job))


def test_without_pages_the_list_says_what_to_do(rita: Browser, ada: Browser) -> None:
    page = rita.get("/pages")
    assert page.status == 200
    assert "No page was fetched yet." in page.words
    assert "/jobs/new" not in page.text
    assert "/jobs/new" in ada.get("/pages").text


def test_the_list_and_its_filters(rita: Browser, job: str) -> None:
    page = rita.get("/pages")
    assert "4 rows shown" in page.words
    assert "404 not found" in page.words
    assert ">Images</th>" not in page.text
    assert f"/jobs/{job}" in page.text
    assert "\x1b" not in page.text
    assert f"=HYPERLINK({'&#34;'}x" in page.text
    for query, rows in {
        "domain=example.com": 4,
        f"job={job}": 4,
        "status=404": 1,
        "status_class=4": 1,
        "outcome=not_found": 1,
        "content_type=text/html": 2,
        "until=2031-01-01T00:00&order=oldest": 4,
    }.items():
        words = rita.get(f"/pages?{query}").words
        assert f"{rows} rows shown" in words or (rows == 1 and "1 row shown" in words), query
    kept = rita.get("/pages?status=404&outcome=not_found").text
    assert 'name="status" inputmode="numeric" value="404"' in kept
    assert '<option value="not_found" selected>' in kept
    assert "No page fits these filters." in rita.get("/pages?status=500").words
    assert "No page fits these filters." in rita.get("/pages?since=2031-01-01T00:00").words
    assert f"format=csv&amp;domain=example.com&amp;job={job}" in rita.get(f"/pages?job={job}&domain=example.com").text


def test_pages_by_title_and_by_the_beginning_of_their_url(rita: Browser, store: Store, job: str) -> None:
    store.connection.execute("UPDATE crawled_pages SET title = 'Annual report' WHERE title = 'A'")
    assert "1 row shown" in rita.get("/pages?title=report+annual").words
    assert "No page fits these filters." in rita.get("/pages?title=report+-annual").words
    assert "2 rows shown" in rita.get("/pages", url_prefix=f"{HOME}a").words
    assert "4 rows shown" in rita.get("/pages", url_prefix="example.com").words
    assert 'value="report annual"' in rita.get("/pages?title=report+annual").text
    assert "leave one of them out" in rita.get("/pages", url_prefix=HOME, domain="other.example").notice


def test_a_search_that_looked_at_many_rows_says_so_and_goes_on(
    rita: Browser, store: Store, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.connection.execute(
        "UPDATE crawled_pages SET title = 'rare', crawled_at = crawled_at - interval '1 h' WHERE title = 'A'"
    )
    monkeypatch.setattr(queries, "PAGES", replace(queries.PAGES, scan_limit=2, sort_limit=0))
    page = rita.get("/pages?title=rare")
    assert "No page fits these filters so far." in page.words
    assert "Looked at 2 rows. Continue the search" in page.words
    assert page.next is not None
    assert "title=rare&cursor=" in page.next
    assert f"{HOME}a" in rita.get(page.next).words


def test_wrong_filters_are_said_at_the_top(rita: Browser) -> None:
    assert rita.get("/pages?status=abc").notice == "“Status” must be a whole number."
    assert "“Outcome” must be one of" in rita.get("/pages?outcome=nice").notice
    assert "“Since” must be a time" in rita.get("/pages?since=yesterday").notice
    assert rita.get("/pages?domain=nowhere.example").notice
    assert rita.get("/pages?cursor=AAAA").notice


def test_everything_about_a_page(rita: Browser, connection: psycopg.Connection, job: str) -> None:
    put_items(connection, HOME, {"name": "Lamp"})
    page = rita.get("/pages/page", url=HOME)
    assert page.status == 200
    assert "done: it was fetched, and is a page" in page.words
    assert "Content type text/html; charset=utf-8" in page.words
    assert "1.2 kB" in page.words
    assert "https://example.com/robots.txt of" in page.words
    assert "42 ms" in page.words
    assert "by shop in" in page.words
    assert "/items/item?url=https%3A%2F%2Fexample.com%2F" in page.text
    assert "\x1b" not in page.text
    assert NASTY.partition("\x1b")[0] in page.words
    assert f"Facts of job {job}" in page.words
    assert f"Facts of job {job}" in rita.get("/pages/page", url=HOME, job=job).words
    other = rita.get("/pages/page", url=HOME, job="nothing")
    assert other.status == 200
    assert "Job nothing does not know this URL" in other.words


def test_pages_that_were_not_crawled_say_why(rita: Browser, job: str) -> None:
    denied = rita.get("/pages/page", url=f"{HOME}private/x")
    assert "Disallow: /private (line 2)" in denied.words
    assert "denies it for" in denied.words
    slow = rita.get("/pages/page", url=f"{HOME}slow")
    assert "it was tried once, and will be tried again" in slow.words
    outside = rita.get("/pages/page", url="https://outside.example/")
    assert outside.status == 200
    assert "a link that is not followed" in outside.words
    assert f"Found on {HOME}" in outside.words


HEAD = b"HTTP/1.1 200 Fine\r\nContent-Type: text/html; charset=utf-8\r\nX-Served-By: <i>one</i>\r\n\r\n"
BODY = b"""<title>A</title><p>Some <b>words</b></p><a href="/lamp" rel=nofollow>A lamp</a><script>alert(1)</script>
<a href="https://other.example/x">&lt;u&gt;Else</a>"""


def archive(connection: psycopg.Connection, folder: Path, body: bytes, url: str = f"{HOME}a") -> None:
    """Put the response for a page into the archive."""
    segments = writer(folder / "archive")
    (ref,) = keep(segments, [exchange(url, body, response_head=HEAD)])
    segments.close()
    connection.execute(
        """UPDATE crawled_pages SET archive_segment = %s, archive_offset = %s, archive_length = %s, payload_digest = %s
        WHERE url_key = %s""",
        (ref.segment, ref.offset, ref.length, ref.payload_digest, url_key(url)),
    )


def test_text_links_and_source_of_a_page(rita: Browser, store: Store, job: str, tmp_path: Path) -> None:
    archive(store.connection, tmp_path, BODY)
    url = f"{HOME}a"
    text = rita.get("/pages/text", url=url)
    assert "Some words" in text.words
    links = rita.get("/pages/links", url=url, job=job)
    assert "A lamp https://example.com/lamp" in links.words
    assert "nofollow" in links.words
    assert "<u>Else https://other.example/x" in links.words
    assert "<u>" not in links.text
    source = rita.get("/pages/source", url=url)
    assert "HTTP/1.1 200 Fine" in source.words
    assert "x-served-by <i>one</i>" in source.words
    assert "<script>alert(1)</script>" in source.words
    assert "alert(1)</script>" not in source.text
    assert "<i>one" not in source.text
    for tab in ("page", "text", "links", "source"):
        page = rita.get(f"/pages/{tab}", url=url, job=job)
        assert page.text.count('aria-current="page"') == 2, tab  # in the navigation, and of the tabs
        assert f"Job {job} only" in page.words


def test_a_long_source_is_cut_with_a_note(rita: Browser, store: Store, job: str, tmp_path: Path) -> None:
    archive(store.connection, tmp_path, b"<p>" + b"word " * 300_000)
    page = rita.get("/pages/source", url=f"{HOME}a")
    assert "It is cut: the first 1,000,000 characters are shown." in page.words
    assert 1_000_000 < len(page.text) < 1_100_000


def test_where_nothing_is_archived_a_sentence_says_why(rita: Browser, job: str) -> None:
    assert "is not archived" in rita.get("/pages/source", url=f"{HOME}a").words
    assert "The links are not known." in rita.get("/pages/links", url=f"{HOME}a").words
    assert "Sécond line." in rita.get("/pages/text", url=HOME).words
    assert "It has no response that is stored" in rita.get("/pages/source", url=f"{HOME}slow").words
    assert rita.get("/pages/source", url=f"{HOME}never").status == 404


@pytest.fixture
def beside(crawls: Crawls) -> Iterator[Browser]:
    """A user of a server that has the archive of the test's crawls."""
    with serving(crawls.database, settings(crawls.folder / "data")) as api:
        yield log_in(api, "rita", Role.USER)


def test_versions_and_what_changed(beside: Browser, crawls: Crawls) -> None:
    host = "127.0.0.1"
    with Pages({"/": html("/p"), "/p": html(text="the price is 10 euro")}) as pages:
        url = pages.url("/p", host=host)
        crawls.crawl(pages.url(host=host), job="shop")
        one = beside.get("/pages/changes", url=url)
        assert "There is one version." in one.words
        for text in ("the price is 12 <b>euro</b>", "sold"):
            pages.answers["/p"] = html(text=text)
            crawls.crawl(pages.url(host=host), job="shop", again=True)
    page = beside.get("/pages/changes", url=url, job="shop")
    assert "3 (current)" in page.words
    assert "From version 2 to 3" in page.words
    assert "+sold" in page.words
    older = beside.get("/pages/changes", url=url, older=1, newer=2)
    assert "From version 1 to 2" in older.words
    assert '<span class="removed">-the price is 10 euro' in older.text
    assert '<span class="added">+the price is 12 euro' in older.text
    assert '<span class="place">@@' in older.text
    assert 'value="1" aria-label="Version 1 as the older one" checked' in older.text
    assert "has no version 9" in beside.get("/pages/changes", url=url, newer=9).notice
    first = "/pages/source?" + urlencode({"url": url, "job": "shop", "version": 1})
    assert markup.escape(first) in page.text
    for tab, path in (("source", first), ("text", first.replace("source", "text", 1))):
        shown = beside.get(path)
        assert f'id="{tab}"' in shown.text
        assert "the price is 10 euro" in shown.words
        assert "This is version 1." in shown.words
    assert "sold" in beside.get("/pages/source", url=url, version=3).words
    assert "sold" in beside.get("/pages/source", url=url).words
    assert beside.get("/pages/source", url=url, version=9).status == 404
    spoken = beside.client.get("/api/pages/source", params={"url": url, "version": 2}).json()
    assert spoken["text"] == "the price is 12 euro"
    assert "must have the lower number" in beside.get("/pages/changes", url=url, older=2, newer=1).notice


def test_a_url_without_a_response_has_no_version(rita: Browser, job: str) -> None:
    assert "There is no version yet." in rita.get("/pages/changes", url=f"{HOME}slow").words


def test_the_lines_of_a_diff() -> None:
    lines = diff_lines("--- version 1\n+++ version 2\n@@ -1 +1 @@\n same\n-old\n+new")
    assert [kind for kind, _ in lines] == ["place", "place", "place", "", "removed", "added"]
    assert diff_lines("") == []


def test_a_url_is_retried(ada: Browser, rita: Browser, store: Store, job: str) -> None:
    gone, target = f"{HOME}gone", f"/pages/page?url={HOME}gone"
    assert "/pages/retry" not in rita.get(target).text
    done = ada.send(target, "/pages/retry")
    assert done.notice.startswith(f"The URL waits again in job {job}.")
    assert store.value("SELECT state::text FROM url_frontier WHERE url = %s", gone) == "waiting"
    assert "/pages/retry" not in ada.get(target).text
    token = ada.get(target).fields("/pages/task")["csrf"]
    again = ada.post("/pages/retry", csrf=token, url=gone, job=job)
    assert again.notice == f"Job {job} does not retry the URL: it waits already."
    page = ada.post("/pages/retry", csrf=token, url=HOME, job=job)
    assert "it is crawled" in page.notice


def test_a_url_that_nobody_knows(rita: Browser, ada: Browser, job: str) -> None:
    page = rita.get("/pages/page", url=f"{HOME}<b>never</b>")
    assert page.status == 404
    assert "No job has discovered" in page.words
    assert "<b>never" not in page.text
    assert "An admin can add it to a job" in page.words
    assert page.forms() == ["/logout"]
    assert {"/pages/task", "/pages/seed"} <= set(ada.get("/pages/page", url=f"{HOME}never").forms())
    assert "http://example.com/ is" not in page.words
    assert rita.get("/pages/page", url="ftp://example.com/").status in (400, 422)
    assert rita.get("/pages/page").status == 422


def test_a_url_as_a_task(ada: Browser, store: Store, job: str) -> None:
    target = f"/pages/page?url={HOME}a"
    done = ada.send(target, "/pages/task", url=f"{HOME}a")
    assert done.notice.startswith("Task ")
    assert store.value("SELECT url FROM crawl_tasks") == f"{HOME}a"
    assert "has task" in ada.send(target, "/pages/task", url=f"{HOME}a").notice


def test_a_url_as_a_seed_of_a_job(ada: Browser, store: Store, job: str) -> None:
    url = f"{HOME}new"
    assert ada.get("/pages/page", url=url).status == 404
    done = ada.send(f"/pages/page?url={url}", "/pages/seed", url=url, job=job)
    assert (done.status, done.notice) == (200, f"The URL waits in job {job}.")
    assert store.value("SELECT state::text FROM url_frontier WHERE url = %s", url) == "waiting"
    known = ada.send(f"/pages/page?url={url}", "/pages/seed", url=url, job=job)
    assert known.notice == f"Job {job} knows the URL already; it stays as it was."
    assert "nothing" in ada.send(f"/pages/page?url={url}", "/pages/seed", url=url, job="nothing").notice


def test_purge_says_what_it_deletes_and_runs_in_the_background(
    ada: Browser, database: Database, store: Store, job: str
) -> None:
    assert "/pages/purge?domain=example.com" in ada.get("/pages?domain=example.com").text
    page = ada.get("/pages/purge?domain=example.com")
    assert "This deletes 4 pages" in page.words
    assert "The log of requests, the counters and the archive stay as they are." in page.words
    done = ada.send("/pages/purge?domain=example.com", "/pages/purge")
    assert "deletes the pages in the background" in done.notice
    (asked,) = OperationService(database).listing()
    assert (asked.kind, asked.arguments["domain"], asked.arguments["job"]) == ("purge-pages", "example.com", None)
    assert "This deletes 4 pages: all of all jobs" in ada.get("/pages/purge").words
    assert "No page would be deleted." in ada.get("/pages/purge?before=2020-01-01T00:00").words
    assert ada.get("/pages/purge?domain=nowhere.example").status == 404


def test_a_user_only_reads(rita: Browser, store: Store, job: str) -> None:
    assert "/pages/purge" not in rita.get("/pages").text
    assert rita.get("/pages/purge").forms() == ["/logout"]
    before = store.value("SELECT count(*) FROM audit_log")
    forms: dict[str, dict[str, Any]] = {
        "/pages/retry": {"url": f"{HOME}gone", "job": job},
        "/pages/task": {"url": HOME},
        "/pages/seed": {"url": f"{HOME}x", "job": job},
        "/pages/purge": {"domain": "example.com"},
    }
    for target, fields in forms.items():
        assert rita.forge(target, **fields).status == 403, target
    assert store.value("SELECT count(*) FROM audit_log") == before
    assert rita.get("/pages/page", url=HOME).forms() == ["/logout"]


def test_pages_are_counted_over_the_api(ada: Browser, job: str) -> None:
    client = ada.api.reader
    assert client.get("/api/pages/count", params={"job": job}).json() == {"pages": 4, "more": False}
    assert client.get("/api/pages/count?before=2020-01-01T00:00:00Z").json()["pages"] == 0
    assert client.get("/api/pages/count?domain=nowhere.example").status_code == 404
