"""The live display of a job: a block of lines that is redrawn on a terminal, a line every few seconds elsewhere.

The rule: if nothing is fetched, the display says why. `render_block` and `render_line` are pure: a view in, text out.
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
from holdfast.cli.command_context import say
from holdfast.cli.output import format_bytes
from holdfast.cli.url_lines import UrlLine, render
from holdfast.errors import HoldfastError, StoreDiskFull, StoreUnavailable
from holdfast.jobs.live import LiveJob, LiveWait
from holdfast.settings import render_duration

READ_INTERVAL: Final = 1.0
"""Seconds between two reads of the job's state."""
LINE_INTERVAL: Final = 5.0
"""Seconds between two lines without a terminal."""
FRAME_INTERVAL: Final = 0.25
"""Seconds between two frames: clock and countdowns move between two reads."""
RATE_WINDOW: Final = 5.0
"""Seconds over which the rate is averaged."""
READ_PAUSE_FACTOR: Final = 10.0
"""The pause after a read is this many times its duration, so that reads take at most a tenth of the time."""
WIDE_TERMINAL: Final = 100
"""Columns from which a terminal shows more URLs and more waits."""
LABEL_WIDTH: Final = 10
IDLE_AFTER: Final = 2.0
"""Seconds after which the display says why nothing is fetched."""
SLOW_REQUEST: Final = 4.0
"""Seconds after which a request is shown with its age."""
_MAX_LINES: Final = 2
_NO_BREAK_SPACE: Final = "\u00a0"
"""Keeps a number and its unit on one line."""
_NOTE_SECONDS: Final = 20.0
"""Seconds for which a note is shown."""
_SHOW_CURSOR: Final = b"\x1b[?25h\x1b[0m\n"


# Lines --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgressView:
    """The state that a display shows at one moment."""

    title: str
    elapsed: float
    """Seconds since the display started."""
    job: LiveJob | None = None
    """None: not read yet."""
    age: float = 0.0
    """Seconds since `job` was read."""
    speed: float | None = None
    """Pages a second over the last seconds; None: not measured yet."""
    note: str = ""
    """A message such as "Stopping …"."""
    problem: str = ""
    """Why the job could not be read."""
    starting: bool = False
    """Workers of this process are about to start."""
    other_speed: float = 0.0
    """URLs that are no pages (images, sitemaps, redirects …) a second over the last seconds."""


def render_block(view: ProgressView, width: int) -> list[Text]:
    """The view as lines of a terminal with `width` columns."""
    lines = [_title_line(view, width)]
    job = view.job
    if job is not None:
        lines.append(_counter_line(view, job, width))
        if not view.problem:  # they would be out of date
            lines += _request_lines(view, job, width)
            lines += _wait_lines(view, job, width)
        if job.causes:
            text = ", ".join(f"{count:,} {label}" for label, count in job.causes.items())
            lines += _labelled("Errors", [Text(f"{text} (last minute)", "red")], width)
        lines += _labelled("Domains", [Text(_domain_counts(job))], width)
    elif not view.problem:
        lines.append(Text("  Starting …", "dim"))
    if view.problem:
        lines += _labelled("Waits", [Text(output.safe(view.problem), "yellow")], width)
    if view.note:
        lines += _wrap(Text(f"  {view.note}", "bold yellow"), width)
    lines.append(Text(""))  # for the ^C that the terminal writes, which must not make a full line two
    return lines


def render_line(view: ProgressView) -> str:
    """The view as one line of plain text, for output that is no terminal."""
    elapsed = render_duration(timedelta(seconds=round(view.elapsed)))
    job = view.job
    parts = []
    if job is not None:
        figures = job.figures
        parts.append(", ".join(_counters(view, job, short=True)))
        if figures.domains:
            flight = f"; {output.pluralize(job.requests, 'request')} in flight" if job.requests else ""
            parts.append(f"domains: {_status_counts(job)}; {figures.held:,} held{flight}")
        shown = [] if view.problem else _relevant_waits(view, job)
        parts += [f"waits: {wait.text(figures.now).removeprefix('waits ')}" for wait in shown[:3]]
        if len(shown) > 3:
            parts.append(f"{len(shown) - 3:,} more waits")
    if view.problem:
        parts.append(view.problem)
    if view.note:
        parts.append(view.note)
    return output.safe(f"{elapsed}: {'; '.join(parts) or 'starting'}")


def _title_line(view: ProgressView, width: int) -> Text:
    """Title, elapsed time and progress bar."""
    elapsed = render_duration(timedelta(seconds=int(view.elapsed)))
    head = Text.assemble((view.title, "bold"), ("  ", ""), (elapsed, "cyan"))
    fraction, total = _fraction_done(view.job)
    if fraction is None:
        return head
    text = f" {fraction:4.0%} of {total}"
    room = min(60, width - head.cell_len - len(text) - 2)
    if room < 5:
        head.append(f"  {text.strip()}")
    else:
        done = round(fraction * room)
        head.append("  ").append("━" * done, "green").append("─" * (room - done), "dim").append(text)
    return _truncate(head, width)


def _fraction_done(job: LiveJob | None) -> tuple[float | None, str]:
    """The fraction done and of what: of the page limit, or of the URLs known so far."""
    if job is None:
        return None, ""
    figures = job.figures
    if figures.max_pages:
        return min(1.0, figures.pages / figures.max_pages), f"{figures.max_pages:,} pages"
    known = figures.done + figures.denied + figures.failed + figures.waiting
    if not known:
        return None, ""
    # Not "100 %" as long as something waits.
    fraction = (known - figures.waiting) / known
    return min(fraction, 0.99) if figures.waiting else fraction, f"{output.pluralize(known, 'URL')} known so far"


def _counters(view: ProgressView, job: LiveJob, *, short: bool = False) -> list[str]:
    figures = job.figures
    pages = output.pluralize(figures.pages, "page")
    if figures.pages_in_all > figures.pages:
        pages += f" ({figures.pages_in_all:,} in all)" if figures.pages or figures.crawl_id else ""
        pages = output.pluralize(figures.pages_in_all, "page") if figures.crawl_id is None else pages
    counters = [pages]
    if not view.speed and view.other_speed:
        counters.append(f"{view.other_speed:.1f} other URLs/s")
    elif view.speed is not None:
        counters.append(f"{view.speed:.1f}/s" if short else f"{view.speed:.1f} pages/s")
    counters.append(f"{figures.waiting:,} waiting")
    counters.append(format_bytes(figures.bytes))
    counters.append(output.pluralize(figures.errors, "error"))
    return counters


def _counter_line(view: ProgressView, job: LiveJob, width: int) -> Text:
    figures = job.figures
    counters = _counters(view, job)
    line = Text("  ")
    moves = bool(view.speed or view.other_speed)
    styles = {0: "bold", 1 if moves or view.speed is not None else -1: "green" if moves else "yellow"}
    for index, text in enumerate(counters):
        style = "red" if text.endswith(("error", "errors")) and figures.errors else styles.get(index, "")
        line.append("   " if index else "").append(text, style)
    wide = [
        f"{figures.failed:,} failed" if figures.failed else "",
        f"{figures.denied:,} denied" if figures.denied else "",
    ]
    for text in (*wide, _time_left(view, job)):
        if text and line.cell_len + 3 + len(text) <= width:
            line.append("   ").append(text, "dim")
    return _truncate(line, width)


def _time_left(view: ProgressView, job: LiveJob) -> str:
    """The time until the page limit is reached at this rate."""
    figures = job.figures
    if not figures.max_pages or not view.speed or figures.pages >= figures.max_pages:
        return ""
    left = timedelta(seconds=round((figures.max_pages - figures.pages) / view.speed))
    return f"about {render_duration(left)} left"


def _request_lines(view: ProgressView, job: LiveJob, width: int) -> list[Text]:
    """URLs in flight, the oldest first."""
    if not job.requests:
        return []
    limit = 1 if job.waits and width < WIDE_TERMINAL else 2 if width < WIDE_TERMINAL else 3
    lines = []
    for fetch in job.fetching[:limit]:
        age = fetch.seconds + view.age
        text = f"  {age:.0f} s" if age >= SLOW_REQUEST else ""  # the state is up to two seconds old
        url = _truncate(Text(output.safe(fetch.url), "cyan"), width - LABEL_WIDTH - 2 - len(text))
        lines.append(url.append(text, "yellow"))
    more = job.requests - len(lines)
    if more > 0:
        lines.append(Text(f"and {output.pluralize(more, 'more request')} in flight", "dim"))
    return _labelled("Fetching", lines, width)


def _relevant_waits(view: ProgressView, job: LiveJob) -> list[LiveWait]:
    """The waits to show. Polite delays are shown only if no request is in flight."""
    waits = [wait for wait in job.waits if not (view.starting and not job.figures.workers)]
    problem = [wait for wait in waits if not wait.meant]
    if problem or job.requests:
        return problem
    if waits or not _is_idle(view, job):
        return waits
    return [_WAIT_STARTING if view.starting else _WAIT_WRITING if job.figures.held else _WAIT_UNKNOWN]


_WAIT_UNKNOWN: Final = LiveWait("URLs wait for a worker that takes them", None, "`holdfast explain DOMAIN` says more")


_WAIT_WRITING: Final = LiveWait(
    "no request is in flight; workers that hold domains read what was fetched, write it, or begin", meant=True
)
_WAIT_STARTING: Final = LiveWait("worker processes are starting", meant=True)


def _is_idle(view: ProgressView, job: LiveJob) -> bool:
    return bool(job.figures.waiting and not (view.speed or view.other_speed) and view.elapsed > IDLE_AFTER)


def _wait_lines(view: ProgressView, job: LiveJob, width: int) -> list[Text]:
    shown = _relevant_waits(view, job)
    limit = 3 if width < WIDE_TERMINAL else 5
    lines = []
    for wait in shown[:limit]:
        passed = None if wait.seconds is None else max(0.0, wait.seconds - view.age)
        text = replace(wait, seconds=passed).text(job.figures.now).removeprefix("waits ")
        lines.append(Text(output.safe(text), "dim" if wait.meant else "yellow"))
    if len(shown) > limit:
        lines.append(Text(f"and {len(shown) - limit:,} more", "dim"))
    return _labelled("Waits", lines, width)


def _status_counts(job: LiveJob) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in sorted(job.figures.domains.items())) or "none yet"


def _domain_counts(job: LiveJob) -> str:
    figures = job.figures
    return f"{_status_counts(job)}; {figures.held:,} held; {output.pluralize(figures.workers, 'worker')}"


def _labelled(label: str, values: Sequence[Text], width: int) -> list[Text]:
    """Lines after a label; a long value is wrapped."""
    lines: list[Text] = []
    for value in values:
        for part in _wrap(value, width - LABEL_WIDTH - 2):
            name = "" if lines else label
            lines.append(Text.assemble((f"  {name:<{LABEL_WIDTH}}", "bold"), part))
    return lines


def _wrap(text: Text, width: int) -> list[Text]:
    """At most two lines; a number and its unit stay together."""
    if text.cell_len <= width:
        return [text]
    whole = re.sub(r"(?<=\d) (?=(s|UTC)\b)|(?<=\bin) (?=\d)", _NO_BREAK_SPACE, text.plain)
    indent = whole[: len(whole) - len(whole.lstrip())]
    parts = [part.replace(_NO_BREAK_SPACE, " ") for part in textwrap.wrap(whole, width, subsequent_indent=indent)]
    if len(parts) > _MAX_LINES:
        parts = [*parts[: _MAX_LINES - 1], f"{parts[_MAX_LINES - 1]} …"]
    return [_truncate(Text(part, text.style), width) for part in parts]


def _truncate(text: Text, width: int) -> Text:
    if text.cell_len > width:
        text.truncate(width, overflow="ellipsis")
    return text


# The display --------------------------------------------------------------------------------------------------------------


def _print_plain(line: Text, **_: object) -> None:
    say(line.plain)


class ProgressDisplay:
    """Displays a job, in a thread of its own, until the block ends."""

    def __init__(
        self,
        read: Callable[[], LiveJob],
        title: str,
        *,
        quiet: bool = False,
        drain: timedelta | None = None,
        announcements: Callable[[], list[str]] = list,
    ) -> None:
        """`read` returns the state of the job; `quiet`: show nothing; `drain`: how long this process waits for requests in flight
        after Ctrl-C, None: it does not crawl; `announcements` is called after each read and returns lines to print above the block."""
        self._read = read
        self._title = title
        self._drain = drain
        self._announcements = announcements
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._terminal = output.is_terminal(sys.stderr) and not self._console.is_dumb_terminal
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)
        self._samples: deque[tuple[float, int, int]] = deque()
        self._started_at = time.monotonic()
        self._job: LiveJob | None = None
        self._read_at = 0.0
        self._next_read = 0.0
        self._problem = ""
        self._stop_signals = 0
        self._note, self._noted_at = "", 0.0
        self._outcomes: queue.SimpleQueue[UrlLine] = queue.SimpleQueue()
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._wake.set()
        if not self._quiet:
            self._thread.join()

    # From any thread, or from a signal handler --------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Show a line below the counters at once: for 20 seconds, or as long as the database does not answer."""
        self._note, self._noted_at = text, time.monotonic()
        self._wake.set()

    def on_stop_signal(self, times: int) -> None:
        """Ctrl-C was pressed `times` times: say at once what follows. The second time the process ends, so the cursor is restored."""
        self._stop_signals = times
        self._wake.set()
        if times > 1 and self._terminal and not self._quiet:
            os.write(2, _SHOW_CURSOR)

    def print_outcomes(self, lines: Iterable[UrlLine]) -> None:
        """Print a line for each of these URLs."""
        for line in lines:
            self._outcomes.put(line)

    # In the thread of the display -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._terminal:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while not self._closed.is_set():
                    self._print_queued(live.console.print)
                    self._refresh()
                    live.update(Group(*render_block(self.view(), self._console.width)), refresh=True)
                    self._wait(FRAME_INTERVAL)
                self._print_queued(live.console.print)
                live.update(Group(), refresh=True)
            return
        printed: tuple[int, str] = (0, "")
        next_line = time.monotonic() + LINE_INTERVAL
        while not self._closed.is_set():
            self._print_queued(_print_plain)
            self._refresh()
            if (self._stop_signals, self._note) != printed:
                printed = (self._stop_signals, self._note)
                say(self._stopping() or self._note)
            elif time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_INTERVAL
                say(render_line(self.view()))
            self._wait(FRAME_INTERVAL)
        self._print_queued(_print_plain)

    def _wait(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _print_queued(self, write: Callable[..., None]) -> None:
        announcements, self._lines = self._lines, []
        lines = [Text(line) for line in announcements] + [render(line) for line in self._queued_outcomes()]
        if lines:  # all at once: each write redraws the block below them
            write(Text("\n").join(lines), soft_wrap=True)

    def _queued_outcomes(self) -> Iterator[UrlLine]:
        while True:
            try:
                yield self._outcomes.get_nowait()
            except queue.Empty:
                return

    def _refresh(self) -> None:
        began = time.monotonic()
        if began < self._next_read:
            return
        try:
            self._job = self._read()
            self._lines += self._announcements()
            self._problem = ""
        except StoreDiskFull:
            self._problem = "the disk of the database is full; nothing is lost, and workers continue when there is room"
            self._samples.clear()
        except StoreUnavailable:
            self._problem = "the database does not answer; nothing is lost, and workers continue when it is back"
            self._samples.clear()
        except HoldfastError as problem:
            self._problem = str(problem)
        else:
            self._add_sample(began, self._job)
        self._read_at = time.monotonic()
        self._next_read = max(began + READ_INTERVAL, self._read_at + (self._read_at - began) * READ_PAUSE_FACTOR)

    def _add_sample(self, at: float, job: LiveJob) -> None:
        self._samples.append((at, job.figures.pages_in_all, job.figures.done))
        while len(self._samples) > 2 and at - self._samples[1][0] >= RATE_WINDOW:
            self._samples.popleft()

    @property
    def speed(self) -> float | None:
        """Pages a second over the last seconds; None: there are no two measurements with a page yet."""
        if len(self._samples) < 2:
            return None
        (first, before, _), (last, after, _) = self._samples[0], self._samples[-1]
        if not after or last <= first:
            return None
        return max(0.0, (after - before) / (last - first))

    @property
    def other_speed(self) -> float:
        """URLs that are no pages a second over the last seconds."""
        if len(self._samples) < 2:
            return 0.0
        (first, pages_before, before), (last, pages_after, after) = self._samples[0], self._samples[-1]
        others = after - before - (pages_after - pages_before)
        return max(0.0, others / (last - first)) if last > first else 0.0

    def view(self) -> ProgressView:
        """The state to show now."""
        now = time.monotonic()
        workers = self._job.figures.workers if self._job is not None else 0
        return ProgressView(
            self._title,
            now - self._started_at,
            self._job,
            now - self._read_at if self._read_at else 0.0,
            self.speed,
            self._stopping() or (self._note if self._problem or now - self._noted_at < _NOTE_SECONDS else ""),
            self._problem,
            starting=self._drain is not None and not workers,
            other_speed=self.other_speed,
        )

    def _stopping(self) -> str:
        if not self._stop_signals:
            return ""
        if self._stop_signals > 1:
            return "Stopping at once. The same command continues."
        requests = self._job.requests if self._job is not None else 0
        flight = f"{output.pluralize(requests, 'request')} in flight, " if requests else ""
        limit = "" if self._drain is None else f"up to {render_duration(self._drain)}"
        return f"Stopping: {flight}{limit}; Ctrl-C again stops at once."
