"""Wait for an event with a timeout."""

import asyncio
from contextlib import suppress


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`.

    `asyncio.wait_for` is not used: before Python 3.12 it swallows a cancellation if the event is set in the same moment, and a loop
    around it would never end.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
