"""Calls in a thread of their own that the process does not wait for when it ends.

The rule: only for calls that may never return, such as those on a network folder whose server is gone. They take no thread of the event
loop's pool, and may be cut off at any moment, as by a kill.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NAME: Final = "background call"


async def call_in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a daemon thread, and return its result. Cancelling the wait does not end the call."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def report(value: T | None, problem: BaseException | None) -> None:
        if result.done():  # the wait was cancelled
            return
        if problem is None:
            result.set_result(value)  # type: ignore[arg-type]
        else:
            result.set_exception(problem)

    def run() -> None:
        try:
            done = partial(report, function(*args, **kwargs), None)
        except BaseException as problem:  # noqa: BLE001 — it is raised where the result is awaited
            done = partial(report, None, problem)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done)

    threading.Thread(target=run, name=_NAME, daemon=True).start()
    return await result
