"""A look at something that may not answer, for callers who must be answered at once.

The rule: however many ask, one look is under way, and one a second begins; no caller waits for longer than `PATIENCE`, and the event loop
waits for none. A look that takes longer goes on alone, and until it ends the answer is that there was none.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

PATIENCE: Final = 0.5
"""Seconds."""
FRESH_FOR: Final = 1.0

T = TypeVar("T")


class Glance(Generic[T]):
    """What was seen at the last look. Before: it is used in one event loop."""

    def __init__(self, look: Callable[[], T], unanswered: T) -> None:
        self._look = look
        self._unanswered = unanswered
        self._seen: T = unanswered
        self._until = 0.0
        self._begun = 0.0
        self._looking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """What was seen within the last second, or is seen now."""
        if self._looking is None and time.monotonic() >= self._until:
            self._begun = time.monotonic()
            self._looking = asyncio.create_task(asyncio.to_thread(self._look))
            self._looking.add_done_callback(self._ended)
        if (looking := self._looking) is not None:
            left = self._begun + PATIENCE - time.monotonic()
            if left > 0:
                await asyncio.wait({looking}, timeout=left)
            if not looking.done():
                return self._unanswered
        return self._seen

    def _ended(self, looking: asyncio.Task[T]) -> None:
        self._looking = None
        self._until = time.monotonic() + FRESH_FOR
        self._seen = self._unanswered if looking.cancelled() or looking.exception() else looking.result()
