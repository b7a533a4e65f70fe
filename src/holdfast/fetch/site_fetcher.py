"""The fetcher of one visit: sends its requests, and knows which connections of the site broke.

The rule: each request whose reused (keep-alive) connection broke has gone out, so it is a row of the log, and the URL waits for its turn
again. The first broken connection in a row does not count against the server, because servers close idle connections. The URL is
requested again on a new connection, so that a second one without an answer is a failure. A host that breaks `MAX_BROKEN` connections gets
a new connection for each request.
"""

from collections import Counter
from typing import Final

from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome

MAX_BROKEN: Final = 3
"""Broken connections to a host in a visit, after which its connections are not reused."""


class BrokenConnections:
    """The broken connections of one visit."""

    __slots__ = ("_broken", "_retried")

    def __init__(self) -> None:
        self._broken: Counter[str] = Counter()
        self._retried: set[bytes] = set()
        """URLs whose last request ended with a broken connection."""

    def needs_fresh_connection(self, key: bytes, url: str) -> bool:
        """Whether the request for *url*, identified by *key*, must open a new connection."""
        return bool(self._broken) and (key in self._retried or self._broken[_host(url)] >= MAX_BROKEN)

    def record(self, key: bytes, url: str, *, resend: bool) -> bool:
        """Record the end of the request for *url*, identified by *key*. Returns True if it is not a failure: its connection broke for the
        first time in a row."""
        if not resend:
            if self._retried:
                self._retried.discard(key)
            return False
        self._broken[_host(url)] += 1
        if key in self._retried:
            return False
        self._retried.add(key)
        return True


def _host(url: str) -> str:
    """The host with its scheme and port."""
    return url[: url.index("/", 8)]


class SiteFetcher:
    """Sends the requests of one visit directly to the site."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._broken_connections = BrokenConnections()

    def is_ready(self, _key: bytes) -> bool:
        """Whether the request with this key may be sent: always."""
        return True

    async def prepare(self, _key: bytes) -> float:
        """Return in how many seconds the request with this key may be sent: at once."""
        return 0.0

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Send the request. After: if its connection broke for the first time in a row, `again_in` is 0."""
        request.fresh = self._broken_connections.needs_fresh_connection(request.key, request.url)
        result = await self._client.fetch(request)
        if not result.withheld and self._broken_connections.record(request.key, request.url, resend=result.resend):
            result.outcome, result.again_in = Outcome.CONNECTION_BROKEN, 0.0
        return result

    def settle(self, request: FetchRequest, result: FetchResult, outcome: Outcome) -> None:
        """Do nothing: the outcome of an answer concerns the domain alone."""

    def close(self) -> None:
        """Do nothing: there are no reservations."""
