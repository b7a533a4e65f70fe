"""The background makes the daily backup and keeps the log by itself; what fails is an alert until it works again."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.alerts.records import Kind
from holdfast.alerts.rules import Rules
from holdfast.backups import queries
from tests.support.backups import Bundled, bundled
from tests.support.crawls import wait_for
from tests.support.servers import data_in_memory


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data, backup={"daily": True, "folder": tmp_path / "backups"})


def _until(made: Bundled) -> datetime:
    logs = made.repository.logs()
    follow = made.repository.follow(logs[-1]) if logs else None
    return follow.until if follow else datetime.min.replace(tzinfo=UTC)


def test_the_background_backs_up_and_follows(made: Bundled) -> None:
    """Switched on, it makes a full backup at once and follows; killed and started again it goes on with the same log."""
    with made.start("background") as program:
        wait_for(made.repository.backups, "the first backup")
        with made.store() as store:
            store.seed("followed.example")
        at = made.value("SELECT clock_timestamp()")
        wait_for(lambda: _until(made) > at, "the log to reach that second")
        program.kill()
    with made.start("background") as program:
        at = made.value("SELECT clock_timestamp()")
        wait_for(lambda: _until(made) > at, "the log to go on")
        wait_for(lambda: made.service.report().following, "the record of how far it is")
        program.kill()
    assert len(made.repository.logs()) == 1
    (backup,) = made.repository.backups()
    plan = made.restorer.plan(backup.name, at)
    with made.restorer.scratch(plan, made.data) as (_, recovered), recovered.database.session() as connection:
        row = connection.execute("SELECT count(*) FROM domains WHERE domain = 'followed.example'").fetchone()
    assert row == (1,)
    made.groups["backup"]["daily"] = False
    with made.start("background") as program:  # switched off: the server need not keep its log
        wait_for(lambda: made.value("SELECT count(*) FROM pg_replication_slots") == 0, "the slot to go")
        wait_for(lambda: made.repository.logs()[0].given_up, "the end of the log")
        program.kill()


def test_what_fails_is_an_alert_until_it_works(made: Bundled) -> None:
    rules = Rules()
    with made.connection() as connection:
        assert list(rules.of_backups(connection)) == []
        number, _ = queries.begin(connection, kind="full", place="/gone/a-full", parent=None)
        queries.fail(connection, number, "The disk is full.")
        queries.record_problem(connection, "The log cannot be copied: no space.")
        (failed,) = list(rules.of_backups(connection))
        assert (failed.kind, failed.subject, failed.details) == (
            Kind.BACKUP_FAILED,
            "backup",
            {"why": "The disk is full."},
        )
        connection.execute("UPDATE backup_following SET problem_since = problem_since - interval '2 minutes'")
        assert [one.subject for one in rules.of_backups(connection)] == ["backup", "log"]
        queries.record_following(connection, since=datetime.now(UTC), until=datetime.now(UTC))
        number, started = queries.begin(connection, kind="full", place="/gone/b-full", parent=None)
        queries.complete(connection, number, ended=started, size=1)
        assert list(rules.of_backups(connection)) == []
        queries.record_given_up(connection, "It was given up (backup.wal_limit).")
        assert [one.subject for one in rules.of_backups(connection)] == ["log"]
