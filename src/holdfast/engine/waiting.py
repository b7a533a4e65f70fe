"""Waiting that ends when it is told to."""

import asyncio
from contextlib import suppress


async def heard(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after so long.

    Not by `asyncio.wait_for`: before Python 3.12 it forgets that it was cancelled if the event is set in the same moment, and whoever
    waits in a loop goes on for ever.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
