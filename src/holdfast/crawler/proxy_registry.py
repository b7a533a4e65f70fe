"""The proxy registry of a worker process: which proxies can be used, and how often.

The rule: the database decides which domain may use which proxy. The registry has its answer, a few seconds old, the shares of rate
limits that this worker reserved, and the failures seen since. None of that outlives the process; a share that is lost with it counts
as used for the limit's period, so no limit is exceeded.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.db import proxy_usage
from holdfast.db.proxy_usage import MappingRow, ProxyRow
from holdfast.errors import HoldfastError
from holdfast.model.proxy import PROBED_ONLY_AFTER, ProxyPauses, ProxyRoute, ProxyServer, moving_average
from holdfast.model.proxy import Protocol as ProxyProtocol
from holdfast.politeness.proxy_pool import NEVER, GlobalProxy
from holdfast.settings import Settings
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 5.0
"""Seconds between two reads of the database."""
REFRESH_SECONDS_AFTER_FAILURE: Final = 0.5
"""Seconds between two reads while a failure may not be committed yet."""
SHARE_LIFETIME: Final = 1 / 60
"""Fraction of a limit's period for which a share is reserved; what is unused then is returned."""
SHARE_REQUESTS: Final = 20
"""Requests per reserved share."""
COMMIT_ALLOWANCE: Final = timedelta(seconds=2)
"""Time that a commit may take, in addition to the time until it starts."""
MAX_SHARE_WAIT: Final = 300.0
"""Maximum seconds until the next attempt to reserve a share: other workers may have returned theirs. Longer than a visit waits, so the
visit ends with that reason."""
SEALED_RETRY_SECONDS: Final = 300.0
"""Seconds until a password that no key opens is tried again; longer than a visit waits, too."""


class PoolSubscriber(Protocol):
    """A subscriber to pool updates: the proxied fetcher of a visit."""

    domain_id: int

    def update_pool(self, rows: Sequence[MappingRow]) -> None:
        """Replace the domain's pool by its current rows."""
        ...


class _Failures(NamedTuple):
    times: int
    at: float
    """Time of the last failure."""


_NONE: Final = _Failures(0, 0.0)


@dataclass(slots=True)
class _LimitShare:
    """The reserved share of a proxy's rate limit."""

    block_id: int | None
    left: int | None
    """None: there is no limit."""
    until: float
    used: int = 0


class ProxyReservation(NamedTuple):
    """The reservation of a proxy for one request."""

    route: ProxyRoute
    probe: bool
    """Whether the request is a health check of a proxy that failed too often."""
    share: _LimitShare
    """The share that it is counted in."""


class ProxyRegistry:
    """All proxies, shared by the visits of one worker."""

    def __init__(self, db: DbThread, clock: Clock, settings: Settings, unseal: Callable[[str], str]) -> None:
        """`unseal` decrypts a password."""
        proxies, flush = settings.proxies, settings.flush
        self._db = db
        self._clock = clock
        self._unseal = unseal
        self._period = proxies.period
        self._share_lifetime = proxies.period * SHARE_LIFETIME
        self._commit_delay = (flush.seconds + COMMIT_ALLOWANCE).total_seconds() if flush.pages else NEVER
        self.request_timeout = settings.fetch.timeout
        """Maximum duration of a request."""
        self.rests = ProxyPauses(proxies.rest, proxies.max_rest, proxies.refused_rest, proxies.max_refused_rest)
        self._subscribers: set[PoolSubscriber] = set()
        self._rows: dict[int, ProxyRow] = {}
        self.global_pool: Sequence[GlobalProxy] = ()
        """The global pool."""
        self._routes: dict[tuple[ProxyRow, bool], ProxyRoute] = {}
        self.refreshed_at = -NEVER
        """Time of the last read of the database."""
        self._refresh_lock = asyncio.Lock()
        self._response_ms: dict[int, float] = {}
        self._shares: dict[int, _LimitShare] = {}
        self._share_locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._exhausted_until: dict[int, float] = {}
        """Proxies whose limit is exhausted, with the time of the next attempt to reserve a share."""
        self._recent_failures: dict[int, _Failures] = {}
        """Failures that may not be committed yet."""
        self._last_success: dict[int, float] = {}
        """Start time of the last request that got through."""
        self._probes: set[int] = set()
        """Proxies that failed too often and get a health check from this worker."""
        self._unopened: dict[int, tuple[str, float]] = {}
        """Sealed passwords that no key opens, with the time of the next attempt."""

    def subscribe(self, subscriber: PoolSubscriber) -> None:
        """Subscribe to pool updates."""
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: PoolSubscriber) -> None:
        """Unsubscribe from pool updates."""
        self._subscribers.discard(subscriber)

    # Reading the database ----------------------------------------------------------------------------------------------

    async def refresh(self, *, since: float = -NEVER) -> None:
        """Read the proxies and pools from the database, unless the last read is recent and not before `since`."""
        if self._is_fresh(since):
            return
        async with self._refresh_lock:  # concurrent callers wait for this read
            if not self._is_fresh(since):
                await self._refresh(self._clock.now())

    def _is_fresh(self, since: float) -> bool:
        return self.refreshed_at >= since and self._clock.now() < self._next_refresh

    @property
    def _next_refresh(self) -> float:
        return self.refreshed_at + (REFRESH_SECONDS_AFTER_FAILURE if self._recent_failures else REFRESH_SECONDS)

    async def _refresh(self, now: float) -> None:
        rows = await self._db.call(proxy_usage.usable_proxies)
        before, self._rows = self._rows, {row.id: row for row in rows}
        self.global_pool = [(row.id, row.country) for row in rows]
        self.refreshed_at = now
        self._routes.clear()
        self._drop_stale(before, now)
        subscribers = list(self._subscribers)
        pools = await self._db.call(
            proxy_usage.pools, [subscriber.domain_id for subscriber in subscribers], changeable=True
        )
        for subscriber in subscribers:
            if subscriber in self._subscribers:
                subscriber.update_pool(pools.get(subscriber.domain_id, ()))
        await self._return_shares([share for share in self._shares.values() if share.until <= now])

    def _drop_stale(self, before: dict[int, ProxyRow], now: float) -> None:
        """Drop local knowledge that the rows just read supersede."""
        for proxy_id, failure in list(self._recent_failures.items()):
            known = self._rows.get(proxy_id)
            if known is None or known != before.get(proxy_id, known) or failure.at <= now - self._commit_delay:
                del self._recent_failures[proxy_id]
        for proxy_id, row in before.items():
            known = self._rows.get(proxy_id)
            if known is None or known.version != row.version:  # it was edited, perhaps its limit
                self._exhausted_until.pop(proxy_id, None)
                if (share := self._shares.get(proxy_id)) is not None:
                    share.until = now

    async def _return_shares(self, shares: Sequence[_LimitShare]) -> None:
        gone = {id(share) for share in shares}
        for proxy_id, share in list(self._shares.items()):
            if id(share) in gone:
                del self._shares[proxy_id]
        blocks = {share.block_id: share.used for share in shares if share.block_id is not None and share.left}
        if blocks:
            await self._db.call(proxy_usage.give_back, blocks)

    def country(self, proxy_id: int) -> str | None:
        """Return the country of a proxy; None: not known."""
        row = self._rows.get(proxy_id)
        return row.country if row else None

    def response_ms(self, proxy_id: int) -> float:
        """Return the average milliseconds to a response, over all domains of this worker; NEVER: not known."""
        return self._response_ms.get(proxy_id, NEVER)

    # Before a request -------------------------------------------------------------------------------------------------

    def usable_in(self, proxy_id: int) -> float:
        """Return in how many seconds a proxy can be used, as far as is known."""
        row = self._rows.get(proxy_id)
        if row is None:
            return NEVER
        now = self._clock.now()
        token, locked_until = self._unopened.get(proxy_id, ("", 0.0))
        wait = max(
            self._exhausted_until.get(proxy_id, 0.0) - now, locked_until - now if token == row.token else 0.0, 0.0
        )
        if proxy_id in self._probes:
            return wait
        if row.failures >= PROBED_ONLY_AFTER:
            return max(wait, self.refreshed_at + (row.try_in or 0.0) - now, 0.0)
        if row.failures + self._recent_failures.get(proxy_id, _NONE).times >= PROBED_ONLY_AFTER:
            return max(wait, self._next_refresh - now, 0.1)  # by then the row says how long it rests
        return wait

    async def prepare(self, proxy_id: int) -> bool:
        """Whether a request may go through a proxy now. After: if so, `take` returns it at once; if not, `usable_in` says for how long."""
        row = self._rows.get(proxy_id)
        if row is None or self._route(row, resolves=False) is None:
            return False
        if row.failures >= PROBED_ONLY_AFTER and proxy_id not in self._probes:
            if not await self._db.call(proxy_usage.reserve_probe, proxy_id, self.request_timeout):
                # Another worker checks its health.
                self._rows[proxy_id] = row._replace(
                    try_in=self._clock.now() - self.refreshed_at + REFRESH_SECONDS_AFTER_FAILURE
                )
                return False
            self._probes.add(proxy_id)
        if not row.limited:
            self._shares[proxy_id] = _LimitShare(None, None, NEVER)
            return True
        async with self._share_locks[proxy_id]:  # one share for all concurrent callers
            return self._has_share(proxy_id) or await self._reserve_share(proxy_id)

    def _has_share(self, proxy_id: int) -> bool:
        share = self._shares.get(proxy_id)
        return share is not None and self._clock.now() < share.until and bool(share.left)

    async def _reserve_share(self, proxy_id: int) -> bool:
        now = self._clock.now()
        if now < self._exhausted_until.get(proxy_id, 0.0):
            return False
        old = self._shares.get(proxy_id)
        if old is not None and old.left:
            await self._return_shares([old])  # it has expired
        # A request waits for a free connection first, perhaps after many others, and may then take the maximum duration.
        hold = self._share_lifetime + 4 * self.request_timeout
        block = await self._db.call(proxy_usage.take_block, proxy_id, SHARE_REQUESTS, hold=hold, hour=self._period)
        if block.requests == 0:
            self._exhausted_until[proxy_id] = self._clock.now() + min(
                max(block.wait, REFRESH_SECONDS_AFTER_FAILURE), MAX_SHARE_WAIT
            )
            return False
        # From before the call: the database's period starts later than this one.
        self._shares[proxy_id] = _LimitShare(block.id, block.requests, now + self._share_lifetime.total_seconds())
        return True

    def take(self, proxy_id: int, *, resolves: bool) -> ProxyReservation | None:
        """Reserve a proxy for one request, which counts from now on; None: it cannot be used after all."""
        row, share = self._rows.get(proxy_id), self._shares.get(proxy_id)
        if row is None or share is None or share.left == 0 or self._clock.now() >= share.until:
            return None
        route = self._route(row, resolves=resolves)
        if route is None:
            return None
        share.used += 1
        if share.left is not None:
            share.left -= 1
        probe = proxy_id in self._probes
        self._probes.discard(proxy_id)
        return ProxyReservation(route, probe, share)

    def is_expired(self, reservation: ProxyReservation) -> bool:
        """Whether the share of a reservation has expired."""
        return self._clock.now() >= reservation.share.until

    def return_unused(self, reservation: ProxyReservation) -> None:
        """Return a reservation that was not used."""
        reservation.share.used -= 1
        if reservation.share.left is not None:
            reservation.share.left += 1
        if reservation.probe:
            self._probes.add(reservation.route.proxy_id)

    def _route(self, row: ProxyRow, *, resolves: bool) -> ProxyRoute | None:
        key = (row, resolves)
        if key not in self._routes:
            try:
                password = None if row.token is None else self._unseal(row.token)
            except HoldfastError as problem:
                self._unopened[row.id] = (row.token or "", self._clock.now() + SEALED_RETRY_SECONDS)
                log.error("proxy %d cannot be used: %s", row.id, problem)  # noqa: TRY400 — no traceback
                return None
            server = ProxyServer(ProxyProtocol(row.protocol), row.host, row.port, row.username)
            self._routes[key] = ProxyRoute(row.id, server, password, row.allow_private, resolves)
        return self._routes[key]

    # After a request ---------------------------------------------------------------------------------------------------------

    def succeeded_since(self, proxy_id: int, began: float) -> bool:
        """Whether a request that started after `began` got through the proxy."""
        return self._last_success.get(proxy_id, -NEVER) > began

    def record_result(self, proxy_id: int, began: float, *, succeeded: bool) -> None:
        """Record whether a request that started at `began` got through the proxy."""
        if not succeeded:
            self._recent_failures[proxy_id] = _Failures(
                self._recent_failures.get(proxy_id, _NONE).times + 1, self._clock.now()
            )
            return
        self._recent_failures.pop(proxy_id, None)
        self._last_success[proxy_id] = max(began, self._last_success.get(proxy_id, -NEVER))
        row = self._rows.get(proxy_id)
        if row is not None and row.failures:
            self._rows[proxy_id] = row._replace(failures=0, try_in=None)

    def record_response_time(self, proxy_id: int, milliseconds: float) -> None:
        """Add the duration of a response to the proxy's average."""
        self._response_ms[proxy_id] = moving_average(self._response_ms.get(proxy_id), milliseconds)

    async def close(self) -> None:
        """Return the unused shares."""
        with suppress(StoppedWaiting):
            await self._return_shares(list(self._shares.values()))
