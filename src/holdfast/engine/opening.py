"""Whether a domain may be visited at all now: its maintenance windows.

The rule: the windows are as they stand in the store about a minute ago, since people change them under a visit, and the database's clock
says what time it is, never ours.
"""

import logging
from datetime import datetime
from functools import lru_cache
from typing import Final

from holdfast.engine.tools import Tools
from holdfast.errors import UsageError
from holdfast.model.window import Windows
from holdfast.store import visits

log: Final = logging.getLogger(__name__)

LOOK: Final = 60.0
"""Seconds between two looks."""


class Opening:
    """The opening hours of one visit's domain."""

    def __init__(self, tools: Tools, domain_id: int, hours: visits.Hours) -> None:
        """*hours*: as the visit found them when it began."""
        self._tools = tools
        self._domain_id = domain_id
        self._hours: visits.Hours | None = hours
        self._next_look = 0.0

    async def closed_for(self) -> float | None:
        """Seconds until the domain opens; None: it is open, or was when last looked at."""
        now = self._tools.clock.now()
        if now < self._next_look:
            return None
        self._next_look = now + LOOK
        hours, self._hours = self._hours, None
        if hours is None:
            hours = await self._tools.desk.call(visits.hours, self._domain_id)
        until = closed_until(hours.window, hours.now)
        return None if until is None else (until - hours.now).total_seconds()


def closed_until(window: str | None, moment: datetime) -> datetime | None:
    """When a domain with these windows opens; None: it is open at *moment*."""
    return None if window is None else _windows(window).closed_until(moment)


@lru_cache(maxsize=1024)
def _windows(text: str) -> Windows:
    try:
        return Windows.parse(text)
    except UsageError as problem:  # written in SQL, past our checks
        log.warning("a maintenance window is not heeded: %s", problem)
        return Windows()
