"""Runs a worker as a process: event loop, signals, exit.

The rule: the first SIGINT or SIGTERM lets the worker finish the requests in flight; the second ends the process at once, which is as
safe as at any other moment. A worker whose supervisor is gone (end of its standard input) stops as well.
"""

import asyncio
import gc
import os
import resource
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import uvloop

from holdfast.crawler.worker import Worker
from holdfast.crawler.worker_context import WorkerConfig

INTERRUPTED = 130
SPARE_FILES = 200
"""Open files in addition to the connections to sites: the database, the archive, libraries."""


def run_worker(
    config: WorkerConfig, *, supervised: bool = False, on_signal: Callable[[int], None] | None = None
) -> bool:
    """Run a worker in this process, on its main thread, until it ends; True if it was stopped by a signal.

    `on_signal` is called at each stop signal, with their number so far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.settings.fetch.connections + SPARE_FILES
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(config, supervised=supervised, on_signal=on_signal))


async def _main(config: WorkerConfig, *, supervised: bool, on_signal: Callable[[int], None] | None) -> bool:
    worker = Worker(config)
    gc.freeze()  # imported modules are never freed; scanning them was a third of the time of all collections
    return await run_until_stopped(worker.run(), worker.stop, supervised=supervised, on_signal=on_signal)


async def run_until_stopped(
    work: Awaitable[None],
    stop_work: Callable[[], None],
    *,
    supervised: bool,
    on_signal: Callable[[int], None] | None = None,
) -> bool:
    """Await `work`, and call `stop_work` at the first stop signal; True if there was one. `on_signal` gets their number at each."""
    loop = asyncio.get_running_loop()
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if on_signal is not None:
            on_signal(signals)
        if signals > 1:
            os._exit(INTERRUPTED)
        stop_work()

    def stop_once() -> None:
        if not signals:
            stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if supervised:
        threading.Thread(
            target=_wait_for_stdin_end, args=(lambda: loop.call_soon_threadsafe(stop_once),), daemon=True
        ).start()
    await work
    return signals > 0


def _wait_for_stdin_end(call: Callable[[], object]) -> None:
    """Call when standard input ends: the supervisor is gone. (Read without Python's buffer, whose lock would outlive the interpreter.)"""
    while os.read(0, 1024):
        pass
    with suppress(RuntimeError):  # the loop is over already
        call()
