"""Watches the maintenance window of a domain during a visit.

The rule: the time is that of the database's clock, never of the worker's; it is read about once a minute. An edited window ends the
visit (`Visit.settings_changed`).
"""

from typing import Final

from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import visit_state
from holdfast.model.maintenance_window import closed_until

POLL_SECONDS: Final = 60.0
"""Seconds between two reads of the window."""


class MaintenanceWatch:
    """The maintenance window of one visit's domain."""

    def __init__(self, context: WorkerContext, domain_id: int, said: visit_state.LiveSettings) -> None:
        """*said*: as the visit found it when it began."""
        self._context = context
        self._domain_id = domain_id
        self._said: visit_state.LiveSettings | None = said
        self._next_poll = 0.0

    async def closed_for(self) -> float | None:
        """Return the seconds until the domain opens; None: it is open, or was at the last read."""
        now = self._context.clock.now()
        if now < self._next_poll:
            return None
        self._next_poll = now + POLL_SECONDS
        said, self._said = self._said, None
        if said is None:
            said = await self._context.db.call(visit_state.live_settings, self._domain_id)
        until = closed_until(said.window, said.now)
        return None if until is None else (until - said.now).total_seconds()
