"""The history of a product's price, as runs: from one fetch to another everybody who looked saw the same.

Pure. The rule: a run begins and ends at a fetch that really said so, and no fetch in between is known that said something else. So
whatever is parsed late, again or differently, nothing is claimed that was not seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from holdfast.model.parse_result import Availability

Look = tuple[datetime, int | None]
"""A fetch: when, and of which task; None: of a crawl."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a page says a product costs. What it does not say is None, and that is something that it says."""

    amount: Decimal | None
    currency: str | None
    availability: Availability | None


@dataclass(frozen=True, slots=True)
class Run:
    """A price, and the first and the last fetch that said it, each with its task."""

    price: Price
    since: datetime
    since_task: int | None
    until: datetime
    until_task: int | None


def needs_others(runs: Iterable[Run], at: datetime, price: Price | None) -> bool:
    """Whether a run has to be cut, so that it must be known which other fetches are in it; `price` as now said, None: not there."""
    return any(run.since <= at <= run.until and run.since < run.until and run.price != price for run in runs)


def observed(
    runs: Iterable[Run], at: datetime, task_id: int | None, price: Price, others: Iterable[Look] = ()
) -> list[Run]:
    """The runs, when the fetch `at` says `price`. It takes the place of what that fetch was said to say before.

    `others` are the other fetches that are known to have the product.
    """
    return _joined([*_without(runs, at, others), Run(price, at, task_id, at, task_id)])


def unobserved(runs: Iterable[Run], at: datetime, others: Iterable[Look] = ()) -> list[Run]:
    """The runs, when the fetch `at` turns out not to have the product; `others` likewise."""
    return _joined(_without(runs, at, others))


def _without(runs: Iterable[Run], at: datetime, others: Iterable[Look]) -> list[Run]:
    """The runs without `at`. One that goes beyond it is cut: each part ends at the last fetch that is known to be in it."""
    known = list(others)
    left: list[Run] = []
    for run in runs:
        if not run.since <= at <= run.until:
            left.append(run)
            continue
        if run.since < at:
            end = max([(run.since, run.since_task), *(look for look in known if run.since < look[0] < at)], key=_time)
            left.append(replace(run, until=end[0], until_task=end[1]))
        if at < run.until:
            begin = min([(run.until, run.until_task), *(look for look in known if at < look[0] < run.until)], key=_time)
            left.append(replace(run, since=begin[0], since_task=begin[1]))
    return left


def _time(look: Look) -> datetime:
    return look[0]


def _joined(runs: Iterable[Run]) -> list[Run]:
    """In order of time, and neighbours with one price made one."""
    made: list[Run] = []
    for run in sorted(runs, key=lambda one: one.since):
        if made and made[-1].price == run.price:
            made[-1] = replace(made[-1], until=run.until, until_task=run.until_task)
        else:
            made.append(run)
    return made
