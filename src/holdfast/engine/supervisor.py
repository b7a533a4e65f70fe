"""N worker processes, and another one for each that dies.

The rule: the supervisor knows nothing of the crawl. It starts processes, restarts those that end by a fault, and passes a request to
stop on. If it is killed itself, its workers notice and stop.
"""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from holdfast import private
from holdfast.telemetry.files import open_log

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
STABLE: Final = 2.0
"""Seconds after which a worker that dies is restarted at once again."""
MOST_FAULTS: Final = 5
"""A worker that ends so often in a row with an error of its own, soon after its start, is not started again."""
CONFIGURED_WRONG: Final = frozenset({2, 4, 5})
"""Exit codes of errors that a restart would not mend, if they come at once: usage, no such job, refused."""
STORE_AWAY: Final = 3
AT_ONCE: Final = 10.0


@dataclass(slots=True)
class _Place:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = 0.0
    restart_at: float | None = None
    faults: int = 0


class Supervisor:
    """Worker processes of one invocation."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        log_folder: Path,
        *,
        name: Callable[[int], str] = "worker-{}".format,
        files: Callable[[int], Sequence[int]] = lambda _: (),
        nice: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`name` is what the log of a process is called; `files` are open files of ours that it gets, by their numbers; `nice` is how
        much it stands back behind others who want the processor."""
        self._command = command
        self._name = name
        self._files = files
        self._nice = nice
        self._folder = log_folder
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._stopping = False
        self.restarts = 0
        self.done = False
        """A worker found that there is nothing more to do."""
        self.refusal: int | None = None
        """The exit code of a worker that could not begin at all."""

    def start(self) -> None:
        """Start all workers."""
        private.make_folder(self._folder)
        for place in self._places:
            self._start(place)

    def pids(self) -> list[int]:
        """Of the workers that live."""
        return [place.process.pid for place in self._places if place.process is not None]

    def log_file(self, number: int) -> Path:
        """Where a worker writes what it has to say."""
        return self._folder / f"{self._name(number)}.log"

    def tick(self) -> bool:
        """Look after the workers; True as long as there is one, or will be."""
        now = time.monotonic()
        for place in self._places:
            if place.process is not None and (code := place.process.poll()) is not None:
                self._ended(place, code, now)
            if place.restart_at is not None and now >= place.restart_at and not self._stopping:
                place.restart_at = None
                self.restarts += 1
                self._start(place)
        return any(
            place.process is not None or (place.restart_at is not None and not self._stopping) for place in self._places
        )

    def stop(self) -> None:
        """Ask all to stop; they drain."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all at once."""
        self._stopping = True
        self._signal(signal.SIGKILL)
        for place in self._places:
            if place.process is not None:
                self._ended(place, place.process.wait(), time.monotonic())

    def _start(self, place: _Place) -> None:
        place.started = time.monotonic()
        with self._open_log(place) as out:
            place.process = subprocess.Popen(
                list(self._command(place.number)),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on the terminal is the supervisor's to pass on
                pass_fds=self._files(place.number),
            )
        if nice := self._nice(place.number):
            with suppress(ProcessLookupError):  # it has ended by itself
                os.setpriority(os.PRIO_PROCESS, place.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)

    def _open_log(self, place: _Place) -> IO[bytes]:
        return os.fdopen(open_log(self.log_file(place.number)), "ab")

    def _ended(self, place: _Place, code: int, now: float) -> None:
        if place.process is not None and place.process.stdin is not None:
            place.process.stdin.close()
        place.process = None
        if code == 0 or self._stopping:
            self.done = self.done or code == 0
            return
        soon = now - place.started < AT_ONCE
        # With the database away a worker cannot begin; it will when it is back.
        place.faults = place.faults + 1 if soon and code > 0 and code != STORE_AWAY else 0
        if soon and (code in CONFIGURED_WRONG or place.faults >= MOST_FAULTS):
            self.refusal = code
            return
        stable = now - place.started > STABLE
        place.pause = FIRST_PAUSE if stable or not place.pause else min(place.pause * 2, LONGEST_PAUSE)
        place.restart_at = now + place.pause
        log.warning("worker %d ended with %d; another one starts in %.1f s", place.number, code, place.pause)

    def _signal(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(number)
