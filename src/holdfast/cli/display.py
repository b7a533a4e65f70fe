"""The live display of a job: a block of lines that moves on a terminal, a line from time to time elsewhere.

The rule: where nothing is fetched, it says why. `block` and `plain` put a view into lines and do nothing else.
"""

import os
import queue
import re
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.output import size
from holdfast.cli.session import say
from holdfast.cli.url_lines import UrlLine, render
from holdfast.control.live import LiveJob, LiveWait
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.settings import render_duration

LIVE_EVERY: Final = 1.0
PLAIN_EVERY: Final = 5.0
FRAME: Final = 0.25
"""Seconds between two frames: the clock and the countdowns go on between two looks."""
SPEED_OVER: Final = 5.0
"""Seconds that the rate is an average of."""
LOOK_SHARE: Final = 10.0
"""The look at all domains of a job may take a tenth of the time, not more."""
NARROW: Final = 100
"""Columns; a wider terminal gets more URLs and more waits."""
LABEL: Final = 10
STILL: Final = 2.0
"""Seconds after which a display says why nothing is fetched."""
SLOW: Final = 4.0
"""Seconds after which a request is shown with its age."""
_MOST_LINES_OF_A_WAIT: Final = 2
_TOGETHER: Final = "\u00a0"
"""A blank at which no line ends."""
_NOTED: Final = 20.0
"""Seconds for which a note is shown."""
_SHOW_CURSOR: Final = b"\x1b[?25h\x1b[0m\n"


# Lines --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """What a display shows at one moment."""

    title: str
    elapsed: float
    """Seconds."""
    job: LiveJob | None = None
    """None: nothing is known yet."""
    age: float = 0.0
    """Seconds since that was read."""
    speed: float | None = None
    """Pages a second over the last seconds; None: not measured yet."""
    note: str = ""
    """Stopping, a worker restarted …"""
    trouble: str = ""
    """Why nothing could be read."""
    starts: bool = False
    """Workers of this process are about to start."""


def block(view: View, width: int) -> list[Text]:
    """The view as lines of a terminal that is so wide."""
    lines = [_head(view, width)]
    job = view.job
    if job is not None:
        lines.append(_figures(view, job, width))
        if not view.trouble:  # else they are of before
            lines += _fetching(view, job, width)
            lines += _waits(view, job, width)
        if job.causes:
            told = ", ".join(f"{count:,} {label}" for label, count in job.causes.items())
            lines += _field("Errors", [Text(f"{told} (last minute)", "red")], width)
        lines += _field("Domains", [Text(_domains(job))], width)
    elif not view.trouble:
        lines.append(Text("  Starting …", "dim"))
    if view.trouble:
        lines += _field("Waits", [Text(output.safe(view.trouble), "yellow")], width)
    if view.note:
        lines += _wrapped(Text(f"  {view.note}", "bold yellow"), width)
    lines.append(Text(""))  # for the ^C that the terminal writes, which must not make a full line two
    return lines


def plain(view: View) -> str:
    """The view as one line, where there is no terminal."""
    elapsed = render_duration(timedelta(seconds=round(view.elapsed)))
    job = view.job
    parts = []
    if job is not None:
        figures = job.figures
        parts.append(", ".join(_numbers(view, job, short=True)))
        if figures.domains:
            flight = f"; {output.counted(job.requests, 'request')} in flight" if job.requests else ""
            parts.append(f"domains: {_statuses(job)}; {figures.held:,} held{flight}")
        shown = [] if view.trouble else _shown_waits(view, job)
        parts += [f"waits: {wait.text(figures.now).removeprefix('waits ')}" for wait in shown[:3]]
        if len(shown) > 3:
            parts.append(f"{len(shown) - 3:,} more waits")
    if view.trouble:
        parts.append(view.trouble)
    if view.note:
        parts.append(view.note)
    return output.safe(f"{elapsed}: {'; '.join(parts) or 'starting'}")


def _head(view: View, width: int) -> Text:
    """The title, the time, and a bar."""
    elapsed = render_duration(timedelta(seconds=int(view.elapsed)))
    head = Text.assemble((view.title, "bold"), ("  ", ""), (elapsed, "cyan"))
    share, of = _share(view.job)
    if share is None:
        return head
    told = f" {share:4.0%} of {of}"
    room = min(60, width - head.cell_len - len(told) - 2)
    if room < 5:
        head.append(f"  {told.strip()}")
    else:
        done = round(share * room)
        head.append("  ").append("━" * done, "green").append("─" * (room - done), "dim").append(told)
    return _cut(head, width)


def _share(job: LiveJob | None) -> tuple[float | None, str]:
    """How much is done of what: of the crawl's limit, or of the URLs that are known so far."""
    if job is None:
        return None, ""
    figures = job.figures
    if figures.max_pages:
        return min(1.0, figures.pages / figures.max_pages), f"{figures.max_pages:,} pages"
    known = figures.done + figures.denied + figures.failed + figures.waiting
    if not known:
        return None, ""
    # Not "100 %" as long as something waits.
    share = (known - figures.waiting) / known
    return min(share, 0.99) if figures.waiting else share, f"{output.counted(known, 'URL')} known so far"


def _numbers(view: View, job: LiveJob, *, short: bool = False) -> list[str]:
    figures = job.figures
    pages = output.counted(figures.pages, "page")
    if figures.pages_in_all > figures.pages:
        pages += f" ({figures.pages_in_all:,} in all)" if figures.pages or figures.crawl_id else ""
        pages = output.counted(figures.pages_in_all, "page") if figures.crawl_id is None else pages
    numbers = [pages]
    if view.speed is not None:
        numbers.append(f"{view.speed:.1f}/s" if short else f"{view.speed:.1f} pages/s")
    numbers.append(f"{figures.waiting:,} waiting")
    numbers.append(size(figures.bytes))
    numbers.append(output.counted(figures.errors, "error"))
    return numbers


def _figures(view: View, job: LiveJob, width: int) -> Text:
    figures = job.figures
    numbers = _numbers(view, job)
    line = Text("  ")
    styles = {0: "bold", 1 if view.speed is not None else -1: "green" if view.speed else "yellow"}
    for number, told in enumerate(numbers):
        style = "red" if told.endswith(("error", "errors")) and figures.errors else styles.get(number, "")
        line.append("   " if number else "").append(told, style)
    wide = [
        f"{figures.failed:,} failed" if figures.failed else "",
        f"{figures.denied:,} denied" if figures.denied else "",
    ]
    for told in (*wide, _remaining(view, job)):
        if told and line.cell_len + 3 + len(told) <= width:
            line.append("   ").append(told, "dim")
    return _cut(line, width)


def _remaining(view: View, job: LiveJob) -> str:
    """How long the crawl's limit lasts at this rate."""
    figures = job.figures
    if not figures.max_pages or not view.speed or figures.pages >= figures.max_pages:
        return ""
    left = timedelta(seconds=round((figures.max_pages - figures.pages) / view.speed))
    return f"about {render_duration(left)} left"


def _fetching(view: View, job: LiveJob, width: int) -> list[Text]:
    """URLs in flight, the oldest first."""
    if not job.requests:
        return []
    most = 1 if job.waits and width < NARROW else 2 if width < NARROW else 3
    lines = []
    for fetch in job.fetching[:most]:
        age = fetch.seconds + view.age
        told = f"  {age:.0f} s" if age >= SLOW else ""  # what was read is up to two seconds old
        url = _cut(Text(output.safe(fetch.url), "cyan"), width - LABEL - 2 - len(told))
        lines.append(url.append(told, "yellow"))
    more = job.requests - len(lines)
    if more > 0:
        lines.append(Text(f"and {output.counted(more, 'more request')} in flight", "dim"))
    return _field("Fetching", lines, width)


def _shown_waits(view: View, job: LiveJob) -> list[LiveWait]:
    """Waits to be told. Polite delays are told only where nothing else is done."""
    waits = [wait for wait in job.waits if not (view.starts and not job.figures.workers)]
    trouble = [wait for wait in waits if not wait.meant]
    if trouble or job.requests:
        return trouble
    if waits or not _stands_still(view, job):
        return waits
    return [_STARTS if view.starts else _WRITES if job.figures.held else _UNKNOWN]


_UNKNOWN: Final = LiveWait("URLs wait for a worker that takes them", None, "`holdfast explain DOMAIN` says more")


_WRITES: Final = LiveWait(
    "no request is in flight; workers that hold domains parse pages, write them, or begin", meant=True
)
_STARTS: Final = LiveWait("worker processes are starting", meant=True)


def _stands_still(view: View, job: LiveJob) -> bool:
    return bool(job.figures.waiting and not view.speed and view.elapsed > STILL)


def _waits(view: View, job: LiveJob, width: int) -> list[Text]:
    shown = _shown_waits(view, job)
    most = 3 if width < NARROW else 5
    lines = []
    for wait in shown[:most]:
        passed = None if wait.seconds is None else max(0.0, wait.seconds - view.age)
        told = replace(wait, seconds=passed).text(job.figures.now).removeprefix("waits ")
        lines.append(Text(output.safe(told), "dim" if wait.meant else "yellow"))
    if len(shown) > most:
        lines.append(Text(f"and {len(shown) - most:,} more", "dim"))
    return _field("Waits", lines, width)


def _statuses(job: LiveJob) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in sorted(job.figures.domains.items())) or "none yet"


def _domains(job: LiveJob) -> str:
    figures = job.figures
    return f"{_statuses(job)}; {figures.held:,} held; {output.counted(figures.workers, 'worker')}"


def _field(label: str, values: Sequence[Text], width: int) -> list[Text]:
    """Lines behind a label; a long value is wrapped."""
    lines: list[Text] = []
    for value in values:
        for part in _wrapped(value, width - LABEL - 2):
            name = "" if lines else label
            lines.append(Text.assemble((f"  {name:<{LABEL}}", "bold"), part))
    return lines


def _wrapped(text: Text, width: int) -> list[Text]:
    """At most two lines; a number and its unit stay together."""
    if text.cell_len <= width:
        return [text]
    whole = re.sub(r"(?<=\d) (?=(s|UTC)\b)|(?<=\bin) (?=\d)", _TOGETHER, text.plain)
    indent = whole[: len(whole) - len(whole.lstrip())]
    parts = [part.replace(_TOGETHER, " ") for part in textwrap.wrap(whole, width, subsequent_indent=indent)]
    if len(parts) > _MOST_LINES_OF_A_WAIT:
        parts = [*parts[: _MOST_LINES_OF_A_WAIT - 1], f"{parts[_MOST_LINES_OF_A_WAIT - 1]} …"]
    return [_cut(Text(part, text.style), width) for part in parts]


def _cut(text: Text, width: int) -> Text:
    if text.cell_len > width:
        text.truncate(width, overflow="ellipsis")
    return text


# The display --------------------------------------------------------------------------------------------------------------


def _say_line(line: Text, **_: object) -> None:
    say(line.plain)


class Display:
    """Watches a job in a thread of its own until it is closed."""

    def __init__(
        self,
        look: Callable[[], LiveJob],
        title: str,
        *,
        quiet: bool = False,
        drain: timedelta | None = None,
        news: Callable[[], list[str]] = list,
    ) -> None:
        """`quiet`: show nothing; `drain`: how long requests in flight are waited for when this process is told to stop, None: it does
        not crawl, it only watches; `news`: lines to be printed once above the figures, asked for with them."""
        self._look = look
        self._title = title
        self._drain = drain
        self._news = news
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._terminal = output.is_terminal(sys.stderr) and not self._console.is_dumb_terminal
        self._end = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="display", daemon=True)
        self._marks: deque[tuple[float, int]] = deque()
        self._begun = time.monotonic()
        self._job: LiveJob | None = None
        self._looked = 0.0
        self._look_at = 0.0
        self._trouble = ""
        self._told = 0
        self._note, self._noted = "", 0.0
        self._urls: queue.SimpleQueue[UrlLine] = queue.SimpleQueue()
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._wake.set()
        if not self._quiet:
            self._thread.join()

    # From any thread, or from a signal handler --------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Show a line below the figures, now: for a while, and as long as the database does not answer."""
        self._note, self._noted = text, time.monotonic()
        self._wake.set()

    def told_to_stop(self, times: int) -> None:
        """Ctrl-C was pressed: say at once what follows. The second time the process ends, so the terminal is left as it was."""
        self._told = times
        self._wake.set()
        if times > 1 and self._terminal and not self._quiet:
            os.write(2, _SHOW_CURSOR)

    def listed(self, lines: Iterable[UrlLine]) -> None:
        """Print the outcomes of these URLs."""
        for line in lines:
            self._urls.put(line)

    # In the thread of the display -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._terminal:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while not self._end.is_set():
                    self._print_urls(live.console.print)
                    self._ask()
                    live.update(Group(*block(self.view(), self._console.width)), refresh=True)
                    self._wait(FRAME)
                self._print_urls(live.console.print)
                live.update(Group(), refresh=True)
            return
        said: tuple[int, str] = (0, "")
        next_line = time.monotonic() + PLAIN_EVERY
        while not self._end.is_set():
            self._print_urls(_say_line)
            self._ask()
            if (self._told, self._note) != said:
                said = (self._told, self._note)
                say(self._stopping() or self._note)
            elif time.monotonic() >= next_line:
                next_line = time.monotonic() + PLAIN_EVERY
                say(plain(self.view()))
            self._wait(FRAME)
        self._print_urls(_say_line)

    def _wait(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _print_urls(self, write: Callable[..., None]) -> None:
        news, self._lines = self._lines, []
        lines = [Text(line) for line in news] + [render(line) for line in self._drained()]
        if lines:  # all at once: each write draws the block below them anew
            write(Text("\n").join(lines), soft_wrap=True)

    def _drained(self) -> Iterator[UrlLine]:
        while True:
            try:
                yield self._urls.get_nowait()
            except queue.Empty:
                return

    def _ask(self) -> None:
        began = time.monotonic()
        if began < self._look_at:
            return
        try:
            self._job = self._look()
            self._lines += self._news()
            self._trouble = ""
        except StoreUnavailable:
            self._trouble = "the database does not answer; nothing is lost, and workers go on when it is back"
            self._marks.clear()
        except HoldfastError as problem:
            self._trouble = str(problem)
        else:
            self._measure(began, self._job)
        self._looked = time.monotonic()
        self._look_at = max(began + LIVE_EVERY, self._looked + (self._looked - began) * LOOK_SHARE)

    def _measure(self, at: float, job: LiveJob) -> None:
        self._marks.append((at, job.figures.pages_in_all))
        while len(self._marks) > 2 and at - self._marks[1][0] >= SPEED_OVER:
            self._marks.popleft()

    @property
    def speed(self) -> float | None:
        """Pages a second over the last seconds; None: there are no two measurements with a page yet."""
        if len(self._marks) < 2:
            return None
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        if not after or last <= first:
            return None
        return max(0.0, (after - before) / (last - first))

    def view(self) -> View:
        """What is shown at this moment."""
        now = time.monotonic()
        workers = self._job.figures.workers if self._job is not None else 0
        return View(
            self._title,
            now - self._begun,
            self._job,
            now - self._looked if self._looked else 0.0,
            self.speed,
            self._stopping() or (self._note if self._trouble or now - self._noted < _NOTED else ""),
            self._trouble,
            starts=self._drain is not None and not workers,
        )

    def _stopping(self) -> str:
        if not self._told:
            return ""
        if self._told > 1:
            return "Stopping at once. The same command goes on."
        requests = self._job.requests if self._job is not None else 0
        flight = f"{output.counted(requests, 'request')} in flight, " if requests else ""
        limit = "" if self._drain is None else f"up to {render_duration(self._drain)}"
        return f"Stopping: {flight}{limit}; Ctrl-C again stops at once."
