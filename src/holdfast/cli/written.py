"""What people write on a command line, as options that several commands share: which part of a list, durations, times."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from holdfast.errors import UsageError
from holdfast.settings import duration

MOST: Final = 500
"""The most that a list gives at once."""

Limit = Annotated[int, typer.Option(metavar="N", min=1, max=MOST, help="How many to show at the most.")]
Before = Annotated[
    int | None, typer.Option(metavar="ID", min=1, help="Go on behind this one, the last that you have seen.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def span(option: str, text: str) -> timedelta:
    """A duration as people write it: 20s, 6h, 1d."""
    try:
        return duration.parse(text)
    except ValueError as problem:
        raise UsageError(f"{option} {problem}.") from problem


def moment(option: str, text: str) -> datetime:
    """A time as people write it, in UTC unless it says otherwise."""
    try:
        written = datetime.fromisoformat(text.strip())
    except ValueError as problem:
        raise UsageError(f"{option} must be a time such as 2031-12-24 or 2031-12-24T18:00+01:00.") from problem
    return written if written.tzinfo else written.replace(tzinfo=UTC)


def moment_or_ago(option: str, text: str) -> datetime:
    """A time, or how long ago that was: 2031-12-24, 6h."""
    try:
        return moment(option, text)
    except UsageError as problem:
        try:
            return datetime.now(UTC) - duration.parse(text)
        except ValueError:
            raise UsageError(f"{option} must be a time such as 2031-12-24, or how long ago: 6h, 1d.") from problem
