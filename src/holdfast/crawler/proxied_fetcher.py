"""The fetcher of a visit through proxies: chooses a proxy for each request, and attributes a failure to the proxy or to the site.

The rule: a URL never fails through a proxy's fault. A failure that may be the proxy's is retried through another proxy, at once and
without using up an attempt; only if several proxies agree is it the site's. A URL that the site refuses through one proxy is retried
through others, within the attempts of the URL. Failures of proxies count neither for the request rate nor for the circuit breaker nor
for the error streak of the domain.

It wraps the fetcher of the visit. Before a request: `prepare` reserves a proxy. The request: `fetch` sends it through that. After it:
`settle` says what the answer, once classified, means for the proxy.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.crawler.proxy_registry import ProxyRegistry, ProxyReservation
from holdfast.db.proxy_usage import MappingRow
from holdfast.fetch.site_fetcher import SiteFetcher
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.proxy import ProxyFault, ProxyRoute, ProxyRules, ProxyUse, ProxyVerdict, UnclearFailure
from holdfast.politeness.proxy_pool import NEVER, PoolMember, ProxyChoice, ProxyPool
from holdfast.politeness.retry import retry_after_seconds
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

UNCLEAR_LIMIT: Final = 9
"""Weight of unclear failures at which an attempt counts as the site's failure: 9 proxies of weight 1, which may be at fault
themselves, or 3 of `TRUSTED_WEIGHT`, which other requests got through meanwhile."""
TRUSTED_WEIGHT: Final = 3
MAX_WAIT: Final = 300.0
"""Maximum seconds until the next attempt on a domain without a usable proxy."""


@dataclass(slots=True)
class _ProxiedRequest:
    """A request that is reserved or in flight."""

    member: PoolMember
    reservation: ProxyReservation
    started: float
    probe: bool


@dataclass(slots=True)
class _UrlHistory:
    """The proxies tried for one URL so far, and their results."""

    tried: set[int] = field(default_factory=set)
    unclear: list[UnclearFailure] = field(default_factory=list)
    """Proxies whose request failed without a clear cause."""
    weight: int = 0
    """Weight of the unclear failures in the current attempt."""
    answer: tuple[Outcome, int, str] | None = None
    """Outcome, status and detail of an error response among them; it is reported rather than a failure without response."""


class ProxiedFetcher:
    """Sends the requests of one visit through its pool of proxies."""

    def __init__(
        self,
        fetcher: SiteFetcher,
        registry: ProxyRegistry,
        clock: Clock,
        domain: str,
        domain_id: int,
        rules: ProxyRules,
        rows: Sequence[MappingRow],
        *,
        patience: float,
        on_use: Callable[[ProxyUse], None],
    ) -> None:
        """`patience`: maximum seconds that the visit waits. `on_use` is called for the use of a proxy by a request that is not for a page;
        that of a page is in its result."""
        self._fetcher = fetcher
        self._on_use = on_use
        self._registry = registry
        self._clock = clock
        self._domain = domain
        self.domain_id = domain_id
        self._rules = rules
        self._patience = patience
        self._subscribed_at = clock.now()
        self._pool = ProxyPool(rules, self._members(rows), start=domain_id, now=self._subscribed_at)
        self._reserved: dict[bytes, _ProxiedRequest | None] = {}
        """Reservations by URL key; None: without a proxy."""
        self._in_flight: dict[bytes, _ProxiedRequest] = {}
        self._histories: dict[bytes, _UrlHistory] = {}
        registry.subscribe(self)

    def update_pool(self, rows: Sequence[MappingRow]) -> None:
        """Replace the pool by its current rows."""
        self._pool.renew(self._members(rows))

    def _members(self, rows: Sequence[MappingRow]) -> list[PoolMember]:
        now = self._clock.now()
        return [
            PoolMember(
                row.proxy_id,
                self._registry.country(row.proxy_id),
                row.priority,
                assigned=row.assigned,
                used=-NEVER if row.used_ago is None else now - row.used_ago,
                speed=self._registry.response_ms(row.proxy_id) if row.response_ms is None else row.response_ms,
                enabled=row.on,
                refusals=row.refusals,
                probe_at=now + (row.try_in or 0.0),
                response_ms=row.response_ms,
                version=row.version,
            )
            for row in rows
        ]

    # Before a request -------------------------------------------------------------------------------------------------

    async def prepare(self, key: bytes) -> float:
        """Reserve a proxy for a URL's request. Returns 0: reserved, `fetch` takes it; otherwise the seconds until the next attempt."""
        if self.is_ready(key):
            return 0.0
        await self._registry.refresh()
        history = self._histories.get(key)
        while True:
            choice = self._choose(history)
            if choice.member is not None:
                if await self._registry.prepare(choice.member.proxy_id) and self._take(key, choice.member):
                    return 0.0
            elif self._registry.refreshed_at < self._subscribed_at:
                await self._registry.refresh(since=self._subscribed_at)  # a proxy may have become usable meanwhile
            elif history is not None and history.tried:
                history.tried.clear()  # no untried proxy is usable: start again with those already tried
            elif choice.wait is None:
                self._reserved[key] = None
                return 0.0
            else:
                if choice.wait == NEVER:
                    log.warning("%s waits: no proxy that it may use can be used", self._domain)
                return min(choice.wait, MAX_WAIT)

    def _choose(self, history: _UrlHistory | None) -> ProxyChoice:
        return self._pool.choose(
            self._registry.usable_in,
            self._clock.now(),
            exclude=history.tried if history else (),
            global_pool=self._registry.global_pool,
            # After an error response, ask a suspected proxy first: success would clear it.
            suspects_first=history is not None and history.answer is not None and len(history.unclear) == 1,
        )

    def _take(self, key: bytes, member: PoolMember) -> bool:
        if not self._pool.is_current(member):
            return False  # it was edited meanwhile
        reservation = self._registry.take(member.proxy_id, resolves=self._rules.resolves)
        if reservation is None:
            return False
        now = self._clock.now()
        probe = self._pool.mark_used(member, now, self._registry.request_timeout.total_seconds())
        self._reserved[key] = _ProxiedRequest(member, reservation, now, reservation.probe or probe)
        return True

    def is_ready(self, key: bytes) -> bool:
        """Whether a URL has a reservation. An expired one is returned first."""
        proxied = self._reserved.get(key)
        if proxied is not None and self._registry.is_expired(proxied.reservation):
            self._registry.return_unused(proxied.reservation)
            del self._reserved[key]
        return key in self._reserved

    def start(self, key: bytes) -> ProxyRoute | None:
        """Take the reservation of a request that starts now; None: without a proxy. Before: `is_ready`."""
        proxied = self._reserved.pop(key)
        if proxied is None:
            return None
        self._in_flight[key] = proxied
        return proxied.reservation.route

    def close(self) -> None:
        """Unsubscribe and return the unused reservations."""
        self._registry.unsubscribe(self)
        for proxied in self._reserved.values():
            if proxied is not None:
                self._registry.return_unused(proxied.reservation)
        self._reserved.clear()

    # The request --------------------------------------------------------------------------------------------------------------

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Send the request through the proxy that is reserved for it. Before: `is_ready`. After: if it is retried through another proxy,
        `again_in` is set."""
        request.route = self.start(request.key)
        result = await self._fetcher.fetch(request)
        if result.withheld:
            self._finish(request, result, result.outcome)
        elif result.again_in is None:
            self._decide_retry(request, result)
        return result

    def settle(self, request: FetchRequest, result: FetchResult, outcome: Outcome) -> None:
        """Settle what an answer means for its proxy, by its `outcome` as known after parsing. After: `result.again_in` says whether the URL
        is retried through another proxy, and the use of the proxy is in `result.proxy`, or reported."""
        if outcome is not result.outcome:
            self._retry_refused_answer(request, result, outcome)
        use = self._finish(request, result, outcome)
        if request.is_page:
            result.proxy = use
        elif use is not None:
            self._on_use(use)

    # After a request ---------------------------------------------------------------------------------------------------------

    def _decide_retry(self, request: FetchRequest, result: FetchResult) -> None:
        """Decide whether the URL is retried through another proxy. After: if so, `result.again_in` is set, and the failure is not
        the site's."""
        proxied = self._in_flight.get(request.key)
        if proxied is None:
            return
        history = self._histories.setdefault(request.key, _UrlHistory())
        history.tried.add(proxied.member.proxy_id)
        if result.fault is ProxyFault.PROXY:
            result.again_in = 0.0
        elif result.fault is ProxyFault.UNCLEAR:
            self._weigh_unclear(history, proxied, result, last_attempt=request.last_attempt)
        else:
            self._retry_refused_answer(request, result, result.outcome)
        if result.again_in is not None and result.fault is ProxyFault.UNCLEAR:
            result.detail = f"{result.outcome} through proxy {proxied.member.proxy_id}: {result.detail}"
            result.outcome = Outcome.PROXY_FAILED if result.status is None else Outcome.PROXY_UNCLEAR

    def _weigh_unclear(
        self, history: _UrlHistory, proxied: _ProxiedRequest, result: FetchResult, *, last_attempt: bool
    ) -> None:
        """Weigh an unclear failure. After: `result.again_in` is set if another proxy is tried; otherwise it is a failure of the site."""
        proxy_id = proxied.member.proxy_id
        history.unclear.append(UnclearFailure(proxy_id, proxied.probe))
        history.weight += TRUSTED_WEIGHT if self._registry.succeeded_since(proxy_id, proxied.started) else 1
        if result.status is not None:
            history.answer = (result.outcome, result.status, result.detail)
        wait = self._next_proxy_in(history) if history.weight < UNCLEAR_LIMIT else None
        # In the last attempt wait only within this visit, which remembers the proxies tried: else the URL could wait endlessly.
        result.again_in = None if wait and last_attempt and wait > self._patience else wait
        if result.again_in is None:
            if history.answer is not None:
                result.outcome, result.status, result.detail = history.answer
            history.weight, history.answer = 0, None

    def _retry_refused_answer(self, request: FetchRequest, result: FetchResult, outcome: Outcome) -> None:
        """Like `_decide_retry`, for a response once it is classified: a site that refuses this proxy may accept another."""
        history, in_flight = self._histories.get(request.key), request.key in self._in_flight
        if in_flight and history is not None and TREATMENT[outcome].verdict is ProxyVerdict.REFUSED:
            result.again_in = None if request.last_attempt else self._next_proxy_in(history)

    def _next_proxy_in(self, history: _UrlHistory) -> float | None:
        """Return in how many seconds an untried proxy can be used; None: there is none."""
        choice = self._choose(history)
        if choice.member is not None:
            return 0.0
        return None if choice.wait is None or choice.wait == NEVER else min(choice.wait, MAX_WAIT)

    def _finish(self, request: FetchRequest, result: FetchResult, outcome: Outcome) -> ProxyUse | None:
        """Return the verdict on the proxy, for the database; None: no proxy was used. After: it counts for the next choices."""
        key = request.key
        proxied = self._in_flight.pop(key, None)
        if proxied is None:
            return None
        if result.status is None and result.fault is None:  # it was not sent, and says nothing about the proxy
            self._registry.return_unused(proxied.reservation)
            self._histories.pop(key, None)
            return None
        member, now = proxied.member, self._clock.now()
        verdict = _verdict(outcome, result.fault, page=request.is_page)
        use = ProxyUse(member.proxy_id, verdict, proxied.started, probe=proxied.probe, bytes=result.wire_bytes or 0)
        if verdict in (ProxyVerdict.REFUSED, ProxyVerdict.FAILED):
            use.error = (result.detail or str(outcome))[:500]
        member.record(verdict, now, self._registry.rests, probe=proxied.probe)
        if verdict is ProxyVerdict.SUCCESS:
            member.record_response_time(result.duration * 1000)
            self._registry.record_response_time(member.proxy_id, result.duration * 1000)
            use.response_ms = member.response_ms
        if outcome is Outcome.RATE_LIMITED:
            member.paused_until = now + retry_after_seconds(result.retry_after)
        if verdict is ProxyVerdict.FAILED:
            self._registry.record_result(member.proxy_id, proxied.started, succeeded=False)
        elif verdict is not ProxyVerdict.UNCLEAR:
            self._registry.record_result(member.proxy_id, proxied.started, succeeded=True)
            use.blames = self._blame_others(key, member.proxy_id)
        if result.again_in is None and verdict is not ProxyVerdict.UNCLEAR:
            self._histories.pop(key, None)
        return use

    def _blame_others(self, key: bytes, succeeded_id: int) -> tuple[UnclearFailure, ...]:
        """Blame the proxies that failed on a URL for which this one succeeded; return them."""
        history = self._histories.get(key)
        if history is None:
            return ()
        blamed = tuple(blame for blame in history.unclear if blame.proxy_id != succeeded_id)
        for blame in blamed:
            self._registry.record_result(blame.proxy_id, self._clock.now(), succeeded=False)
            self._pool.set_suspect(blame.proxy_id, suspected=history.answer is not None)
        history.unclear.clear()
        return blamed


def _verdict(outcome: Outcome, fault: ProxyFault | None, *, page: bool) -> ProxyVerdict:
    if fault is ProxyFault.UNCLEAR:
        return ProxyVerdict.UNCLEAR
    verdict = TREATMENT[outcome].verdict
    # A refused robots.txt is the site's decision, not a refusal of the proxy.
    return ProxyVerdict.ERROR if verdict is ProxyVerdict.REFUSED and not page else verdict
