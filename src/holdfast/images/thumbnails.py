"""Thumbnails: made on demand in a child process that may be killed, and kept in memory for a while.

The rule: nothing is decoded in this process, and one image that hangs the decoder delays the others by its timeout at most.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from holdfast.parse.image_check import ImageChecker

MAX_KEPT: Final = 2000
"""Thumbnails in memory, of about 5 kB each."""


class Thumbnails:
    """Makes thumbnails for the threads of a server. The event loop of its checker runs in a thread of its own."""

    def __init__(self, make_checker: Callable[[], ImageChecker]) -> None:
        self._make_checker = make_checker
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._checker: ImageChecker | None = None

    def get(self, sha256: str, read: Callable[[], bytes]) -> bytes | None:
        """Return the thumbnail of an image as WebP; `read` is called for its bytes if it is not known. None: it cannot be decoded."""
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return self._kept[sha256]
        body = read()
        checker, loop = self._start()
        made = asyncio.run_coroutine_threadsafe(checker.thumbnail(body), loop).result()
        with self._lock:
            self._kept[sha256] = made
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def close(self) -> None:
        """Before: nothing. After: the process and the thread are gone; another `get` would start new ones."""
        with self._lock:
            loop, thread, checker = self._loop, self._thread, self._checker
            self._loop = self._thread = self._checker = None
        if loop is not None and thread is not None and checker is not None:
            asyncio.run_coroutine_threadsafe(checker.aclose(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _start(self) -> tuple[ImageChecker, asyncio.AbstractEventLoop]:
        with self._lock:
            if self._loop is None or self._checker is None:
                self._loop = asyncio.new_event_loop()
                self._checker = self._make_checker()
                self._thread = threading.Thread(target=self._loop.run_forever, name="thumbnails", daemon=True)
                self._thread.start()
            return self._checker, self._loop
