"""Storage on a page."""

from datetime import UTC, datetime

from holdfast import factories
from holdfast.backups import queries
from holdfast.db import migrate
from holdfast.operations.service import OperationRunner
from tests.support.api import Api
from tests.support.browsing import Browser


def test_what_is_stored(api: Api, rita: Browser) -> None:
    page = rita.get("/storage")
    assert page.status == 200
    assert "crawled_pages" in page.words
    assert f"Revision of the schema {migrate.HEAD}" in page.words
    assert "nothing was crawled here" in page.words, "what cannot be known is said"
    assert "None in the last week." in page.words
    assert [target for target in page.forms() if target != "/logout"] == []
    assert api.services.storage.report().database_bytes > 0


def test_a_verification_is_started_here(api: Api, ada: Browser) -> None:
    page = ada.send("/storage", "/operations/verify", archive="on")
    (asked,) = api.services.operations.listing()
    assert page.path == f"/operations/{asked.id}"
    assert asked.arguments == {"archive": True}
    assert "verify waiting requested" in ada.get("/storage").words


def test_the_trend_is_shown(api: Api, rita: Browser) -> None:
    with api.services.database.session() as connection:
        connection.execute(
            """INSERT INTO storage_days (day, kind, name, rows, bytes)
               SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - n, kind, name, 7, 90000000 - n * growth FROM generate_series(0, 5) n,
               (VALUES ('database', '', 3000000), ('table', 'crawl_log', 1500000), ('domain', 'big.example', 4000000))
               v (kind, name, growth)"""
        )
    page = rita.get("/storage")
    assert "+3.0 MB a day" in page.words
    assert "+1.5 MB" in page.words
    assert "big.example 7 90.0 MB +4.0 MB" in page.words
    assert "Database, day by day" in page.words


def test_machines_whose_archives_are_uploaded_are_shown(api: Api, rita: Browser) -> None:
    assert "Archive, by machine" not in rita.get("/storage").words
    with api.services.database.session() as connection:
        connection.execute(
            """INSERT INTO archive_machines (folder_id, name, problem, problem_since)
               VALUES ('a', 'crawler-1', NULL, NULL), ('b', 'crawler-<2>', 'no such bucket', '2026-11-19 21:00 UTC')"""
        )
    words = rita.get("/storage").words
    assert "Archive, by machine" in words
    assert "crawler-1 0 0 0 B 0 0 B 0 ok" in words
    assert "crawler-<2> uploads fail since 2026-11-19 21:00:00 : no such bucket 0 0" in words


def test_retention_is_shown_and_run_here(api: Api, ada: Browser, rita: Browser) -> None:
    words = rita.get("/storage").words
    assert "Runs only when it is asked to; retention.schedule changes that." in words
    assert "the audit log 365 d retention.audit" in words
    assert f"Archives go to {api.services.settings.data.absolute() / 'retention'} ." in words
    page = ada.send("/storage", "/operations/retention", dry_run="on")
    (asked,) = api.services.operations.listing()
    assert page.path == f"/operations/{asked.id}"
    assert (asked.kind, asked.arguments) == ("retention", {"dry_run": True})
    handlers = factories.operation_handlers(api.services.settings, api.services.database).by_kind()
    assert OperationRunner(api.services.database, handlers).work()
    done = ada.get(page.path).words
    assert "Dry run yes" in done
    assert "Steps Archives Bytes Problem Rows Step 0 0 none 0 content" in done


def test_backups_and_what_is_wrong_with_them(api: Api, rita: Browser) -> None:
    assert "There is no backup" in rita.get("/storage").words
    moment = datetime(2031, 12, 24, 18, tzinfo=UTC)
    with api.services.database.session() as connection:
        number, _ = queries.begin(connection, kind="full", place="/b/20311224T180000Z-full", parent=None)
        queries.complete(connection, number, ended=moment, size=1_500_000)
        queries.record_following(connection, since=moment, until=moment)
        queries.record_problem(connection, "It is <b>not copied</b>.")
    page = rita.get("/storage")
    assert "20311224T180000Z-full complete" in page.words
    assert "1.5 MB" in page.words
    assert "It is <b>not copied</b>." in page.words
    found = api.services.backups.report()
    assert [(one.name, one.bytes) for one in found.backups] == [("20311224T180000Z-full", 1_500_000)]
    assert found.following is not None
    assert found.following.restorable_since == moment
    with api.services.database.session() as connection:
        queries.record_given_up(connection, "It was <b>given up</b>.")
    assert "It was <b>given up</b>." in rita.get("/storage").words
