"""Hostile pages: the page parser returns a result for each in bounded time, and leaves no process behind."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse.html import parse_page
from holdfast.parse.page_child import as_json, from_json
from holdfast.parse.page_parser import PageParser
from holdfast.parse.risk_check import Risk
from tests.support.pdfs import pdf, slow
from tests.unit.parse.bombs import BOMBS, TAIL, ordinary

WAIT = 60.0
_STARTED = 1.0  # seconds on the processor: more than a process needs before its first page


def run(test: Callable[[PageParser], Awaitable[None]], *, deadline: float = WAIT, fast: bool = False) -> None:
    """Run `test` with a new page parser, and assert that none of its processes is left."""

    async def whole() -> None:
        parser = PageParser(links_per_page=1000, deadline=deadline, pdf_deadline=deadline)
        try:
            async with asyncio.timeout(4 * WAIT):
                await test(parser)
        finally:
            await parser.aclose()
        assert [process.pid for process in (*parser.processes.values(), parser.pdf_process)] == [None] * 3

    before = set(_children())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(whole())
    assert set(_children()) <= before, "a process was left, or a zombie"


def _children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


async def _busy(parser: PageParser, assess: Risk) -> psutil.Process:
    """Wait until a child process works on a page, and return it."""
    async for _ in _ticks():
        if (pid := parser.processes[assess].pid) and psutil.Process(pid).cpu_times().user > _STARTED:
            return psutil.Process(pid)
    raise AssertionError("never")


async def _ticks() -> AsyncIterator[None]:
    for _ in range(int(WAIT / 0.02)):
        yield
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_large_pages_are_parsed_as_small_ones_are(fast: bool) -> None:
    async def test(parser: PageParser) -> None:
        body = ordinary(3000)
        parsed = await parser.parse(body, content_type="text/html", x_robots_tag="noindex")
        assert parsed == parse_page(body, content_type="text/html", x_robots_tag="noindex", links_per_page=1000)
        assert (parsed.links_cut, parsed.noindex, parsed.problem) == (2000, True, None)
        first = parser.processes[Risk.LARGE].pid
        await parser.parse(body, content_type=None)
        assert parser.processes[Risk.LARGE].pid == first

    run(test, fast=fast)


def test_an_ordinary_page_needs_no_process_and_no_wait() -> None:
    async def test(parser: PageParser) -> None:
        asking = parser.parse(ordinary(20), content_type="text/html")
        with pytest.raises(StopIteration) as ended:
            asking.send(None)
        assert isinstance(ended.value.value, ParsedPage)
        assert [process.pid for process in parser.processes.values()] == [None, None]

    run(test)


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_a_bomb_is_stopped_and_its_links_are_found(fast: bool) -> None:
    async def test(parser: PageParser) -> None:
        body = b"<title>T</title>" + 4 * BOMBS["nested"] + TAIL
        parsed = await parser.parse(body, content_type="text/html", x_robots_tag="nofollow")
        assert parsed.problem == "the parser did not finish within 0.5 s"
        assert (parsed.title, parsed.links, parsed.nofollow) == ("T", ["/after"], True)
        assert parser.processes[Risk.SUSPECT].pid is None
        # The next one is served by a new process.
        assert (await parser.parse(b"<p>" * 3000 + b"x", content_type=None)).text == "x"

    run(test, deadline=0.5, fast=fast)


@pytest.mark.parametrize("name", BOMBS)
def test_every_bomb_is_answered_for(name: str) -> None:
    async def test(parser: PageParser) -> None:
        parsed = await parser.parse(BOMBS[name] + TAIL, content_type="text/html")
        assert parsed.links == ["/after"]
        assert parsed.problem is None or "did not finish" in parsed.problem or "failed" in parsed.problem

    run(test, deadline=0.3)


def test_pages_that_look_like_bombs_do_not_keep_the_large_ones_waiting() -> None:
    async def test(parser: PageParser) -> None:
        bomb = asyncio.ensure_future(parser.parse(4 * BOMBS["nested"], content_type=None))
        await _busy(parser, Risk.SUSPECT)
        assert (await parser.parse(ordinary(1000), content_type=None)).title == "T"
        assert not bomb.done()
        bomb.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bomb
        assert parser.processes[Risk.SUSPECT].pid is None

    run(test)


def test_calls_take_turns() -> None:
    async def test(parser: PageParser) -> None:
        bodies = [ordinary(1000 + i) for i in range(8)]
        pages = await asyncio.gather(*(parser.parse(body, content_type=None) for body in bodies))
        assert [page.links_cut for page in pages] == list(range(8))
        assert len(_children()) >= 1

    run(test)


def test_a_process_killed_in_mid_parse_costs_one_page() -> None:
    async def test(parser: PageParser) -> None:
        asked = asyncio.ensure_future(parser.parse(4 * BOMBS["nested"] + TAIL, content_type=None))
        (await _busy(parser, Risk.SUSPECT)).kill()
        parsed = await asked
        assert parsed.problem is not None
        assert parsed.problem.startswith("the parser died")
        assert parsed.links == ["/after"]
        assert (await parser.parse(b"<p>" * 3000 + b"x", content_type=None)).problem is None

    run(test)


def test_a_process_killed_between_pages_costs_nothing() -> None:
    async def test(parser: PageParser) -> None:
        await parser.parse(ordinary(1000), content_type=None)
        pid = parser.processes[Risk.LARGE].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        parsed = await parser.parse(ordinary(1000), content_type=None)
        assert (len(parsed.links), parsed.problem) == (1000, None)

    run(test)


def test_a_page_that_needs_too_much_memory_is_answered_for() -> None:
    async def test(parser: PageParser) -> None:
        body = b"<table>" + b"x" * 200_000 + b"x<?>" * 400_000 + TAIL
        parsed = await parser.parse(body, content_type=None)
        assert parsed.problem is not None
        assert parsed.links == ["/after"]

    run(test, deadline=WAIT / 4)


def test_the_process_ends_with_its_parent() -> None:
    root = Path(__file__).parents[3]
    code = """
import asyncio, os
from holdfast.parse.page_parser import PageParser
from holdfast.parse.risk_check import Risk
async def main():
    parser = PageParser(links_per_page=10)
    await parser.parse(b"<p>" * 3000, content_type=None)
    print(parser.processes[Risk.SUSPECT].pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    parent = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=WAIT
    )
    assert parent.returncode == -signal.SIGKILL
    child = int(parent.stdout)
    until = time.monotonic() + WAIT
    while psutil.pid_exists(child) and time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
                break  # an orphan that nobody reaps here
        time.sleep(0.02)
    else:
        assert not psutil.pid_exists(child)


def test_a_pdf_is_read_until_its_time_is_used_up() -> None:
    async def test(parser: PageParser) -> None:
        await parser.parse(pdf("first"), content_type="application/pdf")
        parsed = await parser.parse(slow(2000), content_type="application/pdf")
        assert re.fullmatch(r"only [\d,]+ of the 2,000 pages of the PDF were read in time", parsed.problem or "")
        after = await parser.parse(pdf("after it", title="T"), content_type="application/pdf")
        assert (after.title, after.text, after.problem) == ("T", "after it", None)

    run(test, deadline=5.0)


def test_what_goes_through_the_pipe_comes_back_the_same() -> None:
    parsed = parse_page(b"<title>\xc3\xa9</title><a href=/x>y<img src=z>", content_type=None)
    assert from_json(as_json(parsed)) == parsed
