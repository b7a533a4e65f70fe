"""Processes of a command: its workers, its children, and the signals that stop them."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Final

from holdfast import factories, private
from holdfast.cli import output
from holdfast.cli.command_context import CommandContext
from holdfast.crawler.supervisor import Supervisor
from holdfast.telemetry.log import open_log_or_nothing

if TYPE_CHECKING:
    from holdfast.crawler.worker_context import WorkerConfig

log: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.1
STOP_TIMEOUT: Final = 15.0
"""Seconds that a background process has to end before it is killed."""


def holdfast_command(context: CommandContext, *arguments: str) -> list[str]:
    """The command line of a Holdfast process with the data folder and settings of this invocation.

    `-P`: Python does not import modules from the current folder, which may belong to another user.
    """
    command = [sys.executable, "-P", "-m", "holdfast", "--data", str(context.settings.data)]
    return [*command, *(["--config", str(context.config_file)] if context.config_file else []), *arguments]


def available_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_worker(
    plan: "WorkerConfig", *, supervised: bool = False, on_stop_signal: Callable[[int], None] | None = None
) -> bool:
    """Run a worker in this process; True if a signal stopped it. The crawler is imported here, so that other commands start faster."""
    from holdfast.crawler import worker_process

    return worker_process.run_worker(plan, supervised=supervised, on_signal=on_stop_signal)


def keep_server_running(
    context: CommandContext, notify: Callable[[str], None] = lambda _: None
) -> AbstractContextManager[object]:
    """Restart the bundled database server when it ends, unless the parent process does; events go to the log and to `notify`."""

    def say(sentence: str) -> None:
        log.warning("%s", sentence)
        notify(sentence)

    return nullcontext() if context.supervised else factories.server_watchdog(context.settings, say)


@contextmanager
def background_process(context: CommandContext) -> Iterator[None]:
    """Run a background process during the block. If this process dies, the child reads the end of its standard input, and stops."""
    folder = factories.log_folder(context.settings)
    private.make_folder(folder)
    with os.fdopen(open_log_or_nothing(folder / "background.log"), "ab") as log:
        process = subprocess.Popen(
            holdfast_command(context, "background", "--supervised"),
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
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_until_stopped(
    supervisor: Supervisor, notify: Callable[[str], None], on_stop_signal: Callable[[int], None] | None = None
) -> bool:
    """Start the processes and supervise them until they have ended; True if a signal stopped them.

    The first SIGINT or SIGTERM stops them gracefully, the second kills them. `notify` gets messages for the user, `on_stop_signal` the
    number of signals so far; without it `notify` gets a message about them, too.
    """
    signals = handled = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1  # handled below: the handler may interrupt `tick`

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        supervisor.start()
        restarts = 0
        while supervisor.tick():
            if signals > handled:
                handled = signals
                if on_stop_signal is not None:
                    on_stop_signal(signals)
                else:
                    notify("Stopping: waiting for requests in flight; Ctrl-C again stops at once.")
                (supervisor.stop if signals == 1 else supervisor.kill)()
            if supervisor.restarts > restarts and not signals:
                restarts = supervisor.restarts
                notify(f"{output.pluralize(restarts, 'worker')} died and came back")
            time.sleep(POLL_SECONDS)
    finally:
        supervisor.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    return signals > 0
