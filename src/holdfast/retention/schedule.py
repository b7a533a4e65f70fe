"""When retention and the vacuum of all tables are due on this machine."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from holdfast.db.connection import Connection, Database
from holdfast.model import schedule
from holdfast.retention.queries import archives, runs
from holdfast.settings import Retention


@dataclass(frozen=True, slots=True)
class RetentionSchedule:
    """The schedule of retention on one machine."""

    database: Database
    settings: Retention

    def is_due(self) -> bool:
        """Whether the schedule asks for a run on this machine now."""
        if self.settings.schedule is None:
            return False
        with self.database.session() as connection:
            due = self.next_run(connection)
            return due is not None and due <= runs.now(connection)

    def next_run(self, connection: Connection) -> datetime | None:
        """Return when the next run is due on this machine; None: only when it is called."""
        if self.settings.schedule is None:
            return None
        return schedule.parse(self.settings.schedule).next_after(runs.due_from(connection, machine()))

    def vacuum_if_due(self, stopped: Callable[[], bool] = bool) -> bool:
        """Vacuum and analyze all tables if the settings ask for it now; return whether it was done."""
        if self.settings.vacuum is None:
            return False
        with self.database.session() as connection:
            runs.without_timeouts(connection)
            last = runs.vacuumed_at(connection)
            if schedule.parse(self.settings.vacuum).next_after(last) > runs.now(connection):
                return False
            if not archives.try_lock(connection):
                return False
            try:
                runs.vacuum(connection, stopped=stopped)
            finally:
                archives.unlock(connection)
        return True


def machine() -> str:
    """The name of this machine, as runs of retention are listed."""
    return socket.gethostname()[:64] or "?"
