"""Thread pools for requests: as many run at the same time as there are database connections for, each in one thread.

The rule: a queued request holds nothing, and a running one waits for nothing but the database. Reads, which wait for
no lock there, have a pool of their own, so that they are not queued behind writes. A request stays in one thread from
beginning to end: each change of threads costs as much as three statements.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from holdfast.errors import StoreUnavailable

_RESERVED_CONNECTIONS: Final = 2
"""Connections that are reserved for live events and for requests outside the pools."""
_MAX_QUEUED: Final = 500
"""Requests that may wait for a thread of a pool."""
_QUEUE_TIMEOUT: Final = 5.0
"""Seconds that a request waits for a thread."""

Result = TypeVar("Result")


class ThreadPool:
    """Runs a limited number of requests at the same time; the others wait in their order."""

    def __init__(self, slots: int, name: str) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._executor = ThreadPoolExecutor(slots, thread_name_prefix=name)
        self._waiting = 0

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in a thread of the pool. Raises StoreUnavailable if no thread is free in time, or too many
        requests wait."""
        await self._acquire_slot()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Start nothing new. Running requests complete."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _acquire_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        if self._waiting >= _MAX_QUEUED:
            raise StoreUnavailable("Too many requests wait for the database; try again.")
        self._waiting += 1
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailable("All connections to the database are in use; try again.") from None
        finally:
            self._waiting -= 1


class ThreadPools:
    """The thread pools of one process: two thirds of the threads are for reads."""

    def __init__(self, connections: int) -> None:
        slots = max(2, connections - _RESERVED_CONNECTIONS)
        writers = max(1, slots // 3)
        self.reads = ThreadPool(slots - writers, "read")
        self.writes = ThreadPool(writers, "write")

    def close(self) -> None:
        """Start nothing new."""
        self.reads.close()
        self.writes.close()


def run_without_loop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never waits, so that it needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("a route awaits something, but its thread has no event loop")
