"""The gates: so many requests are at work at the same time as there are connections for, each in a thread of its own.

The rule: who waits before a gate holds nothing, and who is behind it waits for nobody but the database. Who only reads waits for no lock
there, and has a gate of its own, lest it stand behind those who do. A request stays in its thread from the beginning to the end: each
change of threads costs as much as three statements.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from holdfast.errors import StoreUnavailable

_SPARE: Final = 2
"""Connections that are left for live events and for what does not pass the gate."""
_QUEUE: Final = 500
"""So many requests may wait before a gate."""
_PATIENCE: Final = 5.0
"""Seconds that they do."""

Result = TypeVar("Result")


class Gate:
    """Lets so many requests to work at the same time; the others wait before it, in their order."""

    def __init__(self, places: int, name: str) -> None:
        self._places = asyncio.Semaphore(places)
        self._threads = ThreadPoolExecutor(places, thread_name_prefix=name)
        self._waiting = 0

    async def work(self, do: Callable[[], Result]) -> Result:
        """What comes of doing it in a thread. StoreUnavailable if there is no place for too long, or too many wait."""
        await self._enter()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, do)
        finally:
            self._places.release()

    def close(self) -> None:
        """Begin nothing more. Who is at work ends it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _enter(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        if self._waiting >= _QUEUE:
            raise StoreUnavailable("Too many requests wait for the database; try again.")
        self._waiting += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailable("All connections to the database are in use; try again.") from None
        finally:
            self._waiting -= 1


class Gates:
    """The gates of one process: two thirds of the places are for those who only read."""

    def __init__(self, connections: int) -> None:
        places = max(2, connections - _SPARE)
        writing = max(1, places // 3)
        self.reads = Gate(places - writing, "read")
        self.writes = Gate(writing, "write")

    def close(self) -> None:
        """Begin nothing more."""
        self.reads.close()
        self.writes.close()


def finished(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine ends with that never has to wait, so that it needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("a route waits for an event loop that its thread does not have")
