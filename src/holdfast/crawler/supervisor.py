"""The supervisor: starts N worker processes, and restarts those that die.

The rule: the supervisor knows nothing of the crawl. It starts processes, restarts those that end with an error, and forwards a request
to stop. If it is killed itself, its workers notice and stop.
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
from holdfast.telemetry.log import open_log_or_nothing

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.2
MAX_PAUSE: Final = 10.0
STABLE_SECONDS: Final = 2.0
"""Seconds of run time after which the restart pause of a worker is `FIRST_PAUSE` again."""
MAX_FAULTS: Final = 5
"""A worker that ends with an error this many times in a row, soon after its start, is not restarted."""
FATAL_EXIT_CODES: Final = frozenset({2, 4, 5})
"""Exit codes that a restart would not fix, if the worker ends at its start: usage, no such job, refused."""
EXIT_DATABASE_UNAVAILABLE: Final = 3
STARTUP_SECONDS: Final = 10.0


@dataclass(slots=True)
class _Slot:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = 0.0
    restart_at: float | None = None
    faults: int = 0


class Supervisor:
    """The worker processes of one command."""

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
        """By the number of a worker: `name` of its log, `files` are the file descriptors that it inherits, `nice` is added to the
        niceness of the supervisor."""
        self._command = command
        self._name = name
        self._files = files
        self._nice = nice
        self._folder = log_folder
        self._slots = [_Slot(number) for number in range(1, count + 1)]
        self._stopping = False
        self.restarts = 0
        self.done = False
        """Whether a worker ended because there is nothing more to do."""
        self.refusal: int | None = None
        """Exit code of a worker that failed at its start and is not restarted."""

    def start(self) -> None:
        """Start all workers."""
        private.make_folder(self._folder)
        for slot in self._slots:
            self._start(slot)

    def pids(self) -> list[int]:
        """Return the process ids of the running workers."""
        return [slot.process.pid for slot in self._slots if slot.process is not None]

    def log_file(self, number: int) -> Path:
        """Return the log file of a worker."""
        return self._folder / f"{self._name(number)}.log"

    def tick(self) -> bool:
        """Restart workers that have ended; True as long as one runs or will be restarted."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.process is not None and (code := slot.process.poll()) is not None:
                self._ended(slot, code, now)
            if slot.restart_at is not None and now >= slot.restart_at and not self._stopping:
                slot.restart_at = None
                self.restarts += 1
                self._start(slot)
        return any(
            slot.process is not None or (slot.restart_at is not None and not self._stopping) for slot in self._slots
        )

    def stop(self) -> None:
        """Send SIGTERM to all workers; they drain."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all workers, and wait for their end."""
        self._stopping = True
        self._signal(signal.SIGKILL)
        for slot in self._slots:
            if slot.process is not None:
                self._ended(slot, slot.process.wait(), time.monotonic())

    def _start(self, slot: _Slot) -> None:
        slot.started = time.monotonic()
        with self._open_log(slot) as out:
            slot.process = subprocess.Popen(
                list(self._command(slot.number)),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on the terminal goes to the supervisor only, which forwards it
                pass_fds=self._files(slot.number),
            )
        if nice := self._nice(slot.number):
            with suppress(ProcessLookupError):  # it has ended by itself
                os.setpriority(os.PRIO_PROCESS, slot.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)

    def _open_log(self, slot: _Slot) -> IO[bytes]:
        return os.fdopen(open_log_or_nothing(self.log_file(slot.number)), "ab")

    def _ended(self, slot: _Slot, code: int, now: float) -> None:
        if slot.process is not None and slot.process.stdin is not None:
            slot.process.stdin.close()
        slot.process = None
        if code == 0 or self._stopping:
            self.done = self.done or code == 0
            return
        soon = now - slot.started < STARTUP_SECONDS
        # While the database is unavailable a worker cannot start; that is no fault of the worker.
        slot.faults = slot.faults + 1 if soon and code > 0 and code != EXIT_DATABASE_UNAVAILABLE else 0
        if soon and (code in FATAL_EXIT_CODES or slot.faults >= MAX_FAULTS):
            self.refusal = code
            return
        stable = now - slot.started > STABLE_SECONDS
        slot.pause = FIRST_PAUSE if stable or not slot.pause else min(slot.pause * 2, MAX_PAUSE)
        slot.restart_at = now + slot.pause
        log.warning("worker %d ended with %d; another one starts in %.1f s", slot.number, code, slot.pause)

    def _signal(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.send_signal(number)
