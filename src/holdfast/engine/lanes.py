"""The pages that a visit deals with at the same time.

The rule: a lane deals with one page after the other, and chooses the next one while it holds the baton. So there is one choice at a time,
requests begin in the order of the choices, and no more are under way than there are lanes. A lane for each of them, and not a task
for each page: to make, wake and end tasks was a tenth of what a page cost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from holdfast.model.batch import Waiting
from holdfast.model.work import Ending

log: Final = logging.getLogger(__name__)

MOST_ASIDE: Final = 8
"""Lanes that may be opened for those that wait for something else than the server."""


class Lanes:
    """The lanes of one visit."""

    def __init__(
        self,
        most: int,
        choose: Callable[[], Awaitable[Waiting | Ending]],
        walk: Callable[[Waiting], Awaitable[None]],
        landed: Callable[[], None],
    ) -> None:
        """`choose` gives the next page when it may be asked for, or the end; `walk` deals with it, and asks at once."""
        self._most = most
        self._choose = choose
        self._walk = walk
        self._landed = landed
        self._baton = asyncio.Lock()
        self._open: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Future[Ending | None]
        self.flying = 0
        """Pages that are being dealt with."""

    async def run(self) -> Ending | None:
        """How it ended; None: all lanes were cancelled. Pages may still be under way: `land`."""
        self._ending = asyncio.get_running_loop().create_future()
        self._open_one()
        return await self._ending

    def step_aside(self) -> None:
        """The lane that calls this waits for something that is not the server; another one may ask meanwhile."""
        if len(self._open) < self._most + MOST_ASIDE:
            self._open_one()

    def cancel(self) -> None:
        """Give up what is under way, now."""
        for lane in self._open:
            lane.cancel()

    async def land(self, seconds: float) -> None:
        """After: nothing is under way any more; what takes longer than that was given up."""
        if self._open:
            await asyncio.wait(self._open, timeout=seconds)
        for lane in list(self._open):
            lane.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await lane

    def _open_one(self) -> None:
        lane = asyncio.create_task(self._run())
        self._open.add(lane)
        lane.add_done_callback(self._closed)

    async def _run(self) -> None:
        while not self._ending.done():
            async with self._baton:
                if self._ending.done():
                    return
                try:
                    chosen = await self._choose()
                # Told before the baton goes on: nobody is to choose after it.
                except Exception as problem:  # noqa: BLE001 — whatever it is, it comes out of `run`
                    if not self._ending.done():
                        self._ending.set_exception(problem)
                    return
                if self._ending.done():
                    return
                if isinstance(chosen, Ending):
                    self._ending.set_result(chosen)
                    return
            self.flying += 1
            if self.flying == len(self._open) < self._most:
                self._open_one()  # its first choice is after our request has begun
            try:
                await self._walk(chosen)
            finally:
                self.flying -= 1
                self._landed()
            if len(self._open) > self._most and (lane := asyncio.current_task()) is not None:
                self._open.discard(lane)  # now, since others that end in this moment look, too
                return

    def _closed(self, lane: asyncio.Task[None]) -> None:
        self._open.discard(lane)
        problem = None if lane.cancelled() else lane.exception()
        if self._ending.done():
            if problem is not None:
                log.error("a lane ended by a fault of ours", exc_info=problem)
        elif problem is not None:
            self._ending.set_exception(problem)
        elif not self._open:
            self._ending.set_result(None)
