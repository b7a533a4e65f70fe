"""Parsers that loop, exhaust memory, crash, raise or return nonsense: each fails only its own document, in bounded time."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
import uvloop

from holdfast.model.parse_result import Document, FailureKind, ParseDone, ParseFailed
from holdfast.parse.plugin_pool import ParserInfo, PluginPool
from holdfast.parse.plugin_registry import UnusableParser, discover
from holdfast.parse.plugin_testing import document, run_isolated

WAIT = 60.0
PAGE = document("<title>T</title>")
HEAD = "import os, sys, time, threading\nfrom holdfast.parse.plugin_api import Extracted\nversion = '1'\n"
GOOD = HEAD + "def parse(document): return Extracted({'pid': os.getpid(), 'size': len(document.body)})\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one good parser."""
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def write(folder: Path, name: str, body: str, head: str = HEAD) -> None:
    (folder / f"{name}.py").write_text(
        f"{head}def parse(document):\n" + "".join(f"    {one}\n" for one in dedent(body).splitlines())
    )


def run(
    folder: Path,
    test: Callable[[PluginPool], Awaitable[None]],
    *,
    fast: bool = False,
    processes: int = 2,
    **limits: float,
) -> None:
    """Run `test` with a new pool, and assert that none of its processes is left."""

    async def whole() -> None:
        pool = PluginPool(discover(folder), processes=processes, **limits)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(2 * WAIT):
                await test(pool)
        finally:
            await pool.aclose()
        assert pool.pids == [] or not any(psutil.pid_exists(pid) for pid in pool.pids)

    before = children()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as loop:
        loop.run(whole())
    assert children() <= before, "a process was left, or a zombie"


def children() -> set[int]:
    """Child processes, except for those of a database server that another test may have started."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found |= {child.pid} if child.name() != "postgres" else set()
    return found


async def good(pool: PluginPool, page: Document = PAGE) -> int:
    """Run the good parser, and return the id of its process."""
    done = await pool.parse("good", page)
    assert isinstance(done, ParseDone), done
    assert done.extracted.data["size"] == len(page.body)
    return int(done.extracted.data["pid"])


BAD = {
    "loops": ("while True: pass", FailureKind.TIMED_OUT, "did not finish within 2 s"),
    "loops_in_c": ("sum(range(10**15))", FailureKind.TIMED_OUT, "did not finish within 2 s"),
    "sleeps": ("time.sleep(1000)", FailureKind.TIMED_OUT, "did not finish within 2 s"),
    "swells": ("return bytearray(4 << 30)", FailureKind.OUT_OF_MEMORY, "more memory than it may have"),
    "hoards": (
        "global kept; kept = []\nwhile True: kept.append(bytearray(1 << 24))",
        FailureKind.OUT_OF_MEMORY,
        "more memory than it may have",
    ),
    "segfaults": ("import ctypes; ctypes.string_at(0)", FailureKind.DIED, "died with signal 11 (SIGSEGV)"),
    "aborts": ("os.abort()", FailureKind.DIED, "died with signal 6 (SIGABRT)"),
    "kills_its_group": ("os.killpg(0, 9)", FailureKind.DIED, "died with signal 9 (SIGKILL)"),
    "exits": ("os._exit(3)", FailureKind.DIED, "died (exit status 3)"),
    "says_goodbye": ("sys.exit(0)", FailureKind.RAISED, "SystemExit: 0 (says_goodbye.py, line 5)"),
    "raises": ("raise KeyError('pri\\x00ce')", FailureKind.RAISED, "KeyError: 'pri\\x00ce' (raises.py, line 5)"),
    "recurses": ("return parse(document)", FailureKind.RAISED, "RecursionError"),
    "returns_text": ("return 'x'", FailureKind.BAD_RESULT, "a value of type str instead of items or an Extracted"),
    "returns_objects": (
        "return Extracted({'a': {'b': object()}})",
        FailureKind.BAD_RESULT,
        "data.a.b is a value of type object",
    ),
    "returns_nan": ("return Extracted({'a': float('nan')})", FailureKind.BAD_RESULT, "data.a is nan"),
    "returns_much": ("return Extracted({'a': 'x' * (2 << 20)})", FailureKind.BAD_RESULT, "1048576 are allowed"),
    "returns_itself": ("a = {}; a['a'] = a; return Extracted(a)", FailureKind.BAD_RESULT, "nested too deep"),
    "writes_nonsense": (
        "[os.write(fd, b'x' * 99) for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')]",
        FailureKind.BAD_RESULT,
        "the answer is too long",
    ),
    "forges": (
        "[os.write(fd, b'\\0\\0\\0\\x1ad{\"data\":{},\"products\":[7]}') for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')]",
        FailureKind.BAD_RESULT,
        "the answer cannot be read",
    ),
    "closes_all": ("os.closerange(3, 64); time.sleep(1000)", FailureKind.DIED, "died"),
}


@pytest.mark.parametrize("seconds", [2, 60])
def test_a_bad_parser_fails_its_document_and_no_other(folder: Path, seconds: int) -> None:
    """Parsers without an end get two seconds; the others fail by themselves, however busy the machine is."""
    bad = {name: case for name, case in BAD.items() if (case[1] is FailureKind.TIMED_OUT) is (seconds == 2)}
    for name, (body, _, _) in bad.items():
        write(folder, name, body)

    async def test(pool: PluginPool) -> None:
        asked = [pool.parse(name, PAGE) for name in bad] + [pool.parse("good", PAGE) for _ in bad]
        answers = await asyncio.gather(*asked)
        for (name, (_, kind, words)), answer in zip(bad.items(), answers, strict=False):
            assert isinstance(answer, ParseFailed), name
            assert (answer.parser, answer.kind) == (name, kind)
            assert words in answer.reason
        assert all(isinstance(answer, ParseDone) for answer in answers[len(bad) :])
        assert await good(pool)

    run(folder, test, fast=True, timeout=seconds, memory_limit=1 << 29)


BROKEN = {
    "syntax": ("def", "SyntaxError: invalid syntax"),
    "missing": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "fatal": ("import os; os.kill(os.getpid(), 11)", "died with signal 11 (SIGSEGV) while it was loaded"),
    "slow": ("import time; time.sleep(1000)", "it was not loaded within 5 s"),
    "large": ("x = bytearray(4 << 30)", "it needed too much memory"),
    "empty": ("", "it has no function parse(document)"),
    "old": ("def parse(document): pass", "it has no version"),
    "misnamed": ("name = 'other'\nversion = '1'\ndef parse(document): pass", "it calls itself 'other'"),
}


def test_parsers_that_cannot_be_loaded_are_told_by_name_with_the_reason(folder: Path) -> None:
    for name, (text, _) in BROKEN.items():
        (folder / f"{name}.py").write_text(text)

    async def test(pool: PluginPool) -> None:
        failed = await pool.parse("fatal", PAGE)
        assert isinstance(failed, ParseFailed)
        assert failed.kind is FailureKind.BROKEN_PARSER
        survey = await pool.list_parsers()
        loaded = [one.source.name for one in survey if isinstance(one, ParserInfo)]
        assert loaded == ["generic", "good", "main-text", "markdown", "product"]
        reasons = {one.name: one.reason for one in survey if isinstance(one, UnusableParser)}
        assert set(reasons) == set(BROKEN)
        assert reasons["syntax"].endswith("cannot be used: SyntaxError: invalid syntax (syntax.py, line 1)")
        assert {name for name, (_, words) in BROKEN.items() if words not in reasons[name]} == set()
        assert await good(pool)

    run(folder, test, load_timeout=5, memory_limit=1 << 29)


def test_an_unknown_parser_is_a_sentence(folder: Path) -> None:
    async def test(pool: PluginPool) -> None:
        failed = await pool.parse("gone", PAGE)
        assert failed == ParseFailed(
            "gone",
            FailureKind.UNKNOWN_PARSER,
            "no parser is called 'gone'; there are: generic, good, main-text, markdown, product",
        )
        assert pool.pids == []

    run(folder, test)


def test_a_process_serves_many_documents_and_is_replaced_after_enough(folder: Path) -> None:
    async def test(pool: PluginPool) -> None:
        pids = [await good(pool) for _ in range(7)]
        assert len(set(pids)) == 3
        assert pids[0] == pids[1] == pids[2] != pids[3]

    run(folder, test, max_documents=3)


def test_one_hanging_document_holds_only_its_own_process(folder: Path) -> None:
    write(folder, "hangs", "time.sleep(1000)")

    async def test(pool: PluginPool) -> None:
        hanging = asyncio.ensure_future(pool.parse("hangs", PAGE))
        for _ in range(10):
            await good(pool)
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert len(pool.pids) == 1

    run(folder, test, timeout=WAIT)


def test_parsers_of_others_do_not_share_a_process_and_never_are_there_too_many(folder: Path) -> None:
    (folder / "twin.py").write_text(GOOD)

    before = children()

    async def test(pool: PluginPool) -> None:
        first = await good(pool)
        twins = await asyncio.gather(
            *(pool.parse("twin", PAGE) for _ in range(6)), *(pool.parse("good", PAGE) for _ in range(6))
        )
        served = {(one.parser, one.extracted.data["pid"]) for one in twins if isinstance(one, ParseDone)}
        assert len({pid for _, pid in served}) == len(served)
        assert first
        assert len(pool.pids) <= 2
        assert len(children() - before) <= 4, "a reaper and a child each"

    run(folder, test)


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_what_a_parser_sees_is_little(folder: Path, monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    write(
        folder,
        "sees",
        """
        print("noise" * 100_000, flush=True)
        sys.stderr.write("noise" * 100_000)
        fds = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        kinds = sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in fds)
        return Extracted({"environment": dict(os.environ), "open": kinds, "input": sys.stdin.read(),
                          "when": document.fetched_at.isoformat(),
                          "type": document.content_type, "headers": dict(document.headers), "session": os.getsid(0) == os.getpid()})
        """,
    )
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://secret@db/x")

    async def test(pool: PluginPool) -> None:
        done = await pool.parse("sees", PAGE)
        assert isinstance(done, ParseDone), done
        data = done.extracted.data
        assert set(data["environment"]) <= {"PATH", "LANG", "LC_CTYPE"}
        assert data["open"] == ["/dev/null", "/dev/null", "/dev/null", "socket"]
        assert (data["input"], data["session"], data["type"]) == ("", True, PAGE.content_type)
        assert data["when"] == "2026-01-02T03:04:05+00:00"
        assert data["headers"] == PAGE.headers

    with Path(__file__).open() as ours:
        os.set_inheritable(ours.fileno(), True)
        run(folder, test, fast=fast)


CHILD = """
if os.fork() == 0:
    {before}
    open({path!r}, "w").write(str(os.getpid()))
    time.sleep(1000)
while not os.path.exists({path!r}) or not os.path.getsize({path!r}): time.sleep(0.01)
"""


_LONE, _SESSION, _DAEMON = "pass", "os.setsid()", "os.setsid(); os.fork() and os._exit(0)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *((before, "return Extracted({})") for before in (_LONE, _SESSION, _DAEMON)),
        *((before, "os.abort()") for before in (_LONE, _DAEMON)),
        (_SESSION, "raise ValueError"),
        (_DAEMON, "time.sleep(1000)"),
    ],
)
def test_what_a_parser_starts_is_gone_afterwards(folder: Path, before: str, after: str) -> None:
    path = folder / "pid"
    write(folder, "forks", CHILD.format(before=before, path=str(path)) + after)

    async def test(pool: PluginPool) -> None:
        answer = await pool.parse("forks", PAGE)
        assert isinstance(answer, ParseDone) is ("return" in after)
        assert pool.pids == []
        assert not alive(int(path.read_text()))

    run(folder, test, timeout=4 if "sleep" in after else WAIT)


def test_a_thread_that_is_left_ends_with_its_process(folder: Path) -> None:
    write(folder, "threads", "threading.Thread(target=time.sleep, args=(1000,)).start()\nreturn Extracted({})")

    async def test(pool: PluginPool) -> None:
        assert isinstance(await pool.parse("threads", PAGE), ParseDone)
        assert pool.pids == []

    run(folder, test)


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_killed_between_documents_costs_nothing(folder: Path) -> None:
    async def test(pool: PluginPool) -> None:
        first = await good(pool)
        os.kill(first, signal.SIGKILL)
        assert await good(pool) != first

    run(folder, test, processes=1)


@pytest.mark.parametrize("begun", [0, 2])
def test_closing_ends_what_is_under_way_and_blames_no_document(folder: Path, begun: int) -> None:
    write(folder, "hangs", "time.sleep(1000)")

    async def test(pool: PluginPool) -> None:
        before = children()
        asked = [asyncio.ensure_future(pool.parse("hangs", PAGE)) for _ in range(3)]
        for _ in range(int(WAIT / 0.02)):
            await asyncio.sleep(0.02)
            if len(pool.pids) >= begun:
                break
        await pool.aclose()
        assert children() <= before
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [RuntimeError] * 3

    run(folder, test, timeout=WAIT)


@pytest.mark.parametrize("body", ["time.sleep(1000)", "while True: pass"])
def test_the_processes_end_with_their_parent(folder: Path, body: str) -> None:
    path = folder / "pid"
    write(folder, "hangs", f"open({str(path)!r}, 'w').write(str(os.getpid()))\n{body}")
    code = f"""
import asyncio, os, pathlib
from holdfast.parse.plugin_registry import discover
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_testing import document
async def main():
    pool = PluginPool(discover(pathlib.Path({str(folder)!r})), timeout=1000)
    asked = asyncio.ensure_future(pool.parse("hangs", document("x")))
    path = pathlib.Path({str(path)!r})
    while not path.exists() or not path.read_text():
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    parent = subprocess.run([sys.executable, "-c", code], check=False, timeout=WAIT)
    assert parent.returncode == -signal.SIGKILL
    until = time.monotonic() + WAIT
    while alive(int(path.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(int(path.read_text()))


def test_the_kit_of_authors_runs_a_file_apart(folder: Path) -> None:
    for file in (folder / "good.py", str(folder / "good.py")):
        done = run_isolated(file, PAGE)
        assert isinstance(done, ParseDone)
        assert (done.parser, done.version) == ("good", "1")
    failed = run_isolated("gone", PAGE)
    assert isinstance(failed, ParseFailed)


def test_files_may_share_a_module_beside_them(folder: Path) -> None:
    (folder / "_shared.py").write_text("ANSWER = 42\n")
    write(folder, "shares", "return Extracted({'answer': ANSWER})", head=HEAD + "from _shared import ANSWER\n")
    done = run_isolated(folder / "shares.py", PAGE)
    assert isinstance(done, ParseDone)
    assert done.extracted.data == {"answer": 42}


def test_large_documents_and_odd_text_go_through(folder: Path) -> None:
    write(folder, "echoes", "return Extracted({'url': document.url, 'tail': document.body[-3:].hex()})")

    async def test(pool: PluginPool) -> None:
        done = await pool.parse("echoes", Document("https://x.example/\ud800\0", bytes(10_000_000) + b"end"))
        assert isinstance(done, ParseDone), done
        assert done.extracted.data == {"url": "https://x.example/\ufffd\ufffd", "tail": b"end".hex()}

    run(folder, test)
