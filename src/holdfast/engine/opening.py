"""What people say of a domain while it is visited: when it is to be left alone, and how it uses proxies.

The rule: it is as it stood in the store about a minute ago, since people change it under a visit, and the database's clock says what
time it is, never ours.
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
        self._proxies = said.proxies
        self._next_look = 0.0
        self.changed = False
        """It is to use proxies in another way than when the visit began."""

    async def closed_for(self) -> float | None:
        """Seconds until the domain opens; None: it is open, or was when last looked at."""
        now = self._tools.clock.now()
        if now < self._next_look:
            return None
        self._next_look = now + LOOK
        said, self._said = self._said, None
        if said is None:
            said = await self._tools.desk.call(visits.said, self._domain_id)
        self.changed = said.proxies != self._proxies
        until = closed_until(said.window, said.now)
        return None if until is None else (until - said.now).total_seconds()
