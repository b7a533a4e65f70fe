"""Types of options that several commands share: page of a list, confirmation, durations, times."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from holdfast.errors import UsageError
from holdfast.model import duration

MAX_PAGE_SIZE: Final = 500
"""The largest number of rows that a list returns at once."""

Limit = Annotated[int, typer.Option(metavar="N", min=1, max=MAX_PAGE_SIZE, help="Show at most N rows.")]
Before = Annotated[
    int | None, typer.Option(metavar="ID", min=1, help="Show the rows after this one, the last of the previous page.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def parse_duration(option: str, text: str) -> timedelta:
    """Parse a duration such as 20s, 6h or 1d. Raises UsageError."""
    try:
        return duration.parse(text)
    except ValueError as problem:
        raise UsageError(f"{option} {problem}.") from problem


def parse_time(option: str, text: str) -> datetime:
    """Parse an ISO 8601 time, in UTC unless it has an offset. Raises UsageError."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError as problem:
        raise UsageError(f"{option} must be a time such as 2031-12-24 or 2031-12-24T18:00+01:00.") from problem
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def parse_time_or_age(option: str, text: str) -> datetime:
    """Parse a time (2031-12-24) or an age (6h). Raises UsageError."""
    try:
        return parse_time(option, text)
    except UsageError as problem:
        try:
            return datetime.now(UTC) - duration.parse(text)
        except ValueError:
            raise UsageError(f"{option} must be a time such as 2031-12-24, or how long ago: 6h, 1d.") from problem
