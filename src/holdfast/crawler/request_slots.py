"""The request slots of a visit: how many URLs it crawls concurrently.

The rule: a slot is a task that crawls one URL after the other, and chooses the next one while it holds the lock. So there is one choice
at a time, requests start in the order of the choices, and no more are in flight than there are slots. A task per slot, and not per URL:
creating, waking and ending tasks was a tenth of the cost of a page.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from holdfast.model.commit_batch import FrontierItem
from holdfast.model.visit_report import VisitEnd

log: Final = logging.getLogger(__name__)

MAX_EXTRA_SLOTS: Final = 8
"""Maximum number of extra slots, which replace slots that wait for something else than the server."""


class RequestSlots:
    """The concurrent slots of one visit."""

    def __init__(
        self,
        limit: int,
        next_item: Callable[[], Awaitable[FrontierItem | VisitEnd]],
        process: Callable[[FrontierItem], Awaitable[None]],
        on_done: Callable[[], None],
    ) -> None:
        """`next_item` returns the next URL when its request may start, or the end; `process` crawls it, and sends at once."""
        self._limit = limit
        self._next_item = next_item
        self._process = process
        self._on_done = on_done
        self._choice_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Future[VisitEnd | None]
        self.in_flight = 0
        """URLs that are being processed."""

    async def run(self) -> VisitEnd | None:
        """Process URLs until the end, and return it; None: all slots were cancelled. URLs may still be in flight: `drain`."""
        self._ending = asyncio.get_running_loop().create_future()
        self._start_slot()
        return await self._ending

    def open_extra_slot(self) -> None:
        """Start an extra slot while the calling one waits for something that is not the server."""
        if len(self._tasks) < self._limit + MAX_EXTRA_SLOTS:
            self._start_slot()

    def cancel(self) -> None:
        """Cancel everything in flight, now."""
        for task in self._tasks:
            task.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is in flight. After: so it is; what took longer than `seconds` was cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _start_slot(self) -> None:
        task = asyncio.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._slot_ended)

    async def _run(self) -> None:
        while not self._ending.done():
            async with self._choice_lock:
                if self._ending.done():
                    return
                try:
                    chosen = await self._next_item()
                # Set before the lock is released: no slot may choose after it.
                except Exception as problem:  # noqa: BLE001 — whatever it is, it comes out of `run`
                    if not self._ending.done():
                        self._ending.set_exception(problem)
                    return
                if self._ending.done():
                    return
                if isinstance(chosen, VisitEnd):
                    self._ending.set_result(chosen)
                    return
            self.in_flight += 1
            if self.in_flight == len(self._tasks) < self._limit:
                self._start_slot()  # its first choice is after our request has started
            try:
                await self._process(chosen)
            finally:
                self.in_flight -= 1
                self._on_done()
            if len(self._tasks) > self._limit and (task := asyncio.current_task()) is not None:
                self._tasks.discard(task)  # at once, since other slots that end in this moment check the number, too
                return

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if self._ending.done():
            if problem is not None:
                log.error("a request slot ended with an internal error", exc_info=problem)
        elif problem is not None:
            self._ending.set_exception(problem)
        elif not self._tasks:
            self._ending.set_result(None)
