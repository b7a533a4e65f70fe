"""A thread that keeps the bundled server up for a long-running command.

The rule: a server that died is started again; one that was stopped in order stays down until a command starts it. Any number of
processes may watch the same server: the one that gets the lock of start and stop restarts it, the others find it running.
"""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.errors import EmbeddedServerError
from holdfast.store import embedded
from holdfast.store.embedded.files import Say

LOOK_EVERY: Final = 0.5
"""Seconds between two looks at the server's process."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to start a server that does not start, or dies again."""
STABLE: Final = 60.0
"""Seconds that a server has to live before its next death is answered at once again."""


class Keeper:
    """Watches the server of one data folder while it is entered."""

    def __init__(self, data: Path, say: Say) -> None:
        """`say` is called from the keeper's thread: what died, why it does not start, when it runs again."""
        self._data = data
        self._say = say
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="postgres-keeper", daemon=True)
        self._pause = 0.0
        self._up_since: float | None = None
        self._reported: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A restart that is under way is not waited for: to end in the middle of one is as safe as to be killed there."""
        self._end.set()
        self._thread.join(LOOK_EVERY)

    def _watch(self) -> None:
        while not self._end.wait(LOOK_EVERY):
            try:
                self._look()
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
            if embedded.revive(self._data, self._say) is not None:
                self._say("PostgreSQL had died and runs again.")
                self._reported = None

    def _failed(self, reason: str) -> None:
        self._report(f"PostgreSQL cannot be started again, and is tried at least every minute: {reason}")

    def _report(self, sentence: str) -> None:
        """Say it unless it was the last thing that was said."""
        if sentence != self._reported:
            self._say(sentence)
        self._reported = sentence
