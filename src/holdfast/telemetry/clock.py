"""Clocks, passed as a parameter so that a test can replace them."""

import asyncio
import time
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
