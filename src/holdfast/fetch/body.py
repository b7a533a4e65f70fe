"""Collecting a body that may be of any size, and lie about it.

The rule: no more than the limit is ever held, and what is counted is what came out of the decoders, while it comes.
"""

from typing import Final

MAX_RATIO: Final = 200
"""A page that unpacks to more than so many times its size is a bomb; the best that honest pages do is about a quarter of it."""
RATIO_FROM: Final = 1 << 20
"""Bytes below which the ratio does not matter."""

_STOP: Final = 0
"""Said to libcurl instead of the number of bytes taken: end the transfer."""


class Tally:
    """Bytes of bodies that are being collected, of all transfers together."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


class Body:
    """The body of one response at a time. `write` is libcurl's callback."""

    __slots__ = ("_chunks", "_cutting", "_held", "_limit", "_tally", "cut", "size", "too_large")

    def __init__(self, tally: Tally | None = None) -> None:
        self._tally = tally or Tally()
        self._held = 0
        self._chunks: list[bytes] = []
        self.begin(0, cut=False)

    def begin(self, limit: int, *, cut: bool) -> None:
        """After: empty, takes up to *limit* bytes; more end the transfer, with *cut* as a beginning, else as a refusal."""
        self._drop()
        self._limit = limit
        self._cutting = cut
        self.size = 0
        """Bytes that came out of the decoders, with those that were one too many."""
        self.cut = False
        self.too_large = False

    def shorten(self, limit: int) -> None:
        """After: takes up to *limit* bytes, or fewer if that was agreed, and leaves the rest unread. Before: nothing was written."""
        self._limit = min(self._limit, limit)
        self._cutting = True

    def expect(self, packed: int) -> None:
        """After: takes no more than *packed* bytes on the wire can honestly unpack to. Before: nothing was written."""
        self._limit = min(self._limit, max(MAX_RATIO * packed, RATIO_FROM))

    def is_bomb(self, packed: int) -> bool:
        """Whether the body was made of too few bytes on the wire; for the end, when a server did not say how many would come."""
        return not self._cutting and self.size > max(MAX_RATIO * packed, RATIO_FROM)

    def write(self, data: bytes) -> int | None:
        """Take *data*, or end the transfer."""
        self.size += len(data)
        if self.size <= self._limit:
            self._keep(data)
            return None
        if self._cutting:
            self._keep(data[: self._limit - self.size])
            self.cut = True
        else:
            self._drop()
            self.too_large = True
        return _STOP

    def take(self) -> bytes:
        """What was collected. After: empty."""
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._drop()
        return body

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        self._tally.held += len(data)

    def _drop(self) -> None:
        self._chunks.clear()
        self._tally.held -= self._held
        self._held = 0
