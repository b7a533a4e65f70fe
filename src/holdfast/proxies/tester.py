"""Proxies, tried: a real request through each of them.

The rule: what a test finds is told to whoever asked. One that succeeds makes a proxy active again that had failed too often; one that
fails is held against nobody, since the fault may be the test's. It counts against the limit of the proxy like any other request.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.control.secret_box import Safe
from holdfast.db import proxy_usage as proxy_use
from holdfast.db.connection import Database
from holdfast.errors import SettingsError
from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.proxy import ProxyFault, ProxyRoute
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.settings import Settings, render_duration

URL: Final = "http://example.com/"
AT_ONCE: Final = 16
_LONGEST: Final = 64 * 1024
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What came of trying a proxy."""

    id: int
    server: str
    works: bool
    problem: str | None
    """Why it does not, or why nobody could tell."""
    fault: str | None
    """Whose it is: `proxy`, `unclear` (the proxy's or the site's) or `site`; None: it works, or was not asked."""
    status: int | None = None
    seconds: float | None = None
    recovered: bool = False
    """It had failed too often, and is active again."""


class Tester:
    """Tries proxies of one store."""

    def __init__(self, database: Database, settings: Settings, agent: str) -> None:
        self._database = database
        self._settings = settings
        self._agent = agent
        self._safe = Safe.of(settings)

    def test(
        self,
        proxy_ids: Sequence[int],
        url: str = URL,
        *,
        actor: str,
        progress: Callable[[Tested], None] = lambda _: None,
    ) -> list[Tested]:
        """Ask for `url` through each of these proxies, several at once; what came of it, in the order of the ids. Raises NotFound."""
        return asyncio.run(self._test(proxy_ids, url, actor, progress))

    async def _test(
        self, proxy_ids: Sequence[int], url: str, actor: str, progress: Callable[[Tested], None]
    ) -> list[Tested]:
        slots = asyncio.Semaphore(AT_ONCE)
        async with AsyncExitStack() as opened:
            resolver = await opened.enter_async_context(Resolver(self._settings.fetch))
            client = await opened.enter_async_context(HttpClient(self._settings.fetch, resolver))

            async def one(proxy_id: int) -> Tested:
                async with slots:
                    found = await self._try(client, proxy_id, url, actor)
                    progress(found)
                    return found

            return list(await asyncio.gather(*map(one, proxy_ids)))

    async def _try(self, client: HttpClient, proxy_id: int, url: str, actor: str) -> Tested:
        found = await asyncio.to_thread(self._prepare, proxy_id)
        if isinstance(found, Tested):
            return found
        prepared, block_id = found
        wire = FetchRequest(
            url,
            self._agent,
            any_type=True,
            max_bytes=_LONGEST,
            cut=True,
            allow_private=self._settings.fetch.allow_private,
            route=prepared,
        )
        result = await client.fetch(wire)
        works = result.status is not None and result.fault is None
        if result.status is None and result.fault is None:  # it was not even sent
            await asyncio.to_thread(self._give_back, block_id)
            result.detail = f"nothing was sent, for the site cannot be asked: {result.detail or result.outcome}"
        return Tested(
            proxy_id,
            str(prepared.server),
            works=works,
            problem=None if works else result.detail or str(result.outcome),
            fault=_fault(result),
            status=result.status,
            seconds=round(result.duration, 3),
            recovered=works and await asyncio.to_thread(self._recover, proxy_id, actor),
        )

    def _prepare(self, proxy_id: int) -> tuple[ProxyRoute, int | None] | Tested:
        """The way through a proxy, which may be used once now; or why it cannot be."""
        with self._database.session() as connection:
            proxy = proxies.get(connection, proxy_id)
            token = proxies.token(connection, proxy_id)
            try:
                password = None if token is None else self._safe.open(token)
            except SettingsError as lost:
                return Tested(proxy_id, str(proxy.server), works=False, problem=str(lost), fault=None)
            hold = self._settings.fetch.timeout + timedelta(seconds=1)
            block = proxy_use.take_block(connection, proxy_id, 1, hold=hold, hour=self._settings.proxies.period)
            if block.requests == 0:
                wait = render_duration(timedelta(seconds=round(block.wait)))
                problem = f"Its limit is used up; it can be asked again in {wait} at the latest."
                return Tested(proxy_id, str(proxy.server), works=False, problem=problem, fault=None)
        return ProxyRoute(proxy_id, proxy.server, password, proxy.allow_private), block.id

    def _give_back(self, block_id: int | None) -> None:
        if block_id is not None:
            with self._database.session() as connection:
                proxy_use.give_back(connection, {block_id: 0})

    def _recover(self, proxy_id: int, actor: str) -> bool:
        with self._database.session() as connection:
            recovered = proxies.recover(connection, proxy_id, actor=actor)
            if recovered:
                proxy_pools.let_go_on(connection, proxy_id)
        return recovered


def _fault(result: FetchResult) -> str | None:
    if result.fault is not None:
        return str(ProxyFault(result.fault))
    return "site" if result.status is None else None
