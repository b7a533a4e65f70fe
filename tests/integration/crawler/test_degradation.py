"""What fails around a crawl without ending it: all workers die, the schema becomes newer, the database goes away for a while."""

import time

import psycopg
import pytest
from psycopg import sql

from holdfast.alerts.records import Kind
from holdfast.alerts.rules import Rules
from holdfast.alerts.sentences import describe
from holdfast.alerts.service import AlertService
from holdfast.crawler.problems import SHORTEST_OUTAGE
from holdfast.errors import ClaimLost
from holdfast.model.auth import Role
from tests.support.api import serving, settings
from tests.support.crawls import Crawls, wait_for
from tests.support.page_reader import PageReader
from tests.support.pages import Pages, html

PAGES = 30


def site(pages: Pages) -> None:
    pages.answers["/"] = html(*(f"/p{page}" for page in range(PAGES)))
    pages.answers |= {f"/p{page}": html() for page in range(PAGES)}


def test_the_api_and_the_dashboard_answer_when_all_workers_have_died(crawls: Crawls) -> None:
    with Pages() as pages:
        site(pages)
        with crawls.start("crawl", pages.url(), "--delay", "0.1", "--workers", "1") as program:
            wait_for(lambda: crawls.total() > 2, "pages")
            program.kill()
        crawls.connection.execute("UPDATE workers SET heartbeat_at = now() - interval '3 minutes'")
        name = crawls.value("SELECT name FROM crawl_jobs WHERE id > 2")
        with serving(crawls.database, settings(crawls.folder / "data")) as api:
            ready = api.anybody.get("/health/ready")
            assert (ready.status_code, ready.json()["status"]) == (200, "ready")
            assert api.reader.get("/api/stats").json()["workers_silent"] == 1
            page = PageReader.of(api, Role.USER)
            assert "No worker runs." in page.text("/overview")
            assert "no worker is running" in page.text(f"/jobs/{name}")
        crawls.connection.execute("UPDATE duties SET done_at = '-infinity'")
        Rules().look(crawls.connection)
        assert [one.kind for one in AlertService(crawls.database).list(active=True)] == [Kind.WORKER_SILENT]
        assert crawls.run("crawl", pages.url()).code == 0
    assert crawls.total() == PAGES + 1
    crawls.verify()


def test_a_schema_that_an_old_worker_cannot_write_marks_no_page(crawls: Crawls) -> None:
    """A newer schema wants of each page what this worker does not know; the failure of a page it would take."""
    with Pages() as pages:
        site(pages)
        job = crawls.begin(pages.url(), delay=0.1).job
        with crawls.worker(job) as worker:
            wait_for(lambda: crawls.total() > 2, "pages")
            with crawls.connection.transaction():
                crawls.connection.execute("ALTER TABLE crawled_pages ADD COLUMN heading text")
                crawls.connection.execute(
                    "ALTER TABLE crawled_pages ADD CONSTRAINT wants_more CHECK (heading IS NOT NULL) NOT VALID"
                )
                crawls.connection.execute("UPDATE schema_version SET version_num = '9999'")
            with pytest.raises(ClaimLost, match="is at revision 9999, newer than this Holdfast"):
                worker.end()
        crawls.connection.execute("ALTER TABLE crawled_pages DROP COLUMN heading")
        states = {state for state, _ in crawls.frontier().values()}
        assert states == {"done", "waiting"}
        assert crawls.value("SELECT count(*) FROM crawl_log WHERE outcome <> 'ok'") == 0


def test_an_outage_of_the_database_is_told_when_it_is_over(crawls: Crawls, admin: psycopg.Connection) -> None:
    """It refuses all connections for some seconds; afterwards the worker goes on, and an alert says what it saw."""
    crawls.set(flush={"pages": 2})  # so that what may be fetched meanwhile is little
    name = crawls.connection.info.dbname
    with Pages() as pages:
        site(pages)
        job = crawls.begin(pages.url(), delay=0.2).job
        with crawls.worker(job) as worker:
            wait_for(lambda: crawls.total() > 2, "pages")
            before = crawls.value("SELECT clock_timestamp()")
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
            try:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
                time.sleep(SHORTEST_OUTAGE + 1)
                asked = len(pages.paths())
                time.sleep(1)
                assert len(pages.paths()) <= asked + 1
            finally:
                admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))
            crawls.connection.close()
            crawls.connection = crawls.database.connect()
            reported = "SELECT bool_or(activity::text LIKE '%%did not answer for%%') FROM workers"
            wait_for(lambda: crawls.value(reported), "the report of the outage")
            crawls.connection.execute("UPDATE duties SET done_at = '-infinity'")
            Rules().look(crawls.connection)
            (alert,) = AlertService(crawls.database).list(active=True)
            assert (alert.kind, alert.subject, alert.details["workers"]) == (Kind.DATABASE_UNAVAILABLE, "", 1)
            assert alert.value >= SHORTEST_OUTAGE
            assert " did not answer for " in describe(alert).cause
            sessions, started_at = crawls.connection.execute(
                "SELECT boot_epoch, started_at FROM workers"
            ).fetchone() or (0, None)
            assert sessions > 1, "it holds its name by another session"
            assert started_at < before, "a new session is not a new start"
            worker.end()
        assert sorted(pages.paths()) == sorted(pages.answers)
    assert crawls.total() == PAGES + 1
    crawls.verify()
    crawls.connection.close()
