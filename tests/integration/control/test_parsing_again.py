"""Parsing again: what would differ is shown, and the old result stays until a new one is good."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.control.parse_phase import ParsePhase
from holdfast.control.reparsing import Change, ChangeKind, ReparseReport, Selection, TaskReparser
from holdfast.db import audit, parse_results
from holdfast.db.connection import Database
from holdfast.errors import BadUrl, NotFound, UsageError
from holdfast.model.task import TaskStatus
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import discover
from holdfast.tasks import queries as task_queries
from tests.support.archived import Archived, shop_page, write_parser
from tests.support.shop import PAGE, day

S = TaskStatus
Watch = Callable[[ReparseReport], None]


@pytest.fixture
def at(connection: psycopg.Connection, tmp_path: Path) -> Archived:
    write_parser(tmp_path / "parsers", "mine", "return Extracted({'size': len(document.body), 'old': True})", "1.9")
    return Archived(connection, tmp_path / "archive")


class Desk:
    """A parse phase and parsing again, on the parsers that there are when it is asked."""

    def __init__(self, database: Database, at: Archived) -> None:
        self.database, self.at = database, at

    def runner(self) -> PluginPool:
        return PluginPool(discover(self.at.folder.parent / "parsers"))

    def parse(self, *task_ids: int) -> None:
        async def whole() -> None:
            phase = ParsePhase(self.database, self.runner(), ArchiveReader(self.at.folder))
            try:
                assert [await phase.parse_task(one) for one in task_ids] == [S.COMPLETED] * len(task_ids)
            finally:
                await phase.aclose()

        asyncio.run(whole())

    def fetch(self, body: bytes, url: str = PAGE, **how: Any) -> int:
        task_id = self.at.fetch(body, url, **how)
        self.parse(task_id)
        return task_id

    def again(self, *, apply: bool = False, watch: Watch = lambda _: None, **chosen: Any) -> ReparseReport:
        async def whole() -> ReparseReport:
            runner = self.runner()
            try:
                reparser = TaskReparser(self.database, runner, ArchiveReader(self.at.folder), "ann")
                return await reparser.run(Selection(**chosen), ReparseReport(apply), watch)
            finally:
                await runner.aclose()

        return asyncio.run(whole())

    def improve(
        self, body: str = "return Extracted({'size': len(document.body), 'new': [1]})", version: str = "1.10"
    ) -> None:
        write_parser(self.at.folder.parent / "parsers", "mine", body, version)

    def data(self, task_id: int) -> tuple[str, dict[str, Any]]:
        found = parse_results.get(self.at.connection, task_id)
        assert found
        return found.parser_version, found.data


@pytest.fixture
def desk(database: Database, at: Archived) -> Desk:
    return Desk(database, at)


def counts(found: ReparseReport) -> dict[str, int]:
    names = ("parsed", "same", "different", "first", "failed", "taken")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


def many(desk: Desk, count: int) -> list[int]:
    tasks = [desk.at.fetch(b"x" * n, f"https://s{n}.example/", parser_name="mine", on=n) for n in range(1, count + 1)]
    desk.parse(*tasks)
    return tasks


# Look, then leap ------------------------------------------------------------------------------------------------------


def test_without_apply_it_only_shows_what_would_differ(desk: Desk, at: Archived) -> None:
    task_id = desk.fetch(b"12345", parser_name="mine")
    desk.improve()
    before = at.shop.tasks.get(task_id), parse_results.get(at.connection, task_id)
    found = desk.again()
    assert counts(found) == {"parsed": 1, "different": 1}
    assert found.counts.fields == {
        "old": {ChangeKind.ADDED: 0, ChangeKind.REMOVED: 1, ChangeKind.CHANGED: 0},
        "new": {ChangeKind.ADDED: 1, ChangeKind.REMOVED: 0, ChangeKind.CHANGED: 0},
    }
    (example,) = found.examples
    assert (example.task_id, example.url, example.total) == (task_id, PAGE, 2)
    assert example.changes == (Change("old", ChangeKind.REMOVED, "true"), Change("new", ChangeKind.ADDED, None, "[1]"))
    assert (at.shop.tasks.get(task_id), parse_results.get(at.connection, task_id)) == before


def test_with_apply_the_new_takes_the_place_of_the_old(desk: Desk, at: Archived) -> None:
    task_id = desk.fetch(b"12345", parser_name="mine")
    desk.improve()
    before = at.shop.tasks.get(task_id)
    assert counts(desk.again(apply=True)) == {"parsed": 1, "different": 1}
    assert desk.data(task_id) == ("1.10", {"size": 5, "new": [1]})
    after = at.shop.tasks.get(task_id)
    assert (after.status, after.parser_version, after.attempt) == (S.COMPLETED, "1.10", before.attempt)
    assert (after.next_crawl_at, after.completed_at) == (before.next_crawl_at, before.completed_at)
    assert counts(desk.again(apply=True)) == {"parsed": 1, "same": 1}
    (entry,) = audit.listing(at.connection)
    assert (entry.actor, entry.action, entry.object_kind, entry.object_id) == (
        "ann",
        "parse_again",
        "task",
        str(task_id),
    )
    assert entry.details == {"was": ["mine", "1.9"], "is": ["mine", "1.10"]}


def test_the_old_stays_where_the_new_fails(desk: Desk, at: Archived) -> None:
    good, bad = desk.fetch(b"1", "a.example", parser_name="mine"), desk.fetch(b"22", "b.example", parser_name="mine")
    desk.improve("return Extracted({'new': 1}) if len(document.body) == 1 else 7")
    found = desk.again(apply=True)
    assert counts(found) == {"parsed": 1, "different": 1, "failed": 1}
    (failure,) = found.failures
    assert (failure.task_id, failure.url) == (bad, "https://b.example/")
    assert "returned a value of type int" in failure.reason
    assert desk.data(good) == ("1.10", {"new": 1})
    assert desk.data(bad) == ("1.9", {"size": 2, "old": True})
    assert at.shop.tasks.get(bad).status is S.COMPLETED


def test_a_page_that_is_gone_or_that_the_store_refuses_is_a_failure_of_that_page(desk: Desk, at: Archived) -> None:
    task_id = desk.fetch(b"1", parser_name="mine")
    desk.improve()
    at.connection.execute("ALTER TABLE parse_results ADD CONSTRAINT only_old CHECK (parser_version = '1.9')")
    (failure,) = desk.again(apply=True).failures
    assert "only_old" in failure.reason
    (segment,) = at.folder.glob("*/*.warc.gz")
    segment.unlink()
    (failure,) = desk.again(apply=True).failures
    assert "The archive has no segment" in failure.reason
    assert desk.data(task_id) == ("1.9", {"size": 1, "old": True})


def test_results_that_were_lost_are_made_anew(desk: Desk, at: Archived) -> None:
    task_id = desk.fetch(shop_page("Lamp", "10"), parser_name="product", on=4)
    at.connection.execute("DELETE FROM parse_results; DELETE FROM products")
    assert counts(desk.again()) == {"parsed": 1, "first": 1}
    assert counts(desk.again(apply=True)) == {"parsed": 1, "first": 1}
    assert (at.shop.history(), at.shop.only().last_task_id) == ([(4, 4, "10")], task_id)


def test_prices_keep_the_time_of_their_fetch(desk: Desk, at: Archived) -> None:
    for on, price in enumerate(["10", "10", "12"]):
        desk.fetch(shop_page("Lamp", price), parser_name="product", on=on)
    before = at.shop.everything()
    assert counts(desk.again(apply=True)) == {"parsed": 3, "same": 3}
    assert at.shop.everything() == before
    assert at.shop.history() == [(0, 1, "10"), (2, 2, "12")]


def test_the_parser_is_the_one_of_now(desk: Desk, at: Archived) -> None:
    desk.fetch(shop_page("Lamp", "10"))
    at.connection.execute("UPDATE domains SET parser_name = 'product'")
    found = desk.again(apply=True)
    assert found.counts.fields["product"][ChangeKind.ADDED] == 1
    assert at.shop.only().name == "Lamp"


def test_a_task_that_is_restarted_meanwhile_is_left_to_that(desk: Desk, at: Archived) -> None:
    tasks = many(desk, 5)  # more than are parsed at once
    desk.improve()

    def restart(_: ReparseReport) -> None:
        if at.shop.tasks.status(tasks[-1]) is S.COMPLETED:
            task_queries.restart_parsing(at.connection, tasks[-1], actor="ann")

    assert counts(desk.again(apply=True, watch=restart)) == {"parsed": 4, "different": 4, "taken": 1}
    assert desk.data(tasks[-1]) == ("1.9", {"size": 5, "old": True})
    desk.parse(tasks[-1])
    assert desk.data(tasks[-1])[0] == "1.10"


# Which ----------------------------------------------------------------------------------------------------------------


def test_only_completed_tasks_with_a_page_are_parsed_again(desk: Desk, at: Archived) -> None:
    waiting = at.fetch(b"1", "w.example", parser_name="mine")
    at.shop.tasks.completed("c.example")  # whose record is nowhere
    at.connection.execute(
        "UPDATE crawl_tasks SET archive_segment = NULL, archive_offset = NULL, archive_length = NULL, archive_digest = NULL"
        " WHERE status = 'completed'"
    )
    assert counts(desk.again()) == {}
    desk.parse(waiting)
    assert counts(desk.again()) == {"parsed": 1, "same": 1}


def test_by_domain_time_and_parser(desk: Desk) -> None:
    many(desk, 4)
    assert counts(desk.again(domain="https://S2.example")) == {"parsed": 1, "same": 1}
    assert desk.again(since=day(2)).parsed == 3
    assert desk.again(until=day(2)).parsed == 1
    assert desk.again(since=day(2), until=day(3)).parsed == 1
    assert desk.again(since=day(2) + timedelta(seconds=1), until=day(3)).parsed == 0
    assert desk.again(parser="mine").parsed == 4
    assert desk.again(parser="generic").parsed == 0


def test_versions_are_in_the_order_of_their_numbers(at: Archived) -> None:
    at.shop.tasks.completed()
    cases = {
        ("1.9", "1.10"): True,
        ("1.9", "1.9"): False,
        ("1.10", "1.9"): False,
        ("1", "1.0"): True,
        ("1.0rc1", "1.0"): True,
        ("1.0", "1.0.1"): True,
        ("2026-01-31", "2026-02-01"): True,
        ("v2", "v10"): True,
        ("٣", "4"): True,
        (None, "1"): True,
    }
    found = {}
    for version, below in cases:
        at.connection.execute("UPDATE crawl_tasks SET parser_version = %s", (version,))
        (candidate,) = parse_results.completed(at.connection, after=0, limit=1)
        found[version, below] = Selection(below=below).matches(candidate)
    assert found == cases


def test_it_goes_on_where_it_ended(desk: Desk) -> None:
    tasks = many(desk, 6)
    desk.improve()
    first = desk.again(apply=True, limit=5)
    assert (first.parsed, first.last_id) == (5, tasks[4])
    second = desk.again(apply=True, after=first.last_id)
    assert (second.parsed, second.last_id) == (1, tasks[5])
    assert counts(desk.again(below="1.10")) == {}
    assert {desk.data(task_id)[0] for task_id in tasks} == {"1.10"}


def test_whoever_watches_hears_how_far_it_is(desk: Desk) -> None:
    tasks = many(desk, 6)
    heard: list[tuple[int, int]] = []
    desk.again(watch=lambda now: heard.append((now.parsed, now.last_id)))
    assert heard == [(4, tasks[3]), (6, tasks[5])]


def test_what_cannot_be_meant(desk: Desk) -> None:
    with pytest.raises(UsageError, match="before an earlier one"):
        desk.again(since=day(2), until=day(2))
    with pytest.raises(UsageError, match="time zone"):
        desk.again(since=day(2).replace(tzinfo=None))
    with pytest.raises(UsageError, match="A version is a text"):
        desk.again(below="9" * 101)
    with pytest.raises(BadUrl):
        desk.again(domain="http://")
    with pytest.raises(NotFound, match=r"no domain 'nowhere\.example'"):
        desk.again(domain="nowhere.example")
