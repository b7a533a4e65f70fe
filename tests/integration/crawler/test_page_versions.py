"""A site that changes between two crawls of a job: its versions, their diff, and the comparison of the crawls."""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import factories
from holdfast.archive.reader import ArchiveReader
from holdfast.control.verify import BYTES, Verifier
from holdfast.errors import NotFound, UsageError
from holdfast.jobs.records import PageChange
from holdfast.jobs.service import JobService
from holdfast.pages.service import PageService
from holdfast.pages.source import SourceReader
from holdfast.pages.text_diff import MAX_TEXT
from tests.support.cli import Answer
from tests.support.crawls import Crawls
from tests.support.pages import MISSING, Page, Pages, html

WORDS = "The shop opens at nine. It sells lamps and chairs. Ask for more."
LATER = "The shop opens at ten. It sells lamps and chairs. Ask for more."


@pytest.fixture
def site() -> Iterator[Pages]:
    with Pages() as pages:
        pages.answers |= {
            "/": html("/same", "/changes", "/goes", "/breaks", text="Welcome."),
            "/same": html(text="This never changes."),
            "/changes": html(text=WORDS),
            "/goes": html(text="Here today."),
            "/breaks": html(text="It works."),
        }
        yield pages


def url(site: Pages, path: str = "/") -> str:
    return f"http://127.0.0.1:{site.port}{path}"


def change(site: Pages) -> None:
    """What the site does between the two crawls."""
    site.answers |= {
        "/changes": html("/new", text=LATER),
        "/goes": MISSING,
        "/breaks": Page(b"oops", 500, {"Content-Type": "text/html"}),
        "/new": html(text="Hello."),
    }


def crawl_twice(crawls: Crawls, site: Pages, **options: Any) -> None:
    crawls.set(politeness={"retries": 0})
    crawls.crawl(url(site), job="news", **options)
    change(site)
    crawls.crawl(url(site), job="news", again=True, **options)


@pytest.fixture
def pages(crawls: Crawls) -> PageService:
    return PageService(crawls.database, sources=SourceReader(ArchiveReader(factories.archive_folder(crawls.settings))))


def found(crawls: Crawls, kind: PageChange) -> list[tuple[str, int | None, int | None]]:
    rows = JobService(crawls.database, "ann").compared_pages("news", kind).rows
    assert {row.change for row in rows} <= {kind}
    return sorted((str(row.url).rpartition("/")[2], row.status_before, row.status) for row in rows)


def test_two_crawls_are_compared(crawls: Crawls, site: Pages) -> None:
    jobs = JobService(crawls.database, "ann")
    with pytest.raises(NotFound, match="was not crawled yet"):
        jobs.compare("default")
    crawls.set(politeness={"retries": 0})
    crawls.crawl(url(site), job="news")
    first = jobs.compare("news")
    assert (first.new, first.changed, first.gone, first.unchanged, first.previous_started_at) == (5, 0, 0, 0, None)
    assert found(crawls, PageChange.NEW) == [(name, None, 200) for name in ("", "breaks", "changes", "goes", "same")]
    assert found(crawls, PageChange.UNCHANGED) == []
    change(site)
    crawls.crawl(url(site), job="news", again=True)
    second = jobs.compare("news")
    assert (second.new, second.changed, second.gone, second.failed, second.unchanged) == (1, 1, 1, 1, 2)
    assert (second.previous_started_at, second.at_least) == (first.started_at, [])
    assert found(crawls, PageChange.NEW) == [("new", None, 200)]
    assert found(crawls, PageChange.CHANGED) == [("changes", 200, 200)]
    assert found(crawls, PageChange.GONE) == [("goes", 200, 404)]
    assert found(crawls, PageChange.FAILED) == [("breaks", 200, 500)]
    assert found(crawls, PageChange.UNCHANGED) == [("", 200, 200), ("same", 200, 200)]
    assert crawls.value("SELECT count(*) FROM page_versions") == 3
    site.answers["/breaks"] = html(text="It works.")
    crawls.crawl(url(site), job="news", again=True)
    third = jobs.compare("news")
    assert (third.new, third.changed, third.gone, third.failed, third.unchanged) == (0, 0, 0, 0, 5)
    crawls.verify()


def test_lists_go_on_by_cursors_and_counts_have_a_limit(
    crawls: Crawls, site: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl_twice(crawls, site)
    jobs = JobService(crawls.database, "ann")
    whole = jobs.some_compared("news", PageChange.UNCHANGED, 100)
    assert jobs.some_compared("news", PageChange.UNCHANGED, 1) == whole[:1]
    monkeypatch.setattr("holdfast.jobs.service.MAX_PAGE", 1)
    assert jobs.some_compared("news", PageChange.UNCHANGED, 100) == whole
    with pytest.raises(UsageError, match="no cursor of this list"):
        jobs.compared_pages("news", PageChange.GONE, cursor="x")
    monkeypatch.setattr("holdfast.jobs.queries.comparison.COUNT_LIMIT", 2)
    counted = jobs.compare("news")
    assert (counted.new, counted.changed, counted.gone, counted.failed) == (1, 1, 1, 1)
    assert counted.unchanged <= 2
    assert counted.at_least == [PageChange.UNCHANGED], "five pages were fetched, and two of them looked at"


def test_versions_and_their_diff(crawls: Crawls, site: Pages, pages: PageService) -> None:
    crawl_twice(crawls, site)
    address = url(site, "/changes")
    newest, oldest = pages.versions(address, "news")
    assert [(v.number, v.current, v.change, v.archived) for v in (newest, oldest)] == [
        (2, True, None, True),
        (1, False, "changed", True),
    ]
    assert oldest.replaced_at == newest.crawled_at
    diff = pages.diff(address)
    assert (diff.older, diff.newer, diff.note) == (oldest, newest, None)
    assert {fact.name for fact in diff.facts} == {"content_length"}
    assert diff.text is not None
    assert diff.text.splitlines()[2:] == [
        "@@ -1,3 +1,3 @@",
        "-The shop opens at nine.",
        "+The shop opens at ten.",
        " It sells lamps and chairs.",
        "-Ask for more.",
        "+Ask for more. x",
    ]
    gone = pages.diff(url(site, "/goes"))
    assert {
        fact.name: (fact.older, fact.newer) for fact in gone.facts if fact.name in ("status", "outcome", "title")
    } == {
        "status": (200, 404),
        "outcome": ("ok", "not_found"),
        "title": ("A page", None),
    }
    assert gone.text is not None
    assert gone.text.splitlines()[-1] == "-Here today."


def test_what_cannot_be_compared_says_why(crawls: Crawls, site: Pages, pages: PageService) -> None:
    crawl_twice(crawls, site)
    address = url(site, "/changes")
    with pytest.raises(NotFound, match="has one version; another is stored when"):
        pages.diff(url(site, "/same"))
    with pytest.raises(NotFound, match=r"has no version 7; it has 1, 2\."):
        pages.diff(address, "news", 1, 7)
    with pytest.raises(UsageError, match="2 is not before 2"):
        pages.diff(address, "news", 2, 2)
    with pytest.raises(NotFound, match="no job called"):
        pages.versions(address, "other")
    with pytest.raises(NotFound, match="has no answer yet"):
        pages.versions(url(site, "/nothing"))
    elsewhere = PageService(crawls.database, sources=SourceReader(ArchiveReader(crawls.folder / "nothing"))).diff(
        address
    )
    assert elsewhere.text is None
    assert elsewhere.note is not None
    assert "is in an archive file of worker" in elsewhere.note
    assert "that is not on this machine" in elsewhere.note
    crawls.connection.execute("UPDATE page_versions SET payload_digest = sha256('x')")
    damaged = pages.diff(address)
    assert (damaged.text, damaged.note) == (
        None,
        "The text of version 1 is in an archive file that cannot be read: `holdfast verify` names it.",
    )
    crawls.connection.execute("UPDATE page_versions SET noindex = true")
    assert "asked not to be indexed" in str(pages.diff(address).note)


def test_a_change_that_is_not_in_the_text_is_named(crawls: Crawls, site: Pages, pages: PageService) -> None:
    text, kind = b"<title>%s</title><body>The same words.", {"Content-Type": "text/html"}
    site.answers["/same"] = Page(text % b"Old", headers=kind)
    crawls.crawl(url(site), job="news")
    site.answers["/same"] = Page(text % b"New", headers=kind)
    crawls.crawl(url(site), job="news", again=True)
    diff = pages.diff(url(site, "/same"))
    assert [(fact.name, fact.older, fact.newer) for fact in diff.facts] == [("title", "Old", "New")]
    assert diff.text == ""
    assert diff.note is not None
    assert "differ in markup, in the title" in diff.note


def test_a_job_without_an_archive_has_versions_without_text(crawls: Crawls, site: Pages, pages: PageService) -> None:
    crawl_twice(crawls, site, archive=False)
    diff = pages.diff(url(site, "/changes"))
    assert diff.text is None
    assert diff.note == "The text of version 1 is nowhere: its job was crawled with `--no-archive`."
    assert [version.archived for version in pages.versions(url(site, "/changes"))] == [False, False]


def test_verify_finds_a_version_whose_bytes_are_not_there(crawls: Crawls, site: Pages) -> None:
    crawl_twice(crawls, site)
    verifier = Verifier(crawls.database, 3, ArchiveReader(factories.archive_folder(crawls.settings)))

    def bytes_check() -> tuple[int, int, list[object]]:
        (step,) = [step for step in verifier.run() if step.check == BYTES and step.finding]
        assert step.finding is not None
        return step.looked_at, step.finding.faults, [row.get("version") for row in step.finding.rows]

    assert bytes_check() == (7, 0, []), "four last answers, and three versions"
    crawls.connection.execute("UPDATE page_versions SET archive_offset = archive_offset + 1 WHERE change = 'gone'")
    assert bytes_check() == (7, 1, [1])


def test_hostile_pages_are_compared_in_bounded_time(crawls: Crawls, site: Pages, pages: PageService) -> None:
    crawls.set(politeness={"retries": 0})
    deep, words = "<div>" * 3_000, " ".join(f"word{number}" for number in range(80_000))
    site.answers |= {"/same": html(text=deep + "one"), "/changes": html(text=words)}
    crawls.crawl(url(site), job="news")
    site.answers |= {"/same": html(text=deep + "two"), "/changes": html(text=" ".join(reversed(words.split())))}
    crawls.crawl(url(site), job="news", again=True)
    started = time.monotonic()
    nested = pages.diff(url(site, "/same"))
    assert nested.text is not None
    assert nested.text.splitlines()[3:] == ["-one", "+two"], "read in a process that can be killed"
    long = pages.diff(url(site, "/changes"))
    assert long.text is not None
    assert len(long.text) < 3 * MAX_TEXT
    assert long.note == "Only the first 200,000 characters are compared."
    assert time.monotonic() - started < 30, "the parser has 5 seconds for a page, four times"


@pytest.mark.parametrize("failpoint", ["in_batch", "before_commit", "after_commit"])
def test_a_worker_that_is_killed_between_stores_each_version_once(crawls: Crawls, site: Pages, failpoint: str) -> None:
    crawls.set(politeness={"retries": 0}, flush={"pages": 1})
    crawls.crawl(url(site), job="news")
    change(site)
    job = crawls.begin(url(site), job="news", again=True).job
    killed = crawls.run("worker", "--name", "w1", "--job", "news", "--failpoint", failpoint)
    assert killed.code == -signal.SIGKILL
    if failpoint != "after_commit":
        assert crawls.value("SELECT count(*) FROM page_versions") == 0
    with crawls.worker(job) as worker:
        worker.end()
    assert sorted(crawls.rows("SELECT number, change FROM page_versions")) == [
        (1, "changed"),
        (1, "failed"),
        (1, "gone"),
    ]
    assert JobService(crawls.database, "ann").compare("news").unchanged == 2
    crawls.verify()


def test_commands(crawls: Crawls, site: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> Answer:
        code = crawls.command(*arguments)
        return Answer(code, *capsys.readouterr())

    crawl_twice(crawls, site)
    capsys.readouterr()
    address = url(site, "/changes")
    compared = json.loads(run("jobs", "compare", "news", "--json").out)
    assert {name: compared[name] for name in PageChange} == {
        "new": 1,
        "changed": 1,
        "gone": 1,
        "failed": 1,
        "unchanged": 2,
    }
    listed = json.loads(run("jobs", "compare", "news", "--kind", "gone", "--json").out)
    assert [(page["url"], page["status_before"], page["status"]) for page in listed["pages"]] == [
        (url(site, "/goes"), 200, 404)
    ]
    shown = run("jobs", "compare", "news")
    assert shown.code == 0
    assert "Unchanged" in shown.out
    table = run("jobs", "compare", "news", "--kind", "gone", "--limit", "5")
    assert "200 → 404" in table.out
    versions = json.loads(run("pages", "versions", address, "--json").out)
    assert [(version["number"], version["current"]) for version in versions] == [(2, True), (1, False)]
    assert "current" in run("pages", "versions", address).out
    diff = run("pages", "diff", address)
    assert (diff.code, "+The shop opens at ten." in diff.out) == (0, True)
    assert (
        json.loads(run("pages", "diff", address, "--older", "1", "--newer", "2", "--json").out)["newer"]["number"] == 2
    )
    missing = run("pages", "diff", address, "--older", "9")
    assert (missing.code, "has no version 9" in missing.err) == (4, True)
    assert run("pages", "versions", "not a url").code == 2
    shutil.rmtree(factories.archive_folder(crawls.settings))
    gone = run("pages", "diff", address)
    assert (gone.code, "not on this machine" in gone.err) == (0, True)
