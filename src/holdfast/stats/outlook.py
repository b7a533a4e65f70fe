"""What comes next, and what is left over: beside the figures of how things stand.

The rule: these are looked up when somebody asks, as they are not worth to be counted all the time.
"""

from dataclasses import dataclass
from datetime import datetime

from holdfast.db import operator_reports
from holdfast.db.connection import Database


@dataclass(frozen=True, slots=True)
class Due:
    """Something that time brings about."""

    what: str
    at: datetime
    """When it happens the first time."""
    domains: int
    """To which it happens, sooner or later."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes next in a store."""

    at: datetime
    """The database's time."""
    due: list[Due]
    """What comes first, first."""
    stay_blocked: int
    """Domains that only a person can start over."""
    wakes: int
    """News for domains that no sweep has folded yet."""
    database_bytes: int


def outlook(database: Database) -> Outlook:
    """What comes next, as it is now."""
    with database.session() as connection:
        totals = operator_reports.totals(connection)
        return Outlook(
            at=totals["now"],
            due=[Due(**row) for row in operator_reports.upcoming(connection)],
            stay_blocked=totals["stay_blocked"],
            wakes=totals["wakes"],
            database_bytes=totals["database_bytes"],
        )
