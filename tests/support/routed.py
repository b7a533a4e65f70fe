"""A visit's way through proxies without any: the store is told what to answer, and time passes when it is told to."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from holdfast.crawler.db_thread import DbThread
from holdfast.crawler.proxied_fetcher import ProxiedFetcher
from holdfast.crawler.proxy_registry import ProxyRegistry
from holdfast.db import proxy_usage as proxy_use
from holdfast.db.proxy_usage import Block, MappingRow, ProxyRow
from holdfast.fetch.site_fetcher import SiteFetcher
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault, ProxyRules, ProxyUse
from holdfast.settings import Settings

URL, OTHER = b"url", b"other"


class Store:
    """What the store would answer; it remembers what it was asked."""

    def __init__(self, *rows: ProxyRow) -> None:
        self.rows = list(rows)
        self.mappings = [mapping(row.id) for row in rows]
        self.blocks: list[Block] = []
        self.reserve_probe = True
        self.asked: list[Any] = []
        self.hold: asyncio.Event | None = None
        """Whoever asks `held` waits for it."""
        self.held: Callable[..., Any] = proxy_use.usable_proxies

    async def call(self, function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        self.asked.append(function)
        if function is self.held and self.hold is not None:
            await self.hold.wait()
        if function is proxy_use.usable_proxies:
            return list(self.rows)
        if function is proxy_use.pools:
            return {domain_id: list(self.mappings) for domain_id in arguments[0]}
        if function is proxy_use.take_block:
            return self.blocks.pop(0)
        if function is proxy_use.give_back:
            self.asked.append(arguments)
            return None
        assert function is proxy_use.reserve_probe
        return self.reserve_probe


class Clock:
    """Time passes when it is told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def row(proxy_id: int, **facts: Any) -> ProxyRow:
    plain = ProxyRow(proxy_id, "http", f"p{proxy_id}.example", 8080, None, None, None, False, False, 0, None, 1)
    return plain._replace(**facts)


def mapping(proxy_id: int, **facts: Any) -> MappingRow:
    return MappingRow(proxy_id, 5, True, True, 0, None, None, None, 1)._replace(**facts)


class Site:
    """Stands for the requests without proxies: it answers what it is told to."""

    def __init__(self) -> None:
        self.answer: Callable[[FetchRequest], FetchResult] = lambda request: FetchResult(request.url, Outcome.OK)

    async def fetch(self, request: FetchRequest) -> FetchResult:
        return self.answer(request)


def fetcher(
    registry: ProxyRegistry,
    clock: Clock,
    domain: str,
    domain_id: int,
    rules: ProxyRules,
    rows: list[MappingRow],
    site: Site,
) -> ProxiedFetcher:
    of = cast("SiteFetcher", site)
    return ProxiedFetcher(of, registry, clock, domain, domain_id, rules, rows, patience=60, on_use=print)


class Play:
    """One visit and its proxies."""

    def __init__(self, store: Store, rules: ProxyRules | None = None, unseal: Callable[[str], str] = str) -> None:
        self.store, self.clock = store, Clock()
        self.registry = ProxyRegistry(cast("DbThread", store), self.clock, Settings(), unseal)
        self.site = Site()
        self.fetcher = self.another("a.example", 1, rules or ProxyRules(), store.mappings)

    def another(self, domain: str, domain_id: int, rules: ProxyRules, rows: list[MappingRow]) -> ProxiedFetcher:
        """That of another visit with the same proxies."""
        return fetcher(self.registry, self.clock, domain, domain_id, rules, rows, self.site)

    async def begin(self, key: bytes = URL) -> int | None:
        """The proxy that a request goes through, now."""
        assert await self.fetcher.prepare(key) == 0
        route = self.fetcher.start(key)
        return route.proxy_id if route else None

    async def request(
        self, answer: Callable[[FetchRequest], FetchResult], key: bytes = URL, *, last: bool = False
    ) -> tuple[FetchRequest, FetchResult]:
        """A request that is answered so, from its reservation to the verdict on its proxy."""
        request = FetchRequest("http://a.example/", "x", key=key, last_attempt=last)
        self.site.answer = answer
        assert await self.fetcher.prepare(key) == 0
        result = await self.fetcher.fetch(request)
        self.fetcher.settle(request, result, result.outcome)
        return request, result

    async def ask(
        self,
        outcome: Outcome = Outcome.OK,
        fault: ProxyFault | None = None,
        *,
        key: bytes = URL,
        last: bool = False,
        trusted: bool = False,
        **facts: Any,
    ) -> tuple[int, FetchResult, ProxyUse]:
        """A request that ends so."""
        facts.setdefault("status", 200 if fault is None else None)

        def answer(request: FetchRequest) -> FetchResult:
            assert request.route is not None
            if trusted:  # another request got through it meanwhile
                self.registry.record_result(request.route.proxy_id, self.clock.now() + 1, succeeded=True)
            return FetchResult(request.url, outcome, "why", fault=fault, duration=0.1, **facts)

        request, result = await self.request(answer, key, last=last)
        proxy_id, use = request.route.proxy_id if request.route else None, result.proxy
        assert proxy_id is not None
        assert use is not None
        assert use.proxy_id == proxy_id
        self.clock.time += 1
        return proxy_id, result, use


def play(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(act(), 10))
