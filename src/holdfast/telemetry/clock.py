"""Clocks, passed as a parameter so that a test can replace them, and waiting with a timeout."""

import asyncio
import time
from contextlib import suppress
from typing import Protocol


class Clock(Protocol):
    """The clock of the crawler."""

    def now(self) -> float:
        """Seconds of a clock that does not stop while the machine or the process is suspended (CLOCK_BOOTTIME where available)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the current task for `seconds`."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> float:
        return time.clock_gettime(_BOOT)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`.

    `asyncio.wait_for` is not used: before Python 3.12 it swallows a cancellation if the event is set in the same moment, and a loop
    around it would never end.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
