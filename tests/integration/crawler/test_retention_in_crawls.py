"""A job that lives crawls nothing again after retention; and archives in an S3-compatible store that goes away."""

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast import factories
from holdfast.errors import Refused
from holdfast.frontier.service import FrontierService
from tests.support.aged import DATA, let_pass, rows_of
from tests.support.crawls import Crawls
from tests.support.invariants import assert_invariants
from tests.support.object_store import BUCKET, KEYS, object_store
from tests.support.pages import Pages, html

OLD = ["/", "/a", "/b", "/c"]


@pytest.mark.parametrize("live", [True, False])
def test_a_live_job_crawls_nothing_again(crawls: Crawls, connection: psycopg.Connection, live: bool) -> None:
    """A hundred days after a crawl a new page is found, which links to all others. With a schedule the job remembers them; a job that had
    ended does not, and that is what the memory is for."""
    with Pages({"/": html("/a", "/b", "/c"), "/a": html("/"), "/b": html("/a"), "/c": html("/gone")}) as site:
        job = crawls.begin(site.url()).job
        with crawls.worker(job) as worker:
            worker.end()
        crawls.desk.end(job)
        assert sorted(site.paths()) == [*OLD, "/gone"]
        if live:
            connection.execute(
                "UPDATE crawl_jobs SET schedule = '1000d', next_run_at = now() + interval '1000 days' WHERE id = %s",
                (job.id,),
            )
        let_pass(connection, timedelta(days=100))
        assert_invariants(connection)
        assert factories.retention_service(crawls.settings, crawls.database).run().problems == []
        assert_invariants(connection)
        assert len(rows_of(connection, "url_frontier")["url_frontier"]) == (5 if live else 0)

        site.answers["/new"] = html("/", "/a", "/b", "/c", "/gone")
        before = len(site.paths())
        connection.execute("UPDATE crawl_jobs SET schedule = NULL, next_run_at = NULL WHERE id = %s", (job.id,))
        importer = factories.seed_importer(crawls.settings, crawls.database)
        FrontierService(crawls.database, importer, rest=timedelta(days=1)).add([site.url("/new")], job.id, actor="ann")
        with crawls.worker(job) as worker:
            worker.end()
        assert sorted(site.paths()[before:]) == (["/new"] if live else [*OLD, "/gone", "/new"])
        assert_invariants(connection)


def test_a_job_of_which_nothing_is_left_is_crawled_again_when_a_person_asks(
    crawls: Crawls, connection: psycopg.Connection
) -> None:
    with Pages({"/": html("/a", "/b", "/c"), "/a": html("/"), "/b": html("/a"), "/c": html("/gone")}) as site:
        crawls.crawl(site.url())
        let_pass(connection, timedelta(days=100))
        assert factories.retention_service(crawls.settings, crawls.database).run().problems == []
        assert rows_of(connection, "url_frontier", "crawled_pages") == {"url_frontier": [], "crawled_pages": []}
        before = len(site.paths())
        with pytest.raises(Refused, match=r"retention archived what it has crawled .* `--again` crawls all of it anew"):
            crawls.begin(site.url())
        assert len(site.paths()) == before
        crawls.crawl(site.url(), again=True)
        assert sorted(site.paths()[before:]) == [*OLD, "/gone"]
        assert_invariants(connection)
        archives = factories.archive_service(crawls.settings, crawls.database)
        for archive in archives.matching(kind="pages", job=None):
            assert archives.restore(archive).restored == 0, "what was crawled anew is newer"
        assert_invariants(connection)


def test_a_store_of_archives_that_is_away_loses_nothing(
    crawls: Crawls, connection: psycopg.Connection, tmp_path: Path
) -> None:
    with Pages({"/": html("/a", "/b", "/c"), "/a": html("/"), "/b": html("/a"), "/c": html("/gone")}) as site:
        crawls.crawl(site.url(), text=True)
    let_pass(connection, timedelta(days=100))
    before = rows_of(connection, *DATA)
    with object_store(tmp_path / "record") as objects:
        crawls.set(
            retention={
                "store": f"s3://{BUCKET}/old/days",
                "endpoint": objects.endpoint,
                "store_timeout": "1s",
                "access_key": KEYS["AWS_ACCESS_KEY_ID"],
                "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"],
            }
        )
        service = factories.retention_service(crawls.settings, crawls.database)
        objects.stop()
        result = service.run()
        assert result.problems
        assert all("The archives in s3://pictures/old/days at" in problem for problem in result.problems)
        assert rows_of(connection, *DATA) == before
        assert_invariants(connection)
        objects.start()
        assert service.run().problems == []
        left = rows_of(connection, "crawled_pages", "page_texts", "crawl_log")
        assert [len(rows) for rows in left.values()] == [0, 0, 0]
        assert_invariants(connection)
        archives = factories.archive_service(crawls.settings, crawls.database)
        for kind in ("pages", "frontier_completed", "frontier_failed", "content", "log"):
            for archive in archives.matching(kind=kind, job=None):
                assert archives.check(archive) > 0
                archives.restore(archive)
        assert rows_of(connection, *DATA) == before
        assert_invariants(connection)


def test_a_crawl_says_what_retention_will_take(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    with Pages({"/": html()}) as site:
        assert crawls.command("crawl", site.url()) == 0
        assert "Retention" not in capsys.readouterr().err, "by itself it does nothing"
        assert crawls.command("crawl", site.url(), "--again", HOLDFAST_RETENTION_SCHEDULE="0 3 * * *") == 0
    assert (
        "Retention runs at 0 3 * * *: these pages are kept for 90d (retention.pages), their texts and archive for 30d "
        "(retention.content); then both are archived."
    ) in capsys.readouterr().err.replace("\n", " ")
