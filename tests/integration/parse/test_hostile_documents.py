"""Hostile pages through the extraction of main content, in the processes that crawls use: a result or a failure, never more."""

import asyncio

import psutil
import pytest

from holdfast.model.parse_result import Document, FailureKind, ParseDone, ParseFailed
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import built_in
from tests.unit.parse.bombs import BOMBS

STORY = b"<h1>The lamp</h1><p>It was a dark and stormy night, and nobody could find the lamp.</p>"
BOUNDED = {FailureKind.TIMED_OUT, FailureKind.OUT_OF_MEMORY, FailureKind.DIED, FailureKind.RAISED}
"""What the limits of time and memory end with; Lexbor raises an error of its own if it gets no memory."""


def page(body: bytes) -> Document:
    return Document("https://hostile.example/", body, "text/html")


def test_hostile_pages_cost_at_most_themselves() -> None:
    async def whole() -> dict[str, ParseDone | ParseFailed]:
        pool = PluginPool(built_in(), processes=2, timeout=1.0, memory_limit=1 << 30)
        try:
            found = await asyncio.gather(*(pool.parse("markdown", page(bomb + STORY)) for bomb in BOMBS.values()))
            fine = await pool.parse("markdown", page(STORY))
            assert isinstance(fine, ParseDone)
            assert fine.extracted.data["markdown"].startswith("# The lamp\n\nIt was")
            pids = pool.pids
        finally:
            await pool.aclose()
        assert not any(psutil.pid_exists(pid) for pid in pids)
        return dict(zip(BOMBS, found, strict=True))

    for name, result in asyncio.run(whole()).items():
        if isinstance(result, ParseFailed):
            assert result.kind in BOUNDED, (name, result)
        elif result.extracted.data:
            assert len(result.extracted.data["markdown"]) <= 2 * len(BOMBS[name]) + 10_000, name


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_the_memory_of_an_extraction_is_bounded(name: str) -> None:
    """With little memory a page fails alone, or is read in it; the same process pool goes on."""

    async def whole() -> None:
        pool = PluginPool(built_in(), processes=1, timeout=1.0, memory_limit=256 << 20)
        try:
            first = await pool.parse("markdown", page(BOMBS[name]))
            assert isinstance(first, ParseDone) or first.kind in BOUNDED
            assert isinstance(await pool.parse("markdown", page(STORY)), ParseDone)
        finally:
            await pool.aclose()

    asyncio.run(whole())
