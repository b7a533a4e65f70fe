"""The proxies as one worker process knows them: which can be used, and how often.

The rule: the store decides who may use what. Here are its last word, a few seconds old, the shares of limits that it gave us, and what
we have seen fail since. None of that outlives the process; a share that dies with it is lost for an hour, and no limit is exceeded.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from holdfast.engine.desk import Away, Desk
from holdfast.errors import HoldfastError
from holdfast.model.proxy import NOT_CHOSEN, ProxyServer, Rests, Route, moving
from holdfast.model.proxy import Protocol as Speech
from holdfast.politeness.pool import NEVER, Other
from holdfast.settings import Settings
from holdfast.store import proxy_use
from holdfast.store.proxy_use import MappingRow, ProxyRow
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

LOOK: Final = 5.0
"""Seconds between two looks at the store; SOON: when something has failed since the last one."""
SOON: Final = 0.5
HOLD: Final = 1 / 60
"""Of the time that a limit is for a share of it is ours; what is left of it then is given back."""
SHARE: Final = 20
"""Requests that are asked for at once."""
COMMITTING: Final = timedelta(seconds=2)
"""What a commit may take, beside the time until it begins."""
ASK_AGAIN: Final = 300.0
"""Seconds after which the store is asked again for a share at the latest: others may have given back what they did not use. Longer than
a visit waits for, so it ends, and says so."""
LOCKED: Final = 300.0
"""Seconds until a password is tried again that no key opens; likewise."""


class Guest(Protocol):
    """A visit's way through proxies, as the board sees it."""

    domain_id: int

    def renew(self, rows: Sequence[MappingRow]) -> None:
        """The domain's pool by now."""
        ...


class _Failed(NamedTuple):
    times: int
    at: float
    """When it did last."""


_NONE: Final = _Failed(0, 0.0)


@dataclass(slots=True)
class _Share:
    """What we may use of a limit."""

    block_id: int | None
    left: int | None
    """None: there is no limit."""
    until: float
    used: int = 0


class Taken(NamedTuple):
    """One request through a proxy."""

    route: Route
    probe: bool
    """It is to show whether the proxy can be used again."""
    share: _Share
    """What it counts for."""


class Board:
    """All proxies, for the visits of one worker."""

    def __init__(self, desk: Desk, clock: Clock, settings: Settings, unseal: Callable[[str], str]) -> None:
        """`unseal` opens a password."""
        proxies, flush = settings.proxies, settings.flush
        self._desk = desk
        self._clock = clock
        self._unseal = unseal
        self._period = proxies.period
        self._hold = proxies.period * HOLD
        self._uncommitted = (flush.seconds + COMMITTING).total_seconds() if flush.pages else NEVER
        self.longest = settings.fetch.timeout
        """The longest that a request may take."""
        self.rests = Rests(proxies.rest, proxies.max_rest, proxies.refused_rest, proxies.max_refused_rest)
        self._guests: set[Guest] = set()
        self._rows: dict[int, ProxyRow] = {}
        self.everyone: Sequence[Other] = ()
        """The global pool."""
        self._routes: dict[tuple[ProxyRow, bool], Route] = {}
        self.looked = -NEVER
        """When we asked the store."""
        self._looking = asyncio.Lock()
        self._speeds: dict[int, float] = {}
        self._shares: dict[int, _Share] = {}
        self._taking: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._spent: dict[int, float] = {}
        """Whose limit is used up, and when to ask again."""
        self._failed: dict[int, _Failed] = {}
        """Failures that the store may not know of yet."""
        self._worked: dict[int, float] = {}
        """When the last request was begun that got through."""
        self._probes: set[int] = set()
        """Those that we are to try, though they failed too often."""
        self._locked: dict[int, tuple[str, float]] = {}
        """Sealed passwords that no key opens, and when to try again."""

    def join(self, guest: Guest) -> None:
        """It wants to know what becomes of its pool."""
        self._guests.add(guest)

    def leave(self, guest: Guest) -> None:
        """It does not any more."""
        self._guests.discard(guest)

    # What the store says ----------------------------------------------------------------------------------------------

    async def look(self, *, since: float = -NEVER) -> None:
        """Know what the store knows, unless we looked just now, and not before `since`."""
        if self._is_new(since):
            return
        async with self._looking:  # who comes meanwhile waits for what we see
            if not self._is_new(since):
                await self._look(self._clock.now())

    def _is_new(self, since: float) -> bool:
        return self.looked >= since and self._clock.now() < self._next_look

    @property
    def _next_look(self) -> float:
        return self.looked + (SOON if self._failed else LOOK)

    async def _look(self, now: float) -> None:
        rows = await self._desk.call(proxy_use.all_of_them)
        before, self._rows = self._rows, {row.id: row for row in rows}
        self.everyone = [(row.id, row.country) for row in rows]
        self.looked = now
        self._routes.clear()
        self._forget(before, now)
        guests = list(self._guests)
        pools = await self._desk.call(proxy_use.pools, [guest.domain_id for guest in guests], changeable=True)
        for guest in guests:
            if guest in self._guests:
                guest.renew(pools.get(guest.domain_id, ()))
        await self._give_back([share for share in self._shares.values() if share.until <= now])

    def _forget(self, before: dict[int, ProxyRow], now: float) -> None:
        """What we know of a proxy that the store knows better."""
        for proxy_id, failed in list(self._failed.items()):
            known = self._rows.get(proxy_id)
            if known is None or known != before.get(proxy_id, known) or failed.at <= now - self._uncommitted:
                del self._failed[proxy_id]
        for proxy_id, row in before.items():
            known = self._rows.get(proxy_id)
            if known is None or known.version != row.version:  # people have changed it, perhaps its limit
                self._spent.pop(proxy_id, None)
                if (share := self._shares.get(proxy_id)) is not None:
                    share.until = now

    async def _give_back(self, shares: Sequence[_Share]) -> None:
        gone = {id(share) for share in shares}
        for proxy_id, share in list(self._shares.items()):
            if id(share) in gone:
                del self._shares[proxy_id]
        blocks = {share.block_id: share.used for share in shares if share.block_id is not None and share.left}
        if blocks:
            await self._desk.call(proxy_use.give_back, blocks)

    def country(self, proxy_id: int) -> str | None:
        """Where it is."""
        row = self._rows.get(proxy_id)
        return row.country if row else None

    def speed(self, proxy_id: int) -> float:
        """Milliseconds to an answer, over all domains of this worker; NEVER: not known."""
        return self._speeds.get(proxy_id, NEVER)

    # Before a request -------------------------------------------------------------------------------------------------

    def usable(self, proxy_id: int) -> float:
        """In how many seconds it can be used, as far as we know."""
        row = self._rows.get(proxy_id)
        if row is None:
            return NEVER
        now = self._clock.now()
        token, locked_until = self._locked.get(proxy_id, ("", 0.0))
        wait = max(self._spent.get(proxy_id, 0.0) - now, locked_until - now if token == row.token else 0.0, 0.0)
        if proxy_id in self._probes:
            return wait
        if row.failures >= NOT_CHOSEN:
            return max(wait, self.looked + (row.try_in or 0.0) - now, 0.0)
        if row.failures + self._failed.get(proxy_id, _NONE).times >= NOT_CHOSEN:
            return max(wait, self._next_look - now, 0.1)  # by then the store knows, and says how long
        return wait

    async def prepare(self, proxy_id: int) -> bool:
        """Whether a request may go through it now; if so, `take` gives it, at once. If not, `usable` knows for how long."""
        row = self._rows.get(proxy_id)
        if row is None or self._route(row, resolves=False) is None:
            return False
        if row.failures >= NOT_CHOSEN and proxy_id not in self._probes:
            if not await self._desk.call(proxy_use.may_try, proxy_id, self.longest):
                # Somebody else tries it.
                self._rows[proxy_id] = row._replace(try_in=self._clock.now() - self.looked + SOON)
                return False
            self._probes.add(proxy_id)
        if not row.limited:
            self._shares[proxy_id] = _Share(None, None, NEVER)
            return True
        async with self._taking[proxy_id]:  # one for all who want it
            return self._has_share(proxy_id) or await self._take_block(proxy_id)

    def _has_share(self, proxy_id: int) -> bool:
        share = self._shares.get(proxy_id)
        return share is not None and self._clock.now() < share.until and bool(share.left)

    async def _take_block(self, proxy_id: int) -> bool:
        now = self._clock.now()
        if now < self._spent.get(proxy_id, 0.0):
            return False
        old = self._shares.get(proxy_id)
        if old is not None and old.left:
            await self._give_back([old])  # it has ended
        # A request waits for a free connection first, perhaps behind many others, and may then take as long as any.
        hold = self._hold + 4 * self.longest
        block = await self._desk.call(proxy_use.take_block, proxy_id, SHARE, hold=hold, hour=self._period)
        if block.requests == 0:
            self._spent[proxy_id] = self._clock.now() + min(max(block.wait, SOON), ASK_AGAIN)
            return False
        # From before it was asked for: the store's time begins later than ours.
        self._shares[proxy_id] = _Share(block.id, block.requests, now + self._hold.total_seconds())
        return True

    def take(self, proxy_id: int, *, resolves: bool) -> Taken | None:
        """The way of one request through it, which counts from now on; None: it cannot be used after all."""
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
        return Taken(route, probe, share)

    def is_old(self, taken: Taken) -> bool:
        """Whether it was to be used sooner."""
        return self._clock.now() >= taken.share.until

    def put_back(self, taken: Taken) -> None:
        """It was not used."""
        taken.share.used -= 1
        if taken.share.left is not None:
            taken.share.left += 1
        if taken.probe:
            self._probes.add(taken.route.proxy_id)

    def _route(self, row: ProxyRow, *, resolves: bool) -> Route | None:
        key = (row, resolves)
        if key not in self._routes:
            try:
                password = None if row.token is None else self._unseal(row.token)
            except HoldfastError as problem:
                self._locked[row.id] = (row.token or "", self._clock.now() + LOCKED)
                log.error("proxy %d cannot be used: %s", row.id, problem)  # noqa: TRY400 — no traceback
                return None
            server = ProxyServer(Speech(row.protocol), row.host, row.port, row.username)
            self._routes[key] = Route(row.id, server, password, row.allow_private, resolves)
        return self._routes[key]

    # After it ---------------------------------------------------------------------------------------------------------

    def worked_since(self, proxy_id: int, began: float) -> bool:
        """Whether a request got through it that was begun after that."""
        return self._worked.get(proxy_id, -NEVER) > began

    def ended(self, proxy_id: int, began: float, *, through: bool) -> None:
        """A request that was begun then got through it, or not."""
        if not through:
            self._failed[proxy_id] = _Failed(self._failed.get(proxy_id, _NONE).times + 1, self._clock.now())
            return
        self._failed.pop(proxy_id, None)
        self._worked[proxy_id] = max(began, self._worked.get(proxy_id, -NEVER))
        row = self._rows.get(proxy_id)
        if row is not None and row.failures:
            self._rows[proxy_id] = row._replace(failures=0, try_in=None)

    def answered(self, proxy_id: int, milliseconds: float) -> None:
        """An answer through it took so long."""
        self._speeds[proxy_id] = moving(self._speeds.get(proxy_id), milliseconds)

    async def close(self) -> None:
        """Give back what was not used."""
        with suppress(Away):
            await self._give_back(list(self._shares.values()))
