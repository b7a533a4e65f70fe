"""Requests of a visit whose kept-alive connection broke, and what follows for the next ones.

The rule: each such request has gone out, so it is a row of the log, and the URL goes back through the pace. The first time in a row
says nothing of the server: servers close connections that rest. The URL is asked for again on a connection of its own, so that another
end without an answer is a failure. A host that does it again and again gets a connection for each request.
"""

from collections import Counter
from typing import Final

TOLERATED: Final = 3
"""Broken connections to a host in a visit, after which its connections are not reused."""


class Resends:
    """The broken connections of one visit."""

    __slots__ = ("_broken", "_once")

    def __init__(self) -> None:
        self._broken: Counter[str] = Counter()
        self._once: set[bytes] = set()
        """URLs whose last request met one."""

    def needs_fresh_connection(self, key: bytes, url: str) -> bool:
        """Whether the request for *url* may not use a connection that was used before; *key* names it."""
        return bool(self._broken) and (key in self._once or self._broken[_host(url)] >= TOLERATED)

    def ended(self, key: bytes, url: str, *, resend: bool) -> bool:
        """The request for *url* has ended; *key* names it. Whether that is no failure: its connection broke for the first time in a
        row."""
        if not resend:
            if self._once:
                self._once.discard(key)
            return False
        self._broken[_host(url)] += 1
        if key in self._once:
            return False
        self._once.add(key)
        return True


def _host(url: str) -> str:
    """With its scheme and port."""
    return url[: url.index("/", 8)]
