"""The name server of `tests/support/nameserver` in a thread of its own, for crawls that a test waits for."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.nameserver import NameServer, Records


@contextmanager
def serving(records: Records) -> Iterator[NameServer]:
    """A name server that answers until the end of the block."""
    loop = asyncio.new_event_loop()
    server = NameServer(records)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
