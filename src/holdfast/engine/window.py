"""The URLs that a visit has taken from the frontier into memory.

The rule: taking writes nothing, so a URL is in memory from here until its outcome is committed, and is not taken again meanwhile. The
next ones are taken before the last are gone: nobody waits for the store on a site that is fast.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.engine.tools import Tools
from holdfast.model.batch import Waiting
from holdfast.store.frontier import Taken


class Window:
    """The window of one visit."""

    def __init__(self, tools: Tools, take: Callable[..., Taken]) -> None:
        """`take` is a function of the store that knows what to take of which domain; it is given `count` and `besides`."""
        self._tools = tools
        self._take = take
        self._size = tools.settings.worker.window
        self._urls: deque[Waiting] = deque()
        self._in_memory: set[bytes] = set()
        """Keys in the window, in flight, or not committed yet."""
        self._took_all = False
        """The last look at the frontier found nothing more, and no commit has been since."""
        self._more = False
        """The last look did not see the end."""
        self._looking: asyncio.Task[None] | None = None
        self.next_in: float | None = None
        """Seconds until the first of those is due that are to wait, as of the last look."""

    @property
    def held(self) -> int:
        """URLs in memory."""
        return len(self._in_memory)

    def look_ahead(self) -> None:
        """Begin a look at the frontier, if it is time for one."""
        if self._looking is not None:
            if not self._looking.done():
                return
            self._seen()
        # Only where more is known to wait: every commit may bring more, and a slow site need not ask after each.
        if not self._took_all and len(self._urls) <= (self._size // 4 if self._more else 0):
            self._took_all = True  # unless a commit comes in between
            self._looking = asyncio.create_task(self._look())

    def pop(self) -> Waiting | None:
        """The next URL, if one is here."""
        return self._urls.popleft() if self._urls else None

    def put_back(self, item: Waiting) -> None:
        """It is the next one again."""
        self._urls.appendleft(item)

    async def looked(self) -> bool:
        """Whether there may be more now: a look was under way, and has ended."""
        if self._looking is None:
            return not self._took_all
        await asyncio.wait({self._looking})  # who waits may be cancelled; the look goes on
        self._seen()
        return True

    def _seen(self) -> None:
        """Raises what ended the look, if something did."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.result()

    def look_again(self) -> None:
        """What was to wait is due now."""
        self._took_all = False

    def settled(self, keys: Iterable[bytes]) -> None:
        """These are committed, and what they led to can be taken."""
        self._in_memory.difference_update(keys)
        self._took_all = False

    def close(self) -> None:
        """Nothing more is taken."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        taken = await self._tools.desk.call(self._take, count=self._size, besides=list(self._in_memory))
        self.next_in = taken.next_in
        for item in taken.urls:
            if item.url_key not in self._in_memory:
                self._in_memory.add(item.url_key)
                self._urls.append(item)
        self._more = len(taken.urls) >= self._size
        if self._more:
            self._took_all = False
