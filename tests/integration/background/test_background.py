"""The background at work: tasks from the schedule to their products, parsers that misbehave, a death and a return."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import factories
from holdfast.background.process import BackgroundProcess
from holdfast.tasks.records import Task, TaskOptions
from holdfast.tasks.service import TaskService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, wait_for

EVIL = {
    "loops": "while True:\n        pass",
    "swells": "return bytearray(4 << 30)",
    "crashes": "import ctypes\n    ctypes.string_at(0)",
    "raises": "raise ValueError('no such thing')",
    "lies": "return 42",
}
REASONS = {
    "loops": "1 s",
    "swells": "memory",
    "crashes": "signal 11",
    "raises": "no such thing",
    "lies": "int",
}
GOOD = """
from decimal import Decimal
from holdfast.parse.plugin_api import Document, Extracted, Product

version = "7"


def parse(document):
    return Extracted({"seen": True}, (Product(name="A thing", sku="1", price=Decimal("3.50"), currency="EUR"),))
"""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(23, 1, Site(12, 6, 700))) as served:
        yield served


@pytest.fixture
def tasks(crawls: Crawls, tmp_path: Path) -> TaskService:
    folder = tmp_path / "parsers"
    folder.mkdir()
    (folder / "good.py").write_text(GOOD)
    for name, body in EVIL.items():
        (folder / f"{name}.py").write_text(f'version = "1"\n\n\ndef parse(document):\n    {body}\n')
    crawls.set(domains={"crawl_delay": 0.01}, parsing={"folder": folder, "timeout": 1, "processes": 2})
    settings = crawls.settings
    return TaskService(crawls.database, factories.url_rules(settings), factories.new_domains(settings))


@contextmanager
def background(crawls: Crawls) -> Iterator[None]:
    """A background in a thread of this process, with an event loop of its own."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    made: list[BackgroundProcess] = []

    async def main() -> None:
        made.append(BackgroundProcess(crawls.database, factories.background_services(crawls.settings, crawls.database)))
        await made[0].run(ready.set)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(made[0].stop)
        thread.join(30)
        assert not thread.is_alive(), "the background does not stop"
        loop.close()


def add(tasks: TaskService, url: str, parser: str) -> Task:
    return tasks.add(url, TaskOptions(is_recurring=False, max_retries=0, parser_name=parser), actor="test")


def until_ended(tasks: TaskService, *wanted: Task) -> list[Task]:
    wait_for(lambda: all(tasks.show(task.id).status in ("completed", "failed") for task in wanted), "the tasks to end")
    return [tasks.show(task.id) for task in wanted]


def test_parsers_that_misbehave_fail_their_own_tasks_and_the_rest_goes_on(
    crawls: Crawls, tasks: TaskService, web: WebProcess
) -> None:
    urls = iter(page.url for page in web.expected(0))
    bad = {name: add(tasks, next(urls), name) for name in EVIL}
    unknown = add(tasks, next(urls), "nobody")
    good = [add(tasks, next(urls), "good") for _ in range(3)]
    with background(crawls), crawls.worker(None):
        ended = until_ended(tasks, *bad.values(), unknown, *good)
    assert [task.status for task in ended] == ["failed"] * 6 + ["completed"] * 3
    for name, task in bad.items():
        assert REASONS[name] in str(tasks.show(task.id).error_message), name
    assert "no parser is called 'nobody'" in str(tasks.show(unknown.id).error_message)
    assert {(task.parsed_by, task.parser_version) for task in ended[6:]} == {("good", "7")}
    assert crawls.value("SELECT count(*) FROM products") == 3
    assert crawls.value("SELECT count(*) FROM product_prices WHERE price = 3.5 AND currency = 'EUR'") == 3
    crawls.verify()


def test_a_background_is_killed_in_the_middle_and_another_one_does_the_rest(
    crawls: Crawls, tasks: TaskService, web: WebProcess
) -> None:
    slow = crawls.settings.parsing.folder
    assert slow is not None
    (slow / "slow.py").write_text("import time\n" + GOOD.replace("    return", "    time.sleep(0.3)\n    return"))
    wanted = [add(tasks, page.url, "slow") for page in web.expected(0)[:4]]
    parsing = "SELECT count(*) FROM crawl_tasks WHERE status = 'parsing'"
    with crawls.worker(None):
        with crawls.start("background") as first:
            wait_for(lambda: crawls.value(parsing), "a task to be parsed")
            first.send(signal.SIGKILL)
            first.end()
        assert crawls.value(parsing)
        # As if it were a while later: whoever has been parsing for so long is lost.
        crawls.connection.execute("UPDATE task_events SET at = at - interval '1 hour'")
        with background(crawls):
            ended = until_ended(tasks, *wanted)
    assert {task.status for task in ended} == {"completed"}
    assert crawls.value("SELECT count(*) FROM products") == 4
    assert crawls.value("SELECT count(*) FROM product_prices") == 4
    assert (
        crawls.value(
            "SELECT max(n) FROM (SELECT count(*) AS n FROM task_events WHERE to_status = 'completed' GROUP BY task_id) t"
        )
        == 1
    )
    crawls.verify()


def test_it_is_stopped_by_a_signal_and_leaves_nothing_behind(crawls: Crawls) -> None:
    with crawls.start("background") as program:
        wait_for(
            lambda: crawls.value("SELECT count(*) FROM procrastinate.procrastinate_workers"),
            "the background to be there",
        )
        program.send(signal.SIGTERM)
        assert program.end().code == 130
    assert crawls.value("SELECT count(*) FROM procrastinate.procrastinate_workers") == 0
    assert (
        crawls.value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'holdfast background%%'") == 0
    )


def test_a_crawl_runs_one_beside_itself_where_there_is_something_to_do(
    crawls: Crawls, tasks: TaskService, web: WebProcess
) -> None:
    log = crawls.folder / "data" / "logs" / "background.log"
    assert crawls.run("crawl", web.url(0), "--max-pages", "1", "--workers", "1").code == 0
    assert not log.exists()
    task = add(tasks, web.url(0), "good")
    with crawls.start("crawl", web.url(0), "--job", "long", "--workers", "1", "--delay", "2") as program:
        wait_for(lambda: tasks.show(task.id).status == "queued", "the task to be queued")
        program.send(signal.SIGINT)
        assert program.end().code == 130
    assert log.exists()
    assert crawls.value("SELECT count(*) FROM procrastinate.procrastinate_workers") == 0
