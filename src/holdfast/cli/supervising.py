"""Processes of this invocation, and the signals that are for them."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Final

from holdfast import private, wiring
from holdfast.cli import output
from holdfast.cli.session import Session
from holdfast.engine.supervisor import Supervisor
from holdfast.telemetry.files import open_log

log: Final = logging.getLogger(__name__)

TICK: Final = 0.1
GRACE: Final = 15.0
"""Seconds that a background has to end."""


def program(of: Session, *arguments: str) -> list[str]:
    """Holdfast with the data and settings of this invocation. `-P`: modules in the current folder, which may be another user's, are not
    imported."""
    words = [sys.executable, "-P", "-m", "holdfast", "--data", str(of.settings.data)]
    return [*words, *(["--config", str(of.config_file)] if of.config_file else []), *arguments]


def keeping(of: Session, show: Callable[[str], None] = lambda _: None) -> AbstractContextManager[object]:
    """Keep the bundled server up, unless a parent does; what happens goes to the log, and to `show`."""

    def say(sentence: str) -> None:
        log.warning("%s", sentence)
        show(sentence)

    return nullcontext() if of.supervised else wiring.kept_up(of.settings, say)


@contextmanager
def background_beside(of: Session) -> Iterator[None]:
    """A background for as long as something else runs. If we die, it sees the end of its standard input, and stops."""
    folder = wiring.log_folder(of.settings)
    private.make_folder(folder)
    with os.fdopen(open_log(folder / "background.log"), "ab") as log:
        process = subprocess.Popen(
            program(of, "background", "--supervised"),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def look_after(
    supervisor: Supervisor, note: Callable[[str], None], told_to_stop: Callable[[int], None] | None = None
) -> bool:
    """Start the processes and look after them until they have ended; True if they were told to stop.

    The first signal asks them to stop in order, the second ends them. `note` hears what a person would want to know, `told_to_stop`
    the number of signals; without it `note` is told of them, too.
    """
    told = heard = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        told += 1  # acted on below: here a process may be in the middle of being looked after

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        supervisor.start()
        restarts = 0
        while supervisor.tick():
            if told > heard:
                heard = told
                if told_to_stop is not None:
                    told_to_stop(told)
                else:
                    note("Stopping: waiting for requests in flight; Ctrl-C again stops at once.")
                (supervisor.stop if told == 1 else supervisor.kill)()
            if supervisor.restarts > restarts and not told:
                restarts = supervisor.restarts
                note(f"{output.counted(restarts, 'worker')} died and came back")
            time.sleep(TICK)
    finally:
        supervisor.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    return told > 0
