"""Collects response bodies up to a limit and detects decompression bombs.

The rule: never more than the limit is held in memory; decoded bytes are counted as they arrive, whatever Content-Length says.
"""

from typing import Final

MAX_RATIO: Final = 200
"""Largest ratio of decoded to received bytes; more is a decompression bomb. Real pages reach about a quarter of it."""
RATIO_FROM: Final = 1 << 20
"""Decoded bytes below which the ratio is not checked."""

_STOP: Final = 0
"""Returned to libcurl instead of the number of bytes taken: ends the transfer."""


class BufferedBytes:
    """Counter of the bytes held by all collectors of a client."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class BodyCollector:
    """Collects the body of one response at a time. `write` is libcurl's callback."""

    __slots__ = ("_buffered", "_chunks", "_limit", "_total", "_truncate", "cut", "size", "too_large")

    def __init__(self, total: BufferedBytes | None = None) -> None:
        self._total = total or BufferedBytes()
        self._buffered = 0
        self._chunks: list[bytes] = []
        self.begin(0, cut=False)

    def begin(self, limit: int, *, cut: bool) -> None:
        """After: empty, accepts up to *limit* bytes. A longer body ends the transfer: truncated with *cut*, else too large."""
        self._drop()
        self._limit = limit
        self._truncate = cut
        self.size = 0
        """Decoded bytes, including those beyond the limit."""
        self.cut = False
        self.too_large = False

    def truncate_at(self, limit: int) -> None:
        """Before: nothing was written. After: the limit is at most *limit* bytes, and a longer body is truncated."""
        self._limit = min(self._limit, limit)
        self._truncate = True

    def limit_by_ratio(self, packed: int) -> None:
        """Before: nothing was written. After: the limit is at most MAX_RATIO times *packed*, the Content-Length in bytes."""
        self._limit = min(self._limit, max(MAX_RATIO * packed, RATIO_FROM))

    def is_decompression_bomb(self, packed: int) -> bool:
        """Whether *packed* received bytes were decoded to more than MAX_RATIO allows; checked at the end, without a Content-Length."""
        return not self._truncate and self.size > max(MAX_RATIO * packed, RATIO_FROM)

    def write(self, data: bytes) -> int | None:
        """Append *data*, or end the transfer."""
        self.size += len(data)
        if self.size <= self._limit:
            self._keep(data)
            return None
        if self._truncate:
            self._keep(data[: self._limit - self.size])
            self.cut = True
        else:
            self._drop()
            self.too_large = True
        return _STOP

    def take(self) -> bytes:
        """Return the collected bytes. After: empty."""
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._drop()
        return body

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        self._total.size += len(data)

    def _drop(self) -> None:
        self._chunks.clear()
        self._total.size -= self._buffered
        self._buffered = 0
