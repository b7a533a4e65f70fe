"""A thread that restarts the bundled server after a crash, for a long-running command.

The rule: a server that died is restarted; one that was shut down cleanly stays down until a command starts it. Any number of
processes may watch the same server: the one that gets the start lock restarts it, the others find it running.
"""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.db import embedded
from holdfast.db.embedded.safe_files import Say
from holdfast.errors import DiskFull, EmbeddedServerError

LOOK_EVERY: Final = 0.5
"""Seconds between two checks of the server's process."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to start a server that does not start, or dies again."""
DISK_PAUSE: Final = 5.0
"""Likewise while the disk is full: it starts soon after there is room."""
STABLE: Final = 60.0
"""Seconds of uptime after which the next crash is answered without a pause again."""


class Watchdog:
    """Watches the server of one data folder while it is entered."""

    def __init__(self, data: Path, say: Say) -> None:
        """`say` is called from the watchdog's thread when the server died, does not start, or runs again."""
        self._data = data
        self._say = say
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="postgres-watchdog", daemon=True)
        self._pause = 0.0
        self._up_since: float | None = None
        self._reported: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does not wait for a restart in progress: an exit in the middle of one is as safe as a kill."""
        self._end.set()
        self._thread.join(LOOK_EVERY)

    def _watch(self) -> None:
        while not self._end.wait(LOOK_EVERY):
            try:
                self._look()
            except DiskFull as problem:
                self._pause = min(self._pause, DISK_PAUSE)
                self._failed(str(problem))
            except EmbeddedServerError as problem:
                self._failed(str(problem))
            except Exception as problem:  # noqa: BLE001 — a thread that ended would leave the command without a keeper
                self._failed(f"{type(problem).__name__}: {problem}")

    def _look(self) -> None:
        found, now = embedded.state(self._data), time.monotonic()
        if found is embedded.State.RUNS:
            self._up_since = self._up_since or now
            self._pause = 0.0 if now - self._up_since > STABLE else self._pause
            if self._reported is not None:
                self._say("PostgreSQL runs again.")
                self._reported = None
            return
        self._up_since = None
        if found is embedded.State.STOPPED:
            self._report(
                "PostgreSQL was stopped by `holdfast db stop` or another orderly way and stays down: "
                "everything waits until a command, such as `holdfast status`, starts it."
            )
        elif not self._end.wait(self._pause):
            self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            if embedded.restart_if_died(self._data, self._say) is not None:
                self._say("PostgreSQL had died and runs again.")
                self._reported = None

    def _failed(self, reason: str) -> None:
        self._report(f"PostgreSQL cannot be started again, and is tried at least every minute: {reason}")

    def _report(self, sentence: str) -> None:
        """Print the sentence unless it was the last one printed."""
        if sentence != self._reported:
            self._say(sentence)
        self._reported = sentence
