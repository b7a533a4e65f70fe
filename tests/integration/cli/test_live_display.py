"""The live display as a terminal shows it: Ctrl-C is answered at once, -v lists every URL, -q prints only the end."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator

import pytest

from tests.support.cli import command
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html

FAST = [f"/{number}" for number in range(8)]


@pytest.fixture
def site() -> Iterator[Pages]:
    slow = Page(html().body, headers={"Content-Type": "text/html"}, delay=2.5)
    with Pages({"/": html(*FAST, "/slow"), "/slow": slow} | {path: html() for path in FAST}) as served:
        yield served


class Screen:
    """`holdfast` on a terminal."""

    def __init__(self, crawls: Crawls, *arguments: str, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self._process = subprocess.Popen(
            command("--data", str(crawls.folder / "data"), *arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=crawls.environ(TERM="xterm-256color", **variables),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._shown = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                self._shown += os.read(self._ours, 65536)
            except OSError:  # it has ended
                return

    @property
    def text(self) -> str:
        """All that was ever shown, without colours and movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.decode(errors="replace")).replace("\r", "")

    @property
    def raw(self) -> str:
        return self._shown.decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        try:
            code = self._process.wait(60)
        finally:
            self._process.kill()
        self._thread.join(10)
        os.close(self._ours)
        return code


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_is_answered_while_requests_are_in_flight(crawls: Crawls, site: Pages, workers: int) -> None:
    options = ("--job", "news", "--workers", str(workers), "--concurrency", "4", "-v")
    screen = Screen(crawls, "crawl", site.url("/"), *options)
    wait_for(lambda: "Fetching" in screen.text and "/slow" in screen.text, "the slow page in flight")
    screen.press(b"\x03")
    wait_for(lambda: "Ctrl-C again stops at once" in screen.text, "an answer")
    assert screen.lives, "it is told before the requests in flight have ended"
    assert screen.end() == 130
    assert "Stopping: 1 request in flight, up to 20s; Ctrl-C again stops at once." in screen.text
    assert "\x1b[32m" in screen.raw, "green"
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "continues where it was" in screen.text
    assert "Interrupted" not in screen.text, "the last lines of the crawl say it already"
    lines = re.findall(r"200 ok +[\d.]+ s +[\d.]+ k?B  (\S+)", screen.text)
    asked = site.paths()
    assert sorted(lines) == sorted(site.url(path) for path in asked), "each URL once, the slow one too"


def test_ctrl_c_stops_watching_and_says_that_the_job_goes_on(crawls: Crawls, site: Pages) -> None:
    assert crawls.command("jobs", "create", "later", site.url("/")) == 0
    screen = Screen(crawls, "jobs", "watch", "later")
    wait_for(lambda: "Job later" in screen.text, "the display")
    screen.press(b"\x03")
    assert screen.end() == 130
    assert "Stopped watching; job later itself was not stopped." in screen.text
    assert "Interrupted" not in screen.text


def test_the_second_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(crawls: Crawls, site: Pages) -> None:
    screen = Screen(crawls, "crawl", site.url("/slow"), "--workers", "1", NO_COLOR="1")
    wait_for(lambda: "Fetching" in screen.text, "a request in flight")
    screen.press(b"\x03")
    wait_for(lambda: "Ctrl-C again stops at once" in screen.text, "an answer")
    screen.press(b"\x03")
    assert screen.end() == 130
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l"), "the cursor is shown again"
    assert not re.search(r"\x1b\[3[0-9]m", screen.raw), "NO_COLOR"


def test_quiet_prints_only_the_end_and_verbose_needs_no_terminal(
    crawls: Crawls, site: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = crawls.run("crawl", site.url("/0"), "-q", "--job", "one", "--workers", "1")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.startswith("1 page, ")
    loud = crawls.run("crawl", site.url("/1"), "-v", "--job", "two", "--workers", "2")
    assert loud.code == 0
    assert re.search(rf"^200 ok +[\d.]+ s +\d+ B  {re.escape(site.url('/1'))}$", loud.err, re.MULTILINE)
    assert crawls.command("crawl", site.url("/1"), "-v", "-q") == 2
    assert capsys.readouterr().out == ""
