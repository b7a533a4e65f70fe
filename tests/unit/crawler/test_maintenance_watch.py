"""When a visit looks whether its domain is closed, and by whose clock."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.engine.opening import LOOK, Opening
from holdfast.engine.tools import Tools
from holdfast.model.proxy import ProxyWishes
from holdfast.politeness.hours import closed_until
from holdfast.store import visits
from holdfast.store.visits import Said

NOON = datetime(2026, 2, 5, 12, tzinfo=UTC)


class Store:
    """What the store would say when it is looked at: the window of a minute, and what time it has."""

    def __init__(self, *later: Said) -> None:
        self._later = list(later)
        self.asked: list[object] = []
        self.now = 100.0

    async def call(self, function: object, *arguments: object) -> Said:
        self.asked.append((function, *arguments))
        return self._later.pop(0)

    def opening(self, begins: Said) -> Opening:
        tools: Any = SimpleNamespace(desk=self, clock=SimpleNamespace(now=lambda: self.now))
        return Opening(cast("Tools", tools), 7, begins)


def test_it_is_looked_at_when_a_visit_begins_and_about_once_a_minute() -> None:
    store = Store(
        Said("12:00-12:01", NOON + timedelta(minutes=1), ProxyWishes()),
        Said("13:00-14:00", NOON + timedelta(hours=1), ProxyWishes()),
    )
    opening = store.opening(Said("11:00-12:00", NOON, ProxyWishes()))

    async def play() -> None:
        assert await opening.closed_for() is None
        store.now += LOOK - 1
        assert await opening.closed_for() is None
        assert store.asked == [], "a page costs no question"
        store.now += 1
        assert await opening.closed_for() is None
        assert store.asked == [(visits.said, 7)]
        store.now += LOOK
        assert await opening.closed_for() == 3600
        assert len(store.asked) == 2

    asyncio.run(play())


def test_a_visit_of_a_closed_domain_knows_at_once() -> None:
    opening = Store().opening(Said("mon-fri 11:00-14:30 Europe/Berlin", NOON, ProxyWishes()))  # a Thursday
    assert asyncio.run(opening.closed_for()) == timedelta(hours=1, minutes=30).total_seconds()


@pytest.mark.parametrize(
    ("window", "until"),
    [
        (None, None),
        ("", None),
        ("11:00-12:00", None),
        ("12:00-13:00", NOON + timedelta(hours=1)),
        ("22:00-06:00; 11:00-12:30", NOON + timedelta(minutes=30)),
    ],
)
def test_closed_until(window: str | None, until: datetime | None) -> None:
    assert closed_until(window, NOON) == until


def test_what_is_no_window_closes_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert closed_until("from dusk till dawn", NOON) is None
    assert "a maintenance window is not heeded: 'from dusk till dawn' is not a maintenance window" in caplog.text
