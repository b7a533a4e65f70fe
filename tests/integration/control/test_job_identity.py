"""Which job a command means: by its URLs, or by its seed file; and the seeds that a job keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.scheduler import Scheduler
from holdfast.jobs.crawls import CrawlRequest, PreparedJob
from holdfast.jobs.edits import follow_up
from holdfast.jobs.seed_import import fingerprint
from holdfast.jobs.service import JobService
from holdfast.model.seed_lines import make_seed
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html


def make(crawls: Crawls, *urls: str, seeds: Path | None = None, **options: object) -> PreparedJob:
    return crawls.desk.prepare(CrawlRequest(urls, None if seeds is None else str(seeds), options=dict(options)))


def seeds_of(crawls: Crawls, job_id: int) -> list[str]:
    return [row[0] for row in crawls.rows("SELECT url FROM job_seeds WHERE job_id = %s ORDER BY url", job_id)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sites.txt"
    path.write_text("a.example\nb.example\n")
    return path


# URLs as arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "urls",
    [
        ("https://b.example/", "a.example"),
        ("a.example", "b.example"),
        ("a.example", "b.example", "https://a.example"),
    ],
)
def test_a_job_is_known_by_the_set_of_its_urls_in_any_order(crawls: Crawls, urls: Sequence[str]) -> None:
    first = make(crawls, "a.example", "https://b.example/")
    again = make(crawls, *urls, max_pages=5, delay=2)
    assert (again.job.id, first.known, again.known) == (first.job.id, False, True)


@pytest.mark.parametrize(
    ("urls", "options"),
    [
        (("a.example",), {}),
        (("http://a.example/", "b.example"), {}),
        (("a.example", "b.example"), {"scope": "domain"}),
        (("a.example", "b.example"), {"exclude": ("x",)}),
        (("a.example", "b.example"), {"strip_params": ("sid",)}),
    ],
)
def test_other_urls_or_rules_are_another_job(crawls: Crawls, urls: Sequence[str], options: dict[str, Any]) -> None:
    first = make(crawls, "a.example", "b.example")
    other = make(crawls, *urls, **options)
    assert other.job.id != first.job.id
    assert not other.known


def test_a_job_from_before_seeds_were_rows_is_known_by_its_fingerprint(crawls: Crawls, file: Path) -> None:
    seeds = [make_seed("a.example"), make_seed("b.example")]
    crawls.connection.execute(
        "INSERT INTO crawl_jobs (name, fingerprint) VALUES ('old', %s)", (fingerprint(seeds, "host", "but"),)
    )
    assert make(crawls, "b.example", "a.example").job.name == "old"
    assert make(crawls, seeds=file).job.name == "old"
    file.write_text("a.example\nb.example\nc.example\n")
    assert make(crawls, seeds=file).job.name == "old"


# A seed file -------------------------------------------------------------------------------------------------------


def test_a_line_that_is_added_belongs_to_the_same_job(crawls: Crawls, file: Path) -> None:
    first = make(crawls, seeds=file)
    crawls.connection.execute("UPDATE domains SET status = 'active' WHERE domain = 'a.example'")
    crawls.connection.execute("UPDATE url_frontier SET state = 'done' WHERE url = 'https://a.example/'")
    crawls.connection.execute(
        "UPDATE job_domains jd SET state = 'done', ready = false, waiting = 0, done = 1 FROM domains d "
        "WHERE d.id = jd.domain_id AND d.domain = 'a.example'"
    )
    crawls.connection.execute(
        "UPDATE domains SET status = 'exhausted', frontier_size = 0, next_crawl_after = now() + '1 day', status_reason = 'frontier_empty' "
        "WHERE domain = 'a.example'"
    )
    file.write_text("c.example\n# a remark\nb.example\na.example\n")
    again = make(crawls, seeds=file, max_pages=3)
    assert (again.job.id, again.known, again.unrelated_job) == (first.job.id, True, None)
    assert (again.seeds.domains, again.seeds.urls) == (1, 1)
    assert crawls.domain("a.example")["status"] == "exhausted"
    assert seeds_of(crawls, first.job.id) == ["https://a.example/", "https://b.example/", "https://c.example/"]
    assert make(crawls, seeds=file, scope="any").job.id != first.job.id


def test_a_file_that_shares_no_line_with_its_job_is_another_job(crawls: Crawls, file: Path) -> None:
    first = make(crawls, seeds=file)
    file.write_text("x.example\n")
    other = make(crawls, seeds=file)
    assert (other.known, other.unrelated_job) == (False, first.job.name)
    assert other.job.id != first.job.id
    again = make(crawls, seeds=file)
    assert (again.job.id, again.known, again.unrelated_job) == (other.job.id, True, None)


def test_an_unknown_path_with_the_same_content_is_the_old_job(crawls: Crawls, file: Path, tmp_path: Path) -> None:
    first = make(crawls, seeds=file)
    file.write_text("a.example\nb.example\nc.example\n")
    make(crawls, seeds=file)
    copy = tmp_path / "copy.txt"
    copy.write_text("c.example\na.example\nb.example\n")
    assert make(crawls, seeds=copy).job.id == first.job.id
    copy.write_text("a.example\nd.example\n")  # now it is known
    assert make(crawls, seeds=copy).job.id == first.job.id
    assert make(crawls, seeds=file).job.id == first.job.id


def test_the_crawl_says_that_a_file_has_become_another_job(
    crawls: Crawls, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Pages({"/": html()}) as pages:
        file.write_text(f"{pages.url(host='127.0.0.1')}\n")
        assert crawls.command("crawl", "--seeds", str(file), "--workers", "1") == 0
        file.write_text(f"{pages.url(host='127.0.0.1')}\n{pages.url(host='localhost')}\n")
        assert crawls.command("crawl", "--seeds", str(file), "--workers", "1") == 0
        assert (pages.paths("127.0.0.1"), pages.paths("localhost")) == (["/"], ["/"])
        (name,) = crawls.rows("SELECT name FROM crawl_jobs WHERE fingerprint IS NOT NULL")[0]
        capfd.readouterr()
        file.write_text(f"{pages.url('/other', host='127.0.0.1')}\n")
        crawls.command("crawl", "--seeds", str(file), "--workers", "1")
    assert f"The seed file has no seed in common with job {name}: this is another job.\n" in capfd.readouterr().err
    crawls.verify()


def test_a_deleted_job_is_known_by_no_file_and_keeps_no_seeds(crawls: Crawls, file: Path) -> None:
    first = make(crawls, seeds=file)
    JobService(crawls.database, "ann").delete(first.job.id)
    assert seeds_of(crawls, first.job.id) == []
    again = make(crawls, seeds=file)
    assert (again.known, again.unrelated_job) == (False, None)
    assert again.job.id != first.job.id


# A frontier that is gone -------------------------------------------------------------------------------------------


def clear(crawls: Crawls) -> None:
    """What `DELETE /api/frontier` does."""
    crawls.connection.execute("DELETE FROM url_frontier")
    crawls.connection.execute("DELETE FROM job_domains")
    crawls.connection.execute("UPDATE domains SET pages_discovered = 0, frontier_size = 0")


def test_a_job_without_its_frontier_starts_from_its_seeds_when_a_person_starts_it(crawls: Crawls) -> None:
    prepared = crawls.desk.prepare(CrawlRequest(("a.example", "http://b.example/x"), job="news"))
    clear(crawls)
    JobService(crawls.database, "ann").show("news")
    assert crawls.frontier() == {}
    begun = crawls.begin(job="news")
    assert begun.job.id == prepared.job.id
    assert set(crawls.frontier()) == {"https://a.example/", "http://b.example/x"}
    assert crawls.value("SELECT guessed FROM job_seeds WHERE url = 'https://a.example/'") is True
    crawls.connection.execute("DELETE FROM url_frontier WHERE url LIKE '%b.example%'")
    crawls.begin(job="news")
    assert set(crawls.frontier()) == {"https://a.example/"}, "a frontier that is there is not added to"


def test_a_job_without_its_frontier_starts_from_its_seeds_when_its_schedule_does(crawls: Crawls) -> None:
    desk = JobService(crawls.database, "ann")
    made = desk.create(crawls.desk, CrawlRequest(("a.example",), job="news"), lambda _: None, "6h")
    clear(crawls)
    crawls.connection.execute(
        "UPDATE crawl_jobs SET next_run_at = now() - interval '1 s' WHERE id = %s", (made.job.id,)
    )
    importer = crawls.desk.importer
    Scheduler(importer.rules, importer.defaults).tick(crawls.connection)
    assert set(crawls.frontier()) == {"https://a.example/"}


# Rules that were edited --------------------------------------------------------------------------------------------


def edited(crawls: Crawls, job_id: int, **changes: object) -> None:
    service = JobService(crawls.database, "ann")
    service.edit(job_id, changes)
    follow_up(crawls.desk, job_id, tuple(changes))


def test_the_same_command_goes_on_with_an_edited_job_under_its_present_rules(crawls: Crawls) -> None:
    asked: dict[str, Any] = {"exclude": ("/a",), "max_depth": 4}
    first = make(crawls, "a.example", **asked)
    edited(crawls, first.job.id, exclude=["/b"], scope="any", max_depth=2)
    started = crawls.begin("a.example", **asked)
    assert (started.job.id, started.known) == (first.job.id, True)
    assert (started.job.spec.exclude, started.job.spec.scope, started.job.spec.max_depth) == (("/b",), "any", 2)
    assert started.edited_rules == "scope=any exclude=/b max_depth=2"
    assert make(crawls, "a.example", exclude=("/b",)).job.id != first.job.id, (
        "the rules of a command say which job it means"
    )
    deeper = crawls.begin("a.example", exclude=("/a",), max_depth=7)
    assert (deeper.job.spec.max_depth, deeper.job.spec.exclude, deeper.job.rules_version) == (7, ("/b",), 2)


def test_a_command_that_names_the_job_edits_its_rules_unless_it_was_created_with_them(crawls: Crawls) -> None:
    first = crawls.begin("a.example", job="news", exclude=("/a",)).job
    assert crawls.begin("a.example", job="news", exclude=("/a",)).edited_rules is None
    again = crawls.begin(job="news", exclude=("/b",))
    assert (again.job.rules_version, again.job.spec.exclude, again.edited_rules) == (1, ("/b",), None)
    same = crawls.begin("a.example", job="news", exclude=("/a",))
    assert (same.job.id, same.job.spec.exclude) == (first.id, ("/b",))
    assert same.edited_rules == "scope=host exclude=/b"
    assert crawls.value("SELECT count(*) FROM job_rules WHERE job_id = %s", first.id) == 2


def test_the_crawl_says_that_the_scope_was_edited(crawls: Crawls, capfd: pytest.CaptureFixture[str]) -> None:
    with Pages({"/": html("/a", "/b"), "/a": html(), "/b": html()}) as pages:
        command = ("crawl", pages.url(host="127.0.0.1"), "--workers", "1")
        assert crawls.command(*command) == 0
        (name,) = crawls.rows("SELECT name FROM crawl_jobs WHERE fingerprint IS NOT NULL")[0]
        assert crawls.command("jobs", "set", name, "exclude=/b") == 0
        capfd.readouterr()
        assert crawls.command(*command) == 0
        told = capfd.readouterr().err
    undo = f"`holdfast jobs undo-scope {name}` takes the last edit back"
    assert f"Its scope was edited since (rules version 1): scope=host exclude=/b; {undo}.\n" in told
    crawls.verify()
