"""Tests of proxies by a real request through each of them.

The rule: a successful test enables a proxy again that had failed too often; a failed one does not count as a failure of the proxy, since
the URL may be the cause. A test counts against the limit of the proxy like any other request.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

from holdfast.control.secret_box import SecretBox
from holdfast.db import proxy_usage
from holdfast.db.connection import Database
from holdfast.errors import SettingsError
from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.proxy import ProxyFault, ProxyRoute
from holdfast.proxies.queries import pools, proxies
from holdfast.proxies.records import Proxy, ProxyTest
from holdfast.settings import Settings, render_duration

DEFAULT_URL: Final = "http://example.com/"
_CONCURRENCY: Final = 16
_MAX_BYTES: Final = 64 * 1024
"""The number of bytes of a response that are read."""


class ProxyTester:
    """Tests proxies of one database."""

    def __init__(self, database: Database, settings: Settings, agent: str) -> None:
        self._database = database
        self._settings = settings
        self._agent = agent
        self._secrets = SecretBox.of(settings)

    def test(
        self,
        proxy_ids: Sequence[int],
        url: str = DEFAULT_URL,
        *,
        actor: str,
        progress: Callable[[ProxyTest], None] = lambda _: None,
    ) -> list[ProxyTest]:
        """Request `url` through each of these proxies, several at once. Returns the results in the order of the ids. Raises NotFound."""
        return asyncio.run(self._test(proxy_ids, url, actor, progress))

    async def _test(
        self, proxy_ids: Sequence[int], url: str, actor: str, progress: Callable[[ProxyTest], None]
    ) -> list[ProxyTest]:
        slots = asyncio.Semaphore(_CONCURRENCY)
        async with AsyncExitStack() as opened:
            resolver = await opened.enter_async_context(Resolver(self._settings.fetch))
            client = await opened.enter_async_context(HttpClient(self._settings.fetch, resolver))

            async def test(proxy_id: int) -> ProxyTest:
                async with slots:
                    result = await self._test_one(client, proxy_id, url, actor)
                    progress(result)
                    return result

            return list(await asyncio.gather(*map(test, proxy_ids)))

    async def _test_one(self, client: HttpClient, proxy_id: int, url: str, actor: str) -> ProxyTest:
        prepared = await asyncio.to_thread(self._prepare, proxy_id)
        if isinstance(prepared, ProxyTest):
            return prepared
        route, block_id = prepared
        request = FetchRequest(
            url,
            self._agent,
            any_type=True,
            max_bytes=_MAX_BYTES,
            cut=True,
            allow_private=self._settings.fetch.allow_private,
            route=route,
        )
        result = await client.fetch(request)
        works = result.status is not None and result.fault is None
        if result.status is None and result.fault is None:  # it was not sent
            await asyncio.to_thread(self._give_back, block_id)
            result.detail = f"nothing was sent, for the site cannot be asked: {result.detail or result.outcome}"
        return ProxyTest(
            proxy_id,
            str(route.server),
            works=works,
            problem=None if works else result.detail or str(result.outcome),
            fault=_fault(result),
            status=result.status,
            seconds=round(result.duration, 3),
            recovered=works and await asyncio.to_thread(self._recover, proxy_id, actor),
        )

    def _prepare(self, proxy_id: int) -> tuple[ProxyRoute, int | None] | ProxyTest:
        """Return the route through a proxy, and its share of the limit; or the failed test if it cannot be used now."""
        with self._database.session() as connection:
            proxy = proxies.get(connection, proxy_id)
            token = proxies.token(connection, proxy_id)
            try:
                password = None if token is None else self._secrets.open(token)
            except SettingsError as problem:
                return _not_sent(proxy, str(problem))
            hold = self._settings.fetch.timeout + timedelta(seconds=1)
            block = proxy_usage.take_block(connection, proxy_id, 1, hold=hold, hour=self._settings.proxies.period)
            if block.requests == 0:
                wait = render_duration(timedelta(seconds=round(block.wait)))
                return _not_sent(proxy, f"Its limit is used up; it can be asked again in {wait} at the latest.")
        return ProxyRoute(proxy_id, proxy.address, password, proxy.allow_private), block.id

    def _give_back(self, block_id: int | None) -> None:
        if block_id is not None:
            with self._database.session() as connection:
                proxy_usage.give_back(connection, {block_id: 0})

    def _recover(self, proxy_id: int, actor: str) -> bool:
        with self._database.session() as connection:
            recovered = proxies.recover(connection, proxy_id, actor=actor)
            if recovered:
                pools.wake_domains(connection, proxy_id)
        return recovered


def _not_sent(proxy: Proxy, problem: str) -> ProxyTest:
    return ProxyTest(
        proxy.id, proxy.server, works=False, problem=problem, fault=None, status=None, seconds=None, recovered=False
    )


def _fault(result: FetchResult) -> str | None:
    if result.fault is not None:
        return str(ProxyFault(result.fault))
    return "site" if result.status is None else None
