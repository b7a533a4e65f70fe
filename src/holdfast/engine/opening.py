"""The maintenance windows of a domain while it is visited.

The rule: the database's clock says what time it is, never ours; it is asked about once a minute. A window that a person edits ends the
visit (`Visit.settings_changed`).
"""

from typing import Final

from holdfast.engine.tools import Tools
from holdfast.politeness.hours import closed_until
from holdfast.store import visits

LOOK: Final = 60.0
"""Seconds between two looks."""


class Opening:
    """The opening hours of one visit's domain."""

    def __init__(self, tools: Tools, domain_id: int, said: visits.Said) -> None:
        """*said*: as the visit found it when it began."""
        self._tools = tools
        self._domain_id = domain_id
        self._said: visits.Said | None = said
        self._next_look = 0.0

    async def closed_for(self) -> float | None:
        """Seconds until the domain opens; None: it is open, or was when last looked at."""
        now = self._tools.clock.now()
        if now < self._next_look:
            return None
        self._next_look = now + LOOK
        said, self._said = self._said, None
        if said is None:
            said = await self._tools.desk.call(visits.said, self._domain_id)
        until = closed_until(said.window, said.now)
        return None if until is None else (until - said.now).total_seconds()
