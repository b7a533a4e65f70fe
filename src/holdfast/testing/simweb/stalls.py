"""How long the server stood still: its process did not run, or its event loop was busy.

The rule: a request that waited meanwhile is read late. A timer is due every 20 ms; by how much it is overdue, or was when it came last,
is the most by which a request that is read now may have waited.
"""

import asyncio
from typing import Final

from holdfast.testing.simweb.access_log import boot_ns

_EVERY: Final = 0.02
_EVERY_NS: Final = 20_000_000


class Stalls:
    """The timer of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last = boot_ns()
        self._overdue = 0
        """By how many nanoseconds the timer was overdue when it came last."""
        self._timer = loop.call_later(_EVERY, self._tick)

    def late(self, now: int) -> int:
        """Nanoseconds by which a request that is read `now` may have waited; 0: the server did not stand still."""
        overdue = now - self._last - _EVERY_NS
        return max(0, overdue) if overdue > 0 else self._overdue

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _tick(self) -> None:
        now = boot_ns()
        self._overdue = max(0, now - self._last - _EVERY_NS)
        self._last = now
        self._timer = self._loop.call_later(_EVERY, self._tick)
