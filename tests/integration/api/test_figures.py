"""Figures for listeners: nobody is shown what was looked up before he came, and nothing is gone because nobody could look."""

import asyncio
import threading
from collections.abc import Collection, Mapping

import pytest

from holdfast.api import event_hub
from holdfast.api.event_hub import Missing, SnapshotPoller
from holdfast.errors import StoreUnavailable


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_hub, "SNAPSHOT_INTERVAL", 0.02)


async def shown(figures: SnapshotPoller, key: int) -> object:
    """What somebody is shown first who begins to watch."""
    with figures.subscribe(key) as watch:
        while watch.value() is Missing.NOT_POLLED:
            await watch.wait_for_first()
        return watch.value()


def test_who_comes_again_is_shown_how_it_is_now() -> None:
    """Of a job that was completed and goes on since it was given URLs, the old figures say that it is over."""
    state = "completed"

    async def go() -> None:
        nonlocal state
        figures = SnapshotPoller(lambda keys: dict.fromkeys(keys, state))
        assert await shown(figures, 7) == "completed"
        state = "processing"
        assert await shown(figures, 7) == "processing"
        with figures.subscribe(8):  # others watch: there always is a look under way, or one that has just been
            for word in ("paused", "pending", "completed"):
                await asyncio.sleep(0.03)
                state = word
                assert await shown(figures, 7) == word

    asyncio.run(go())


def test_nothing_is_gone_because_a_look_began_before_it_was_watched() -> None:
    asked: list[Collection[int]] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def look(keys: Collection[int]) -> Mapping[int, str]:
        asked.append(keys)
        has_begun.set()
        may_end.wait(5)
        return dict.fromkeys(keys, "there")

    async def go() -> None:
        figures = SnapshotPoller(look)
        with figures.subscribe(1), figures.subscribe(2) as second:
            await asyncio.to_thread(has_begun.wait, 5)
            with figures.subscribe(3) as late:
                may_end.set()
                await second.wait_for_first()
                assert second.value() == "there"
                assert late.value() is Missing.NOT_POLLED, "the look was not for it"
                while late.value() is Missing.NOT_POLLED:
                    await late.wait_for_first()
                assert late.value() == "there"

    asyncio.run(go())
    assert 3 not in asked[0]


def test_nothing_is_gone_because_nobody_can_look() -> None:
    is_away, is_there = True, True

    def look(keys: Collection[int]) -> Mapping[int, str]:
        if is_away:
            raise StoreUnavailable("away")
        return dict.fromkeys(keys, "there") if is_there else {}

    async def go() -> None:
        nonlocal is_away, is_there
        figures = SnapshotPoller(look)
        with figures.subscribe(1) as watch:
            await watch.wait_for_first()
            assert watch.value() is Missing.NOT_POLLED
            is_away = False
            while watch.value() is Missing.NOT_POLLED:
                await watch.wait_for_first()
            assert watch.value() == "there"
            is_there = False
            while watch.value() is not None:  # that is what gone is
                await watch.wait_for_first()
                await asyncio.sleep(0.001)

    asyncio.run(go())
