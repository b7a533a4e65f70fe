"""Whether a domain may be visited at all now: its maintenance windows.

The rule: the windows are as they stand in the store about a minute ago, since people change them under a visit, and the database's clock
says what time it is, never ours.
"""

from typing import Final

from holdfast.engine.tools import Tools
from holdfast.politeness.hours import closed_until
from holdfast.store import visits

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
