"""The URL buffer of a visit: URLs of the frontier in memory.

The rule: reading from the frontier writes nothing, so a URL stays in memory until its outcome is committed, and is not read again
meanwhile. The next ones are prefetched before the buffer is empty: a fast site does not wait for the database.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.crawler.worker_context import WorkerContext
from holdfast.db.frontier import FrontierBatch
from holdfast.model.commit_batch import FrontierItem


class UrlBuffer:
    """The prefetched URLs of one visit."""

    def __init__(self, context: WorkerContext, take: Callable[..., FrontierBatch]) -> None:
        """`take` reads URLs of the visit's domain from the frontier: at most `count`, without the keys in `exclude`."""
        self._context = context
        self._take = take
        self._size = context.settings.worker.window
        self._urls: deque[FrontierItem] = deque()
        self._in_memory: set[bytes] = set()
        """Keys of URLs that are buffered, in flight, or not committed yet."""
        self._exhausted = False
        """Whether the last read of the frontier found nothing more, and there was no commit since."""
        self._has_more = False
        """Whether the last read did not reach the end of the frontier."""
        self._prefetching: asyncio.Task[None] | None = None
        self.next_in: float | None = None
        """Seconds until the first retry is due, as of the last read; None: none is."""

    @property
    def count(self) -> int:
        """Number of URLs that are buffered, in flight, or not committed yet."""
        return len(self._in_memory)

    def prefetch(self) -> None:
        """Start to read from the frontier, if the buffer is low."""
        if self._prefetching is not None:
            if not self._prefetching.done():
                return
            self._end_prefetch()
        # Early only where more is known to wait: every commit may add URLs, and a slow site need not read after each.
        if not self._exhausted and len(self._urls) <= (self._size // 4 if self._has_more else 0):
            self._exhausted = True  # unless a commit comes in between
            self._prefetching = asyncio.create_task(self._load())

    def pop(self) -> FrontierItem | None:
        """Remove and return the next URL; None: the buffer is empty."""
        return self._urls.popleft() if self._urls else None

    def put_back(self, item: FrontierItem) -> None:
        """Make a URL the next one again."""
        self._urls.appendleft(item)

    async def wait_for_prefetch(self) -> bool:
        """Wait for a running prefetch; return whether there may be more URLs now."""
        if self._prefetching is None:
            return not self._exhausted
        await asyncio.wait({self._prefetching})  # the caller may be cancelled; the prefetch goes on
        self._end_prefetch()
        return True

    def _end_prefetch(self) -> None:
        """Forget the prefetch that has ended. Raises its exception, if it failed."""
        prefetching, self._prefetching = self._prefetching, None
        if prefetching is not None:
            prefetching.result()

    def mark_stale(self) -> None:
        """Read again at the next `prefetch`: a retry is due."""
        self._exhausted = False

    def remove_committed(self, keys: Iterable[bytes]) -> None:
        """Remove committed URLs. After: what they led to can be read."""
        self._in_memory.difference_update(keys)
        self._exhausted = False

    def close(self) -> None:
        """Cancel a running prefetch."""
        if self._prefetching is not None:
            self._prefetching.cancel()

    async def _load(self) -> None:
        taken = await self._context.db.call(self._take, count=self._size, exclude=list(self._in_memory))
        self.next_in = taken.next_in
        for item in taken.urls:
            if item.url_key not in self._in_memory:
                self._in_memory.add(item.url_key)
                self._urls.append(item)
        self._has_more = len(taken.urls) >= self._size
        if self._has_more:
            self._exhausted = False
