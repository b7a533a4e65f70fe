"""Crawls that store the content of pages: each page has its document once, whatever is killed; who takes content back has it removed."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast import factories
from holdfast.documents.service import DocumentService
from holdfast.errors import NotFound
from holdfast.pages.texts import decompress
from holdfast.search.service import SearchService
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages
from tests.unit.parse.bombs import BOMBS

PAGES = 14
NOTICE = "This manual describes version seven"


def page(number: int, head: str = "") -> Page:
    links = "".join(f'<a href="/{other}">Chapter {other}</a> ' for other in range(PAGES))
    body = (
        f"<main><p>{NOTICE}</p><h1>Chapter {number}</h1><p>Only chapter {number} says {'x' * (number + 1)}.</p></main>"
    )
    text = f"<!doctype html><html lang=en><head><title>Chapter {number}</title>{head}</head><nav>{links}</nav>{body}</html>"
    return Page(text.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


@pytest.fixture
def manual() -> Iterator[Pages]:
    answers = {f"/{number}": page(number) for number in range(PAGES)}
    with Pages({"/": page(0), **answers}) as site:
        yield site


def stored(crawls: Crawls) -> list[str]:
    query = "SELECT f.url FROM documents d JOIN url_frontier f USING (domain_id, job_id, url_key) ORDER BY f.url"
    return [row[0] for row in crawls.rows(query)]


def fetched(crawls: Crawls) -> list[str]:
    query = "SELECT f.url FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key) WHERE p.outcome = 'ok' ORDER BY 1"
    return [row[0] for row in crawls.rows(query)]


def documents(crawls: Crawls) -> DocumentService:
    return factories.document_service(crawls.settings, crawls.database)


def test_a_kill_loses_no_document_and_the_site_is_decided_at_the_end(crawls: Crawls, manual: Pages) -> None:
    last = manual.answers["/9"]
    manual.answers["/9"] = replace(
        last, delay=20.0
    )  # longer than a request may take: the crawl is killed before its end
    job = crawls.begin(manual.url(), markdown=True).job
    with crawls.start("worker", "--name", "w1", "--job", job.name) as worker:
        wait_for(lambda: len(stored(crawls)) >= 3, "some documents")
        worker.kill()
    assert manual.url("/9") not in fetched(crawls)
    crawls.verify()
    manual.answers["/9"] = last
    with crawls.worker(job, "w1") as thread:
        thread.end()
    assert len(fetched(crawls)) == PAGES + 1
    assert stored(crawls) == fetched(crawls)
    assert crawls.value("SELECT count(*) FROM page_parses WHERE due OR error IS NOT NULL") == 0
    assert crawls.value("SELECT count(*) FROM documents WHERE counted_pages IS NULL") == 0
    crawls.verify()
    shown = [documents(crawls).show(url) for url in stored(crawls)]
    assert all(NOTICE not in one.text and "Only chapter" in one.text for one in shown)
    assert all(5 <= (one.counted_pages or 0) <= PAGES + 1 for one in shown)


def test_a_page_that_is_gone_or_asks_not_to_be_indexed_has_no_document_any_more(crawls: Crawls, manual: Pages) -> None:
    assert crawls.crawl(manual.url(), delay=0, markdown=True).completed
    assert manual.url("/3") in stored(crawls)
    search = SearchService(crawls.database, crawls.folder)
    search.update()
    assert search.search("xxxx").total == 1
    manual.answers["/3"] = page(3, head="<meta name=robots content='noindex, follow'>")
    manual.answers["/4"] = Page(page(4).body, headers={"Content-Type": "text/html", "X-Robots-Tag": "noindex"})
    del manual.answers["/5"]
    before = stored(crawls)
    assert crawls.crawl(manual.url(), delay=0, markdown=True, again=True).completed
    assert set(before) - set(stored(crawls)) == {manual.url(path) for path in ("/3", "/4", "/5")}
    search.update()
    assert search.search("xxxx").total == 0
    with pytest.raises(NotFound, match="noindex"):
        documents(crawls).show(manual.url("/3"))
    crawls.verify()


def texts(crawls: Crawls) -> dict[str, str]:
    query = "SELECT f.url, t.body FROM page_texts t JOIN url_frontier f USING (domain_id, job_id, url_key)"
    return {url.rpartition("/")[2]: decompress(body) for url, body in crawls.rows(query)}


def exported(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> dict[str, str | None]:
    assert crawls.command("export", "pages", "-", "--text") == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return {one["url"].rpartition("/")[2]: one["text"] for one in lines if one["outcome"] == "ok"}


def test_texts_are_the_main_text_with_its_lines(
    crawls: Crawls, manual: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with documents and without, from the database and from the archive."""
    manual.answers["/4"] = page(4, head="<meta name=robots content='noindex, follow'>")
    manual.answers["/5"] = Page(b"plain  text", headers={"Content-Type": "text/plain"})
    expected = f"{NOTICE}\n\nChapter 3\n\nOnly chapter 3 says xxxx."
    for markdown in (False, True):
        assert crawls.crawl(manual.url(), delay=0, text=True, markdown=markdown, again=True).completed
        found = texts(crawls)
        assert (found["3"], found["5"], found.get("4")) == (expected, "plain text", None)
        assert crawls.value("SELECT count(*) FROM page_parses WHERE due OR error IS NOT NULL") == 0
        assert bool(stored(crawls)) == markdown
        assert {one: text for one, text in exported(crawls, capsys).items() if text is not None} == found
    crawls.connection.execute("DELETE FROM page_texts")
    assert exported(crawls, capsys) == found | {"4": None}
    crawls.verify()


def test_without_an_archive_texts_are_all_visible_text(crawls: Crawls, manual: Pages) -> None:
    assert crawls.crawl(manual.url(), delay=0, text=True, archive=False).completed
    assert texts(crawls)["3"].endswith(f"Chapter 13 {NOTICE} Chapter 3 Only chapter 3 says xxxx.")
    assert crawls.value("SELECT count(*) FROM page_parses") == 0


def test_a_hostile_page_costs_one_timeout(crawls: Crawls, manual: Pages) -> None:
    crawls.set(parsing={"timeout": 1})
    manual.answers["/3"] = Page(BOMBS["nested"] + b"<p>after", headers={"Content-Type": "text/html"})
    assert crawls.crawl(manual.url(), delay=0, markdown=True).completed
    failed = "SELECT url, due, r.attempts, error FROM page_parses r JOIN url_frontier USING (domain_id, job_id, url_key) WHERE error <> ''"
    ((url, due, attempts, error),) = crawls.rows(failed)
    assert (url, due, attempts) == (manual.url("/3"), False, 1)
    assert "timed out" in error
    assert len(stored(crawls)) == PAGES
