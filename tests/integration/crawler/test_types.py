"""Content beside HTML in a crawl: what is read, what is stored of it, what is left out, and what may be wrong with it."""

import io
import json
import zipfile

import pytest

from holdfast import factories
from holdfast.archive.reader import ArchiveReader
from holdfast.errors import UsageError
from holdfast.jobs import edits, summary
from holdfast.model.content_type import ContentGroup
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.scope import RuleSettings
from holdfast.pages.records import ArchivedPage
from tests.support.crawls import Crawls
from tests.support.pages import Page, Pages, html
from tests.support.pdfs import encrypted, pdf

RSS = b"<?xml version='1.0'?><rss version='2.0'><channel><title>News</title></channel></rss>"


def of_type(content_type: str | None, body: bytes, **headers: str) -> Page:
    return Page(body, headers=({"Content-Type": content_type} if content_type else {}) | headers)


def packed(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "<w/>")
    return file.getvalue()


BINARY = "application/octet-stream"
DOCUMENT = pdf("Every word", "of the manual", title="The manual", links=["/from-pdf", "https://elsewhere.example/"])
OTHERS = {
    "/a.pdf": of_type("application/pdf", DOCUMENT, ETag='"1"'),
    "/unnamed": of_type(None, pdf("without a type")),
    "/download": of_type(BINARY, pdf("a download")),
    "/lies": of_type("text/html", pdf("no page")),
    "/data.json": of_type("application/json", json.dumps({"word": "ümlaut", "link": "/no"}).encode()),
    "/data.xml": of_type("application/xml", "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>".encode("latin-1")),
    "/rows.csv": of_type("text/csv; charset=utf-8", b"a,b\n1,2\n"),
    "/feed": of_type("application/rss+xml", RSS),
    "/letter.docx": of_type(BINARY, packed("[Content_Types].xml", "word/document.xml")),
    "/old.doc": of_type("application/msword", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)),
    "/picture.png": of_type("image/png", b"\x89PNG\r\n\x1a\n"),
    "/files.zip": of_type(BINARY, packed("readme.txt")),
    "/tool": of_type(BINARY, b"\x7fELF" + bytes(5_000_000)),
    "/style.css": of_type("text/css", b"p {}"),
}
ALWAYS = {"/", "/unnamed", "/lies"}
"""HTML, and what says that it is, or says nothing."""
LEFT_OUT = {"/picture.png", "/files.zip", "/tool", "/style.css"}


@pytest.fixture
def site() -> Pages:
    """A page that links to one file of each type."""
    return Pages({"/": html(*OTHERS), "/from-pdf": html(), **OTHERS})


def outcomes(crawls: Crawls) -> dict[str, str]:
    found = crawls.rows("SELECT page_url, outcome FROM crawl_log ORDER BY crawled_at")
    return {f"/{url.split('/', 3)[3]}": outcome for url, outcome in found}


def taken(crawls: Crawls) -> set[str]:
    return {path for path, outcome in outcomes(crawls).items() if outcome == "ok"}


def source(crawls: Crawls, url: str) -> ArchivedPage:
    return factories.page_service(crawls.settings, crawls.database).source(url)


def archived(crawls: Crawls, url: str) -> bytes:
    ((segment, *rest),) = crawls.rows(
        "SELECT archive_segment, archive_offset, archive_length, payload_digest FROM crawled_pages "
        "JOIN url_frontier USING (domain_id, job_id, url_key) WHERE url = %s",
        url,
    )
    return ArchiveReader(factories.archive_folder(crawls.settings)).read(ArchiveRef(segment, *rest)).body


def test_all_types_are_archived_and_have_their_text(crawls: Crawls, site: Pages) -> None:
    with site:
        assert crawls.crawl(site.url(), types=(ContentGroup.ALL,), text=True).completed
    assert taken(crawls) == {"/", "/from-pdf", *OTHERS} - LEFT_OUT
    stored = {path: archived(crawls, site.url(path)) for path in set(OTHERS) - LEFT_OUT}
    assert stored == {path: OTHERS[path].body for path in stored}
    texts = {path: source(crawls, site.url(path)).text for path in stored}
    assert texts == {
        "/a.pdf": "Every word of the manual",
        "/unnamed": "without a type",
        "/download": "a download",
        "/lies": "no page",
        "/data.json": '{"word": "\\u00fcmlaut", "link": "/no"}',
        "/data.xml": "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>",
        "/rows.csv": "a,b 1,2",
        "/feed": RSS.decode(),
        "/letter.docx": None,
        "/old.doc": None,
    }
    shown = source(crawls, site.url("/a.pdf"))
    assert (shown.body, shown.problem, [link.url for link in shown.links]) == (
        None,
        None,
        [site.url("/from-pdf"), "https://elsewhere.example/"],
    )
    assert shown.missing == (
        f"The body is a PDF of {len(DOCUMENT):,} bytes; what can be shown of it is its text and its links."
    )
    ((title, kind, length, links, charset),) = crawls.rows(
        "SELECT title, content_type, content_length, links_count, charset FROM crawled_pages WHERE title = 'The manual'"
    )
    assert (title, kind, length, links, charset) == ("The manual", "application/pdf", len(DOCUMENT), 2, None)
    # The link of a PDF is judged as one of a page.
    assert crawls.frontier("%elsewhere%") == {
        "https://elsewhere.example/": ("denied", f"out_of_scope: elsewhere.example is not localhost:{site.port}")
    }
    # Of what is not wanted next to nothing is read.
    assert crawls.value("SELECT max(bytes) FROM crawl_log WHERE outcome = 'wrong_type'") < 1_000_000
    crawls.verify()


def test_what_was_left_out_is_counted_by_type_and_fetched_when_its_type_is_wanted(crawls: Crawls, site: Pages) -> None:
    with site:
        crawls.crawl(site.url(), job="j")
        assert taken(crawls) == ALWAYS
        lines = list(summary.lines(summary.summarize_job(crawls.connection, crawls.desk.job("j"))))
        assert lines[1].strip() == (
            "12  not HTML (4 application/octet-stream, 1 application/json: `--types json`, 1 application/msword: `--types office`, "
            "1 application/pdf: `--types pdf`, 1 application/rss+xml: `--types feeds`, 1 application/xml: `--types xml`, 1 image/png, "
            "1 text/css, 1 text/csv: `--types text`)"
        )
        site.asked.clear()
        site.headers.clear()
        assert crawls.crawl(job="j", types=(ContentGroup.PDF, ContentGroup.FEEDS)).completed
        # XML might be a feed, and a download a PDF, but it is not known of those that were left out.
        assert set(site.paths()) == {"/a.pdf", "/feed", "/from-pdf"}
        assert all("if-none-match" not in headers for _, headers in site.headers)
        site.asked.clear()
        assert crawls.crawl(job="j", again=True).completed
    assert taken(crawls) == ALWAYS | {"/download", "/feed", "/from-pdf"}
    assert outcomes(crawls)["/a.pdf"] == "not_modified"  # the only one with an ETag
    crawls.verify()


def test_an_edit_of_a_job_takes_what_it_left_out(crawls: Crawls, site: Pages) -> None:
    with site:
        job = crawls.begin(site.url(), job="j").job
        crawls.crawl(job="j")
        changes = edits.parse(["types=text,json"])
        rules = RuleSettings(10, registrable=False)
        changed, _ = edits.edit(crawls.connection, job.id, changes, None, actor="test", settings=rules)
        assert changed == ["types"]
        edits.follow_up(crawls.desk, job.id, changed)
        site.asked.clear()
        assert crawls.crawl(job="j").completed
        assert set(site.paths()) == {"/data.json", "/rows.csv"}
        with pytest.raises(UsageError, match="'csv' is no group of types; there are pdf, json"):
            edits.parse(["types=csv"])


def test_feeds_that_are_read_for_their_urls_are_archived_if_the_job_takes_feeds(crawls: Crawls) -> None:
    crawls.set(crawl={"sitemaps": "also"})
    head = '<link rel="alternate" type="application/rss+xml" href="/feed">'
    with Pages() as site:
        item = RSS.replace(b"<title>", f"<item><link>{site.url('/news')}</link></item><title>".encode())
        site.answers |= {"/": html(head=head), "/feed": of_type("text/xml", item), "/news": html()}
        assert crawls.crawl(site.url(), types=(ContentGroup.FEEDS,)).completed
        assert archived(crawls, site.url("/feed")) == item
    assert outcomes(crawls)["/feed"] == "sitemap"
    assert taken(crawls) == {"/", "/news"}
    assert crawls.total() == 2
    crawls.verify()


def test_what_cannot_be_read_is_kept_and_said(crawls: Crawls) -> None:
    broken = {
        "/locked": encrypted(pdf("secret"), "password"),
        "/open": encrypted(pdf("for all"), ""),
        "/cut": DOCUMENT[:400],
        "/bomb": pdf("large", "and a page", unpacked=200_000_000),
        "/html": html().body,
        "/empty": b"",
    }
    with Pages({"/": html(*broken, "/noindex")}) as site:
        site.answers |= {path: of_type("application/pdf", body) for path, body in broken.items()}
        site.answers["/noindex"] = of_type("application/pdf", DOCUMENT, **{"X-Robots-Tag": "noindex, nofollow"})
        site.answers["/from-pdf"] = html()
        assert crawls.crawl(site.url(), types=(ContentGroup.PDF,), text=True).completed
        found = {path: source(crawls, site.url(path)) for path in broken}
    assert taken(crawls) == {"/", "/noindex", *broken}
    problems = crawls.rows(
        "SELECT url, problem FROM crawled_pages JOIN url_frontier USING (domain_id, job_id, url_key) WHERE problem IS NOT NULL"
    )
    assert {url.rpartition("/")[2]: problem.partition(" (")[0] for url, problem in problems} == {
        "locked": "the PDF is encrypted, and needs a password",
        "cut": "the PDF is damaged",
        "bomb": "1 of the 2 pages of the PDF cannot be read",
        "html": "its type says PDF, and its content is none",
        "empty": "its type says PDF, and its content is none",
    }
    assert (found["/open"].text, found["/bomb"].text) == ("for all", "and a page")
    assert crawls.rows("SELECT title, noindex, nofollow FROM crawled_pages WHERE noindex") == [(None, True, True)]
    crawls.verify()


def test_types_are_given_on_the_command_line(crawls: Crawls) -> None:
    assert (
        crawls.command("jobs", "create", "files", "https://a.example/", "--types", "office,pdf", "--types", "PDF") == 0
    )
    assert crawls.value("SELECT spec->'types' FROM crawl_jobs WHERE name = 'files'") == ["pdf", "office"]
    assert crawls.command("jobs", "set", "files", "types=") == 0
    assert crawls.value("SELECT spec->'types' FROM crawl_jobs WHERE name = 'files'") == []
    assert crawls.command("crawl", "https://a.example/", "--types", "docx") == 2
