"""The parse phase of a task: from its page in the archive to a result in the store, once, whatever fails, dies or comes twice."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.control.parse_phase import ParsePhase
from holdfast.db import parse_results, task_frontier
from holdfast.db.connection import Database
from holdfast.model.task import TaskStatus
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import discover
from holdfast.tasks import queries as task_queries
from tests.support.archived import Archived, shop_page, write_parser
from tests.support.shop import day, done, product

S = TaskStatus
LAMP = shop_page("Lamp", "10.50")


@pytest.fixture
def at(connection: psycopg.Connection, tmp_path: Path) -> Archived:
    return Archived(connection, tmp_path / "archive")


@pytest.fixture
def run(database: Database, at: Archived) -> Callable[..., list[TaskStatus | None]]:
    """Parse these tasks, all at once."""

    def run(*task_ids: int) -> list[TaskStatus | None]:
        return phase(database, at, lambda one: asyncio.gather(*map(one.parse_task, task_ids)))

    return run


def phase(
    database: Database, at: Archived, work: Callable[[ParsePhase], Awaitable[list[TaskStatus | None]]]
) -> list[TaskStatus | None]:
    """What `work` makes of a parse phase of its own."""

    async def whole() -> list[TaskStatus | None]:
        folder = at.folder.parent / "parsers"
        runner = PluginPool(discover(folder if folder.is_dir() else None), timeout=30.0)
        one = ParsePhase(database, runner, ArchiveReader(at.folder))
        try:
            return await work(one)
        finally:
            await one.aclose()
            assert runner.pids == []

    return asyncio.run(whole())


async def until_parsing(at: Archived, task_id: int) -> None:
    while at.shop.tasks.status(task_id) is not S.PARSING:  # noqa: ASYNC110 — the store is asked, nobody tells
        await asyncio.sleep(0.01)


def result(at: Archived, task_id: int) -> parse_results.Result:
    found = parse_results.get(at.connection, task_id)
    assert found
    return found


# What becomes of a task -----------------------------------------------------------------------------------------------


def test_a_task_is_parsed_by_its_own_parser(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP, parser_name="product", on=3)
    assert run(task_id) == [S.COMPLETED]
    task = at.shop.tasks.get(task_id)
    assert (task.status, task.parsed_by, task.parser_version) == (S.COMPLETED, "product", "2")
    found = result(at, task_id)
    assert (found.parser, found.fetched_at, found.data) == ("product", day(3), {"sources": ["json_ld"]})
    assert [(one.name, str(one.price), one.currency) for one in at.shop.all()] == [("Lamp", "10.50", "EUR")]
    assert at.shop.history() == [(3, 3, "10.50")]


def test_or_by_that_of_its_domain(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(b"<title>Home</title>")
    at.connection.execute("UPDATE domains SET parser_name = 'mine'")
    write_parser(at.folder.parent / "parsers", "mine", "return Extracted({'url': document.url})", "7.1")
    assert run(task_id) == [S.COMPLETED]
    assert (result(at, task_id).parser_version, result(at, task_id).data) == ("7.1", {"url": "https://shop.example/p"})


def test_what_a_parser_is_given(at: Archived, run: Callable[..., object]) -> None:
    write_parser(
        at.folder.parent / "parsers",
        "mine",
        "return Extracted({'body': document.body.decode(), 'type': document.content_type, 'at': str(document.fetched_at)})",
    )
    task_id = at.fetch("Grüße".encode(), parser_name="mine")
    assert run(task_id) == [S.COMPLETED]
    assert result(at, task_id).data == {"body": "Grüße", "type": "text/html", "at": "2026-11-15 20:15:00.250000+00:00"}


@pytest.mark.parametrize(
    ("parser", "body", "error"),
    [
        (
            "missing",
            "",
            "The parser 'missing' gave nothing (unknown parser): no parser is called 'missing'; there are: ",
        ),
        ("raises", "raise ValueError('no\\x1b price')", "(raised): ValueError: "),
        ("lies", "return 7", "(bad result): the parser returned a value of type int instead of items or an Extracted"),
        ("dies", "os.abort()", "(died): "),
    ],
)
def test_a_parser_that_gives_nothing_is_tried_again(
    at: Archived, run: Callable[..., object], parser: str, body: str, error: str
) -> None:
    if body:
        write_parser(at.folder.parent / "parsers", parser, body)
    task_id = at.fetch(LAMP, parser_name=parser, max_retries=1)
    assert run(task_id) == [S.QUEUED_PARSE]
    task = at.shop.tasks.get(task_id)
    assert error in (task.error_message or "")
    assert task.retry_count == 1
    assert at.shop.tasks.waits(task_id) > timedelta(seconds=30)
    assert run(task_id) == [None], "not before its time"
    at.shop.tasks.now(task_id)
    assert run(task_id) == [S.FAILED]
    assert (parse_results.get(at.connection, task_id), at.shop.all()) == (None, [])


def test_a_parser_that_was_installed_meanwhile_is_found(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP, parser_name="mine")
    assert run(task_id) == [S.QUEUED_PARSE]
    write_parser(at.folder.parent / "parsers", "mine", "return Extracted({'a': 1})")
    at.shop.tasks.now(task_id)
    assert run(task_id) == [S.COMPLETED]
    assert at.shop.tasks.get(task_id).error_message is None


def test_a_page_that_the_archive_has_lost_is_given_up(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP)
    (segment,) = at.folder.glob("*/*.warc.gz")
    segment.unlink()
    assert run(task_id) == [S.FAILED]
    error = at.shop.tasks.get(task_id).error_message
    assert error == f"The archive has no segment w1/{segment.name}; was it moved or deleted?"


def test_a_page_that_is_damaged_is_given_up(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP)
    (segment,) = at.folder.glob("*/*.warc.gz")
    ref = at.shop.tasks.get(task_id).archive
    assert ref
    with segment.open("r+b") as file:
        file.seek(ref.offset + ref.length // 2)
        file.write(b"damage")
    assert run(task_id) == [S.FAILED]
    assert "is damaged" in (at.shop.tasks.get(task_id).error_message or "")


def test_a_page_that_was_not_kept_is_given_up(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.shop.tasks.one()
    assert task_id in at.shop.tasks.due()
    task_frontier.record_results(at.connection, [at.shop.tasks.result(task_id, http_status=200)])
    assert run(task_id) == [S.FAILED]
    assert "it was fetched without being kept" in (at.shop.tasks.get(task_id).error_message or "")


def test_a_page_of_another_machine_is_left_for_that_one(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP)
    shutil.move(at.folder / "w1", at.folder.parent / "elsewhere")
    assert run(task_id) == [S.QUEUED_PARSE]
    shutil.move(at.folder.parent / "elsewhere", at.folder / "w1")
    at.shop.tasks.now(task_id)
    assert run(task_id) == [S.COMPLETED]


def test_what_the_store_cannot_take_is_the_tasks_failure_not_ours(at: Archived, run: Callable[..., object]) -> None:
    task_id = at.fetch(LAMP, parser_name="product")
    at.connection.execute("ALTER TABLE products ADD CONSTRAINT nothing_cheap CHECK (price > 100)")
    assert run(task_id) == [S.QUEUED_PARSE]
    assert "nothing_cheap" in (at.shop.tasks.get(task_id).error_message or "")
    assert (parse_results.get(at.connection, task_id), at.shop.all()) == (None, [])


@pytest.mark.parametrize("status", [S.PENDING, S.QUEUED, S.PARSING, S.COMPLETED, S.PAUSED, S.CANCELLED])
def test_what_does_not_wait_to_be_parsed_is_left_alone(
    at: Archived, run: Callable[..., object], status: TaskStatus
) -> None:
    task_id = at.shop.tasks.one()
    at.shop.tasks.bring(task_id, status)
    before = at.shop.tasks.get(task_id)
    assert run(task_id, 999_999) == [None, None]
    assert at.shop.tasks.get(task_id) == before


# Two at once, and killed ----------------------------------------------------------------------------------------------


def test_of_many_at_once_one_parses(at: Archived, run: Callable[..., list[TaskStatus | None]]) -> None:
    task_id = at.fetch(LAMP, parser_name="product")
    assert sorted(map(str, run(*[task_id] * 8))) == ["None"] * 7 + ["completed"]
    assert (at.shop.tasks.get(task_id).attempt, len(at.shop.all())) == (2, 1)


@pytest.mark.parametrize("quick", [True, False], ids=["who is done", "who is not done"])
def test_who_is_slow_and_was_taken_over_writes_nothing(at: Archived, database: Database, quick: bool) -> None:
    """The first parse hangs on a file until the task was taken back, and by somebody else."""
    parsers, go = at.folder.parent / "parsers", at.folder.parent / "go"
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    write_parser(parsers, "mine", f"{waits}\n    return Extracted({{}}, (Product(name='slow', price=Decimal(1)),))")
    task_id = at.fetch(LAMP, parser_name="mine")

    async def work(one: ParsePhase) -> list[TaskStatus | None]:
        slow = asyncio.create_task(one.parse_task(task_id))
        await until_parsing(at, task_id)
        assert parse_results.reclaim_parses(at.connection, older_than=timedelta(0), limit=9) == [task_id]
        taken = at.shop.take(task_id)
        if quick:
            assert parse_results.finish(at.connection, taken, done(product("quick")))
        go.touch()
        return [await slow]

    assert phase(database, at, work) == [None]
    assert [found.name for found in at.shop.all()] == (["quick"] if quick else [])


def test_what_a_person_does_meanwhile_stands(at: Archived, database: Database) -> None:
    parsers, go = at.folder.parent / "parsers", at.folder.parent / "go"
    write_parser(parsers, "mine", f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n    return Extracted()")
    task_id = at.fetch(LAMP, parser_name="mine")

    async def work(one: ParsePhase) -> list[TaskStatus | None]:
        slow = asyncio.create_task(one.parse_task(task_id))
        await until_parsing(at, task_id)
        task_queries.cancel(at.connection, task_id, actor="ann")
        go.touch()
        return [await slow]

    assert phase(database, at, work) == [None]
    assert (at.shop.tasks.status(task_id), parse_results.get(at.connection, task_id)) == (S.CANCELLED, None)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from holdfast.archive.reader import ArchiveReader
from holdfast.control.parse_phase import ParsePhase
from holdfast.parse.plugin_registry import discover
from holdfast.parse.plugin_pool import PluginPool
from holdfast.db.connection import Database

async def main():
    phase = ParsePhase(Database(sys.argv[1]), PluginPool(discover(Path(sys.argv[2])), timeout=60.0), ArchiveReader(Path(sys.argv[3])))
    await phase.parse_task(int(sys.argv[4]))

asyncio.run(main())
"""


def test_a_killed_process_leaves_nothing_to_repair(
    at: Archived, database: Database, run: Callable[..., list[TaskStatus | None]]
) -> None:
    parsers, begun = at.folder.parent / "parsers", at.folder.parent / "begun"
    write_parser(parsers, "mine", f"open({str(begun)!r}, 'w').close(); time.sleep(60)")
    task_id = at.fetch(LAMP, parser_name="mine")
    arguments = [sys.executable, "-c", PROGRAM, database.url, str(parsers), str(at.folder), str(task_id)]
    with subprocess.Popen(arguments) as victim:
        while not begun.exists():
            assert victim.poll() is None
            time.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)
    assert at.shop.tasks.status(task_id) is S.PARSING
    assert run(task_id) == [None], "it may still be at work, for all that anybody knows"
    write_parser(parsers, "mine", "return Extracted({'a': 1})")
    assert parse_results.reclaim_parses(at.connection, older_than=timedelta(0), limit=9) == [task_id]
    assert run(task_id) == [S.COMPLETED]
    assert result(at, task_id).data == {"a": 1}
