"""More than 25 mistakes and mishaps, as a person meets them: the command, its last lines, its exit code; cause and next step are named."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.holdfast import Ended, Holdfast, Running
from tests.support.mishaps import MISHAPS, Town, town

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

Report = Callable[[str], None]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path) as served:
        yield served


def shown(name: str, arguments: list[str], ended: Ended) -> str:
    """One entry of the table."""
    lines = [line for line in ended.said.splitlines() if line.strip()]
    command = " ".join(f"'{word}'" if " " in word or word == "(" else word for word in arguments)
    return "\n".join(
        [f"{name} (exit code {ended.code})", f"  $ holdfast {command}", *(f"  {line}" for line in lines), ""]
    )


def pages(holdfast: Holdfast) -> int:
    """Pages of all jobs."""
    return sum(job["pages"] for job in json.loads(holdfast("jobs", "list", "--json").out))


def wait_for_a_page(running: Running, holdfast: Holdfast, before: int = 0) -> None:
    """Return when there are more pages than before."""
    for _ in range(60):
        time.sleep(0.5)
        assert running.process.poll() is None, running.wait().said
        if pages(holdfast) > before:
            return
    raise AssertionError("there is no page")


def test_every_mishap_names_its_cause_and_the_next_step(holdfast: Holdfast, made: Town, report: Report) -> None:
    table, wrong = [], []
    for mishap in MISHAPS:
        arguments = mishap.command(made)
        settings = {name.removeprefix("HOLDFAST_").lower(): value for name, value in mishap.environment(made).items()}
        ended = holdfast(*arguments, **settings)
        table.append(shown(mishap.name, arguments, ended))
        missing = [words for words in mishap.says if words not in ended.said]
        if ended.code != mishap.code or missing or "Traceback" in ended.said:
            wrong.append(f"{mishap.name}: {ended.code}, without {missing}\n{ended.said}")
    report("\n".join(table))
    assert wrong == []


def test_ctrl_c_once_and_twice_and_a_second_crawl_at_once(holdfast: Holdfast, made: Town, report: Report) -> None:
    crawl = ["crawl", made.urls["slow"], "--allow-private", "--workers", "1", "--delay"]
    holdfast("status")  # the database runs
    first = holdfast.start(*crawl, "1")
    wait_for_a_page(first, holdfast)
    first.interrupt()
    once = first.wait(60)
    again = holdfast.start(*crawl, "1")
    wait_for_a_page(again, holdfast, pages(holdfast))
    again.interrupt()
    again.interrupt()
    twice = again.wait(30)
    both = [holdfast.start(*crawl, "0.1"), holdfast.start(*crawl, "0.1")]
    beside = [one.wait() for one in both]
    names = ("Ctrl-C once", "Ctrl-C twice", "one of two crawls at once", "the other")
    ends = (once, twice, *beside)
    report("\n".join(shown(name, [*crawl, "…"], ended) for name, ended in zip(names, ends, strict=True)))
    assert [ended.code for ended in ends] == [130, 130, 0, 0]
    assert "URLs wait" in once.said
    assert "holdfast crawl --job" in once.said
    assert all("complete" in ended.said for ended in beside)
    assert pages(holdfast) == 41
    holdfast.verify()


def test_folders_that_cannot_be_used(holdfast: Holdfast, made: Town, report: Report) -> None:
    table = []
    file = made.file("a-file", "")
    url = made.urls["alone"]
    for name, data in (("the data folder is a file", file), ("a folder that cannot be written to", "/proc/holdfast")):
        arguments = ["crawl", url, "--allow-private", "--data", data]
        ended = holdfast(*arguments)
        table.append(shown(name, arguments, ended))
        assert ended.code != 0
        assert data in ended.said
        assert "Traceback" not in ended.said
    report("\n".join(table))
