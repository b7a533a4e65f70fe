"""A worker as a process: its event loop, its signals, its end.

The rule: the first SIGINT or SIGTERM asks the worker to finish what is in flight; the second ends the process at once, which is as
safe as any other moment. A worker whose supervisor is gone (end of its standard input) stops as well.
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

from holdfast.engine.plan import Plan
from holdfast.engine.worker import Worker

INTERRUPTED = 130
SPARE_FILES = 200
"""Open files beside the connections to sites: the database, the archive, libraries."""


def run_worker(plan: Plan, *, supervised: bool = False, told: Callable[[int], None] | None = None) -> bool:
    """Run a worker in this process, from its main thread, until it ends; True if it was told to stop.

    `told` is called at once when it is told to stop, with the number of times.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = plan.settings.fetch.connections + SPARE_FILES
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(plan, supervised=supervised, told=told))


async def _main(plan: Plan, *, supervised: bool, told: Callable[[int], None] | None) -> bool:
    worker = Worker(plan)
    gc.freeze()  # what was imported stays for ever; to look through it again and again was a third of the time of all collections
    return await until_told(worker.run(), worker.stop, supervised=supervised, heard=told)


async def until_told(
    work: Awaitable[None],
    stop_it: Callable[[], None],
    *,
    supervised: bool,
    heard: Callable[[int], None] | None = None,
) -> bool:
    """Wait for `work`, with the signals as above; True if it was told to stop. `heard` gets the number of signals, at once."""
    loop = asyncio.get_running_loop()
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        if heard is not None:
            heard(told)
        if told > 1:
            os._exit(INTERRUPTED)
        stop_it()

    def ask_to_stop() -> None:
        if not told:
            stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if supervised:
        threading.Thread(
            target=_wait_for_the_end, args=(lambda: loop.call_soon_threadsafe(ask_to_stop),), daemon=True
        ).start()
    await work
    return told > 0


def _wait_for_the_end(call: Callable[[], object]) -> None:
    """Standard input ends when the supervisor is gone. (Read past Python's buffer, whose lock would outlive the interpreter.)"""
    while os.read(0, 1024):
        pass
    with suppress(RuntimeError):  # the loop is over already
        call()
