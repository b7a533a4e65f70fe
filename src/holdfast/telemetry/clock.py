"""Clocks, passed to whoever needs time, so that a test can turn them."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the engine sees it."""

    def now(self) -> float:
        """Seconds that go on while the machine sleeps or the process is frozen (CLOCK_BOOTTIME where there is one)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others go on for that long."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.clock_gettime(_BOOT)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
