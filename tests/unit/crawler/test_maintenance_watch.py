"""When a visit looks whether its domain is closed, and by whose clock."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.crawler.visit import MAINTENANCE_POLL, MaintenanceWatch
from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import visit_state
from holdfast.db.visit_state import LiveSettings
from holdfast.model.maintenance_window import closed_until
from holdfast.model.proxy import ProxyOverrides

NOON = datetime(2026, 2, 5, 12, tzinfo=UTC)


class Store:
    """What the store would say when it is looked at: the window of a minute, and what time it has."""

    def __init__(self, *later: LiveSettings) -> None:
        self._later = list(later)
        self.asked: list[object] = []
        self.now = 100.0

    async def call(self, function: object, *arguments: object) -> LiveSettings:
        self.asked.append((function, *arguments))
        return self._later.pop(0)

    def opening(self, begins: LiveSettings) -> MaintenanceWatch:
        context: Any = SimpleNamespace(db=self, clock=SimpleNamespace(now=lambda: self.now))
        return MaintenanceWatch(cast("WorkerContext", context), 7, begins)


def test_it_is_looked_at_when_a_visit_begins_and_about_once_a_minute() -> None:
    store = Store(
        LiveSettings("12:00-12:01", NOON + timedelta(minutes=1), ProxyOverrides()),
        LiveSettings("13:00-14:00", NOON + timedelta(hours=1), ProxyOverrides()),
    )
    opening = store.opening(LiveSettings("11:00-12:00", NOON, ProxyOverrides()))

    async def play() -> None:
        assert await opening.closed_for() is None
        store.now += MAINTENANCE_POLL - 1
        assert await opening.closed_for() is None
        assert store.asked == [], "a page costs no question"
        store.now += 1
        assert await opening.closed_for() is None
        assert store.asked == [(visit_state.live_settings, 7)]
        store.now += MAINTENANCE_POLL
        assert await opening.closed_for() == 3600
        assert len(store.asked) == 2

    asyncio.run(play())


def test_a_visit_of_a_closed_domain_knows_at_once() -> None:
    opening = Store().opening(LiveSettings("mon-fri 11:00-14:30 Europe/Berlin", NOON, ProxyOverrides()))  # a Thursday
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
    assert "a maintenance window is ignored: 'from dusk till dawn' is not a maintenance window" in caplog.text
