"""Terminal captures of a crawl that is running, waiting, blocked, stopping and finished, at 80 and 140 columns. Run by hand.

    python -m tests.acceptance.captures FOLDER

Needs tmux. Writes FOLDER/STATE-COLUMNS.txt (as read) and .ansi (with colours), and prints the texts. The site is on loopback.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.db import embedded
from tests.support.pages import Page, Pages, html

_PAGES = 4000
_HEADERS = {"Content-Type": "text/html", "Connection": "close"}  # a kept connection would outlive the server


def site(number: int = _PAGES, delay: float = 0.15) -> dict[str, Page]:
    """Pages of a made-up manual, each with a few links."""
    paths = [f"/manual/chapter-{n // 40:03}/section-{n % 40:02}-of-the-chapter.html" for n in range(number)]
    pages = {"/": html(*paths[:40])}
    for place, path in enumerate(paths):
        pages[path] = html(*paths[place + 1 : place + 20])
    return {path: Page(page.body, headers=_HEADERS, delay=delay) for path, page in pages.items()}


class Terminal:
    """A tmux window of its own server, with `holdfast` in it."""

    def __init__(self, columns: int, data: Path, folder: Path) -> None:
        self._socket = f"holdfast-captures-{os.getpid()}-{columns}"
        self._folder = folder
        self._columns = columns
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "30", "bash", "--norc")
        self._tmux("set-option", "-g", "default-terminal", "tmux-256color")
        self.type(f"export PS1='$ ' PATH={Path(sys.executable).parent}:$PATH HOLDFAST_DATA={data}; clear")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", text, "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def holdfast(self, *words: str) -> None:
        """Run `holdfast` with these words."""
        self.type("clear")
        time.sleep(0.5)
        self.type(shlex.join(["holdfast", *words]))

    def capture(self, state: str) -> None:
        """Keep what is on the screen."""
        text = self._tmux("capture-pane", "-p").rstrip()
        (self._folder / f"{state}-{self._columns}.txt").write_text(text + "\n")
        (self._folder / f"{state}-{self._columns}.ansi").write_text(self._tmux("capture-pane", "-e", "-p"))
        print(f"===== {state}, {self._columns} columns\n{text}\n")

    def wait(self, word: str, seconds: float = 120.0) -> None:
        """Until this is on the screen."""
        deadline = time.monotonic() + seconds
        while word not in self._tmux("capture-pane", "-p"):
            if time.monotonic() > deadline:
                print(f"!!!!! {word!r} did not come")
                return
            time.sleep(0.2)

    def close(self) -> None:
        self._tmux("kill-server")


@contextmanager
def terminal(columns: int, folder: Path) -> Iterator[Terminal]:
    """A terminal with an empty store, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-captures-", dir="/dev/shm") as place:
        Path(place).chmod(0o755)
        data = Path(place) / "data"
        shown = Terminal(columns, data, folder)
        try:
            yield shown
        finally:
            shown.close()
            embedded.stop(data)


def running_and_waiting(shown: Terminal, *options: str) -> None:
    """The server stops in the middle of a crawl and comes back; then Ctrl-C."""
    answers = site()
    crawl = ("--allow-private", "--concurrency", "8", "--delay", "0", "--job", "manual", *options)
    with Pages(answers) as server:
        shown.holdfast("crawl", server.url("/", "localhost"), *crawl)
        shown.wait("pages/s")
        time.sleep(4)
        shown.capture("running")
        port = server.port
    shown.wait("next attempt")
    time.sleep(1.5)
    shown.capture("waiting")
    with Pages(site(delay=3), port=port):
        shown.wait("Fetching", 90)
        time.sleep(1.5)
        shown.press("C-c")
        time.sleep(0.6)
        shown.capture("stopping")
        shown.wait("so far.", 60)
        time.sleep(0.5)
        shown.capture("stopped")


def blocked(shown: Terminal) -> None:
    """Every page but the first is forbidden."""
    answers = site(60)
    refused = Page(b"no", 403, {"Content-Type": "text/plain", "Connection": "close"}, 0.3)
    with Pages({path: page if path == "/" else refused for path, page in answers.items()}) as server:
        shown.holdfast("crawl", server.url("/", "localhost"), "--allow-private", "--job", "refused", "--delay", "0.5")
        shown.wait("Errors", 30)
        shown.capture("refused")
        shown.wait("is blocked", 60)
        time.sleep(1)
        shown.capture("blocked")


def finished(shown: Terminal) -> None:
    """A crawl that ends by itself, and one that lists every URL."""
    with Pages(site(60, 0.02)) as server:
        shown.holdfast("crawl", server.url("/", "localhost"), "--allow-private", "--job", "small", "--delay", "0")
        shown.wait("complete")
        shown.capture("finished")
        url = server.url("/", "shop.localhost")
        shown.holdfast("crawl", url, "--allow-private", "--job", "list", "-v", "--max-pages", "12", "--delay", "0.2")
        shown.wait("200 ok")
        time.sleep(1)
        shown.capture("verbose")
        shown.wait("Stopped", 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--columns", type=int, nargs="*", default=[80, 140])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for columns in options.columns:
        with terminal(columns, options.folder) as shown:
            running_and_waiting(shown)
            blocked(shown)
            finished(shown)


if __name__ == "__main__":
    main()
