"""Detects that a call on the folder of backups does not return, as on a network folder whose server is gone, and reports it.

The rule: such a call cannot be interrupted, so another thread reports it, which touches no file. Looks are counted, and not seconds: a
process that was frozen reports nothing.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from holdfast.errors import HoldfastError
from holdfast.telemetry.bounded_calls import BoundedCalls

log: Final = logging.getLogger(__name__)

STALLED_AFTER: Final = 30.0
"""Seconds without a sign of progress after which a folder counts as stalled."""
PROGRAM_STALLED_AFTER: Final = 300.0
"""The same while a program of PostgreSQL copies, which syncs all that it wrote at its end, or while many files are deleted."""
COPY_CHECK_SECONDS: Final = 10.0
"""Seconds that the look for a copy may take."""
LOOK_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 5.0
"""Seconds between two reports while it lasts."""


class CopyCheck:
    """Tells whether the folder of backups has a copy of a file. While it does not answer, the answer is no: the file is kept then."""

    def __init__(self, folder: Path, *, seconds: float = COPY_CHECK_SECONDS) -> None:
        self._folder = folder
        self._calls = BoundedCalls(seconds)
        self._reported = False

    def __call__(self, name: str) -> bool:
        try:
            found = self._calls.call((self._folder / name).is_file)
        except TimeoutError:
            if not self._reported:
                log.warning(
                    "the folder of backups, %s, does not answer: files that a backup names are kept", self._folder
                )
            self._reported = True
            return False
        self._reported = False
        return found


class StallWatch:
    """Watches one thread that uses the folder. A context manager: it looks until its end."""

    def __init__(
        self,
        on_stall: Callable[[float], None],
        on_return: Callable[[], None],
        *,
        after: float | None = None,
        look_seconds: float | None = None,
    ) -> None:
        """`on_stall` gets the seconds without progress, again and again while it lasts; `on_return` is called when the folder answers
        again, and repeated if it raises a HoldfastError. Both are called in a thread of this watch."""
        self._on_stall = on_stall
        self._on_return = on_return
        self._after = STALLED_AFTER if after is None else after
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._patience: float | None = None
        """Seconds that the present use of the folder may take; None: it is not in use."""
        self._touched = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)

    def touch(self, patience: float | None = None) -> None:
        """Say that the folder is used from now on, and answered until now. The next sign may take `patience` seconds."""
        self._patience = self._after if patience is None else patience
        self._touched = True

    def rest(self) -> None:
        """Say that the folder is not used until the next `touch`."""
        self._patience = None
        self._touched = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        quiet = 0.0
        reported: float | None = None
        """How long it had lasted at the last report; None: nothing is to be taken back."""
        while not self._ended.wait(self._look_seconds):
            quiet = 0.0 if self._touched else quiet + self._look_seconds
            self._touched = False
            patience = self._patience
            try:
                if patience is not None and quiet >= patience:
                    if reported is None or quiet - reported >= REPORT_SECONDS:
                        reported = quiet
                        self._on_stall(quiet)
                elif reported is not None:
                    self._on_return()
                    reported = None
            except HoldfastError as problem:
                log.warning("that the folder of backups does not answer cannot be recorded: %s", problem)
            except Exception:
                log.exception("the watch of the folder of backups: a fault of ours")
