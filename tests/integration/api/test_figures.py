"""Figures for listeners: nobody is shown what was looked up before he came, and nothing is gone because nobody could look."""

import asyncio
import threading
from collections.abc import Collection, Mapping

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.web import hub
from holdfast.web.hub import Figures, Unknown


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TICK", 0.02)


async def shown(figures: Figures, key: int) -> object:
    """What somebody is shown first who begins to watch."""
    with figures.watching(key) as watch:
        while watch.now() is Unknown.YET:
            await watch.first()
        return watch.now()


def test_who_comes_again_is_shown_how_it_is_now() -> None:
    """Of a job that was completed and goes on since it was given URLs, the old figures say that it is over."""
    state = "completed"

    async def go() -> None:
        nonlocal state
        figures = Figures(lambda keys: dict.fromkeys(keys, state))
        assert await shown(figures, 7) == "completed"
        state = "processing"
        assert await shown(figures, 7) == "processing"
        with figures.watching(8):  # others watch: there always is a look under way, or one that has just been
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
        figures = Figures(look)
        with figures.watching(1), figures.watching(2) as second:
            await asyncio.to_thread(has_begun.wait, 5)
            with figures.watching(3) as late:
                may_end.set()
                await second.first()
                assert second.now() == "there"
                assert late.now() is Unknown.YET, "the look was not for it"
                while late.now() is Unknown.YET:
                    await late.first()
                assert late.now() == "there"

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
        figures = Figures(look)
        with figures.watching(1) as watch:
            await watch.first()
            assert watch.now() is Unknown.YET
            is_away = False
            while watch.now() is Unknown.YET:
                await watch.first()
            assert watch.now() == "there"
            is_there = False
            while watch.now() is not None:  # that is what gone is
                await watch.first()
                await asyncio.sleep(0.001)

    asyncio.run(go())
