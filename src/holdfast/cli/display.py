"""The live display of a crawl: a few lines that move on a terminal, a line from time to time elsewhere."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.session import say
from holdfast.errors import HoldfastError
from holdfast.settings import render_duration
from holdfast.store.reports import Progress, Spread

LIVE_EVERY: Final = 1.0
PLAIN_EVERY: Final = 5.0
SPEED_OVER: Final = 10.0
"""Seconds that the rate is an average of."""
SPREAD_SHARE: Final = 10.0
"""The look at all domains may take a tenth of the time, not more."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


class Display:
    """Watches a crawl in a thread of its own until it is closed."""

    def __init__(self, look: Callable[[bool], Progress], title: str) -> None:
        self._look = look
        self._title = title
        self._terminal = output.is_terminal(sys.stderr)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="display", daemon=True)
        self._last: Progress | None = None
        self._marks: deque[tuple[float, int]] = deque()
        self._begun = time.monotonic()
        self._trouble = ""
        self._spread: Spread | None = None
        self._spread_after = 0.0
        self.note = ""
        """A line below the figures: stopping, a worker restarted …"""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        if not self._terminal:
            while not self._stop.wait(PLAIN_EVERY):
                self._ask()
                for line in self._lines(plain=True):
                    say(line)
            return
        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
            while not self._stop.wait(LIVE_EVERY):
                self._ask()
                live.update(
                    Group(*(Text(line, overflow="ellipsis", no_wrap=True) for line in self._lines(plain=False)))
                )

    def _ask(self) -> None:
        began = time.monotonic()
        wanted = began >= self._spread_after
        try:
            progress = self._look(wanted)
            self._trouble = ""
        except HoldfastError as problem:
            self._trouble = str(problem)
            return
        if wanted:
            self._spread = progress.spread
            self._spread_after = time.monotonic() + (time.monotonic() - began) * SPREAD_SHARE
        self._last = progress
        self._marks.append((began, progress.pages))
        while began - self._marks[0][0] > SPEED_OVER:
            self._marks.popleft()

    @property
    def speed(self) -> float:
        """Pages a second, lately."""
        if len(self._marks) < 2:
            return 0.0
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def _lines(self, *, plain: bool) -> list[str]:
        if self._trouble:
            return [output.safe(self._trouble)]
        progress, spread = self._last, self._spread
        if progress is None:
            return []
        elapsed = render_duration(timedelta(seconds=round(time.monotonic() - self._begun)))
        figures = [
            output.counted(progress.pages, "page"),
            f"{self.speed:.1f}/s",
            size(progress.bytes),
            output.counted(progress.errors, "error"),
        ]
        if spread is not None:
            figures.insert(2, f"{spread.waiting:,} waiting")
        if eta := self._eta(progress):
            figures.append(eta)
        domains = ", ".join(f"{count:,} {status}" for status, count in sorted(spread.domains.items())) if spread else ""
        head = ", ".join(figures)
        if plain:
            rest = f"; domains: {domains}; {progress.held:,} held" if domains else ""
            return [f"{elapsed}: {head}{rest}{f'; {self.note}' if self.note else ''}"]
        lines = [
            f"{self._title}  {elapsed}",
            f"  {head}",
            f"  domains: {domains}; {progress.held:,} held by {output.counted(progress.runs, 'worker')}",
        ]
        return lines + ([f"  {self.note}"] if self.note else [])

    def _eta(self, progress: Progress) -> str:
        if not progress.max_pages or not self.speed:
            return ""
        left = max(0, progress.max_pages - progress.pages) / self.speed
        return f"budget used in {render_duration(timedelta(seconds=round(left)))}"
