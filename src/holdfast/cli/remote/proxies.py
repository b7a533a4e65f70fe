"""Proxies and pools of a server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.client import Client, endpoints
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import Refused
from holdfast.model.cursor import encode_cursor
from holdfast.model.proxy import ParsedProxy, ProxyServer
from holdfast.proxies.records import (
    AddedProxy,
    Assignment,
    PoolHealth,
    ProviderCost,
    Proxy,
    ProxyCost,
    ProxyFilter,
    ProxyMapping,
    ProxyOptions,
    ProxyTest,
    Unassignment,
)
from holdfast.proxies.service import only_match

_MAX_ASSIGNED: Final = 1000
"""The number of proxies that one request assigns."""


@dataclass(frozen=True, slots=True)
class RemoteProxies:
    """The methods of `ProxyService` and `ProxyTester` that the API has. The server records the user of the API key, not `actor`."""

    client: Client

    def add(self, parsed: ParsedProxy, options: ProxyOptions, *, actor: str) -> AddedProxy:  # noqa: ARG002 — see above; likewise below
        """Add a proxy; a known one stays as it is."""
        server = parsed.server
        body: dict[str, Any] = {**asdict(server), "password": parsed.password, **asdict(options)}
        try:
            added = self.client.add_proxy(**body)
        except Refused:
            known = [proxy for proxy in self._with_address(server) if proxy.username == server.username]
            if not known:
                raise
            return AddedProxy(known[0].id, known[0].server, created=False)
        return AddedProxy(added.id, added.server, created=True)

    def find(self, reference: int | ProxyServer) -> int:
        """Return the id of the proxy that a reference names."""
        if isinstance(reference, int):
            return reference
        found = self._with_address(reference)
        return only_match(reference, [proxy.id for proxy in found if reference.username in (None, proxy.username)])

    def _with_address(self, server: ProxyServer) -> list[Proxy]:
        return [proxy for proxy in self.client.proxies() if proxy.server == str(server)]

    def page(self, where: ProxyFilter, *, after: Key | None, limit: int) -> Page[Proxy]:
        """Return one page of proxies, by id."""
        cursor = None if after is None else encode_cursor(after)
        return Page(self.client.ask(endpoints.proxies(**asdict(where)).page(cursor, limit))[0], None)

    def matching(self, *, provider: str | None = None, country: str | None = None) -> list[int]:
        """Return the ids of all proxies of a provider, in a country, or both."""
        return [proxy.id for proxy in self.client.proxies(provider=provider, country=country)]

    def show(self, proxy_id: int) -> Proxy:
        """Return one proxy."""
        return self.client.proxy(proxy_id)

    def edit(
        self,
        proxy_id: int,
        changes: Mapping[str, Any],
        *,
        actor: str,  # noqa: ARG002
        password: str | None = None,
        version: int | None = None,
    ) -> Proxy:
        """Change options of a proxy, or its password (empty: it has none). Returns the changed proxy."""
        body = {**changes} if password is None else {**changes, "password": password}
        return self.client.edit_proxy(proxy_id, version=version, **body)

    def switch(self, proxy_id: int, *, on: bool, actor: str) -> bool:  # noqa: ARG002
        """Enable or disable a proxy; returns whether anything changed."""
        before = self.client.proxy(proxy_id)
        after = self.client.enable_proxy(proxy_id) if on else self.client.disable_proxy(proxy_id)
        return after.version != before.version

    def remove(self, proxy_id: int, *, actor: str) -> None:  # noqa: ARG002
        """Delete a proxy."""
        self.client.delete_proxy(proxy_id)

    def test(
        self,
        proxy_ids: Sequence[int],
        url: str,
        *,
        actor: str,  # noqa: ARG002
        progress: Callable[[ProxyTest], None],
    ) -> list[ProxyTest]:
        """Request `url` through each of these proxies, one after another."""
        results = []
        for proxy_id in proxy_ids:
            results.append(self.client.test_proxy(proxy_id, url=url))
            progress(results[-1])
        return results

    # Pools

    def assign(self, domain: str, proxy_ids: Sequence[int], *, actor: str, priority: int | None = None) -> Assignment:  # noqa: ARG002
        """Add proxies to the pool of a domain; more than `_MAX_ASSIGNED` by several requests."""
        first, rest = proxy_ids[:_MAX_ASSIGNED], proxy_ids[_MAX_ASSIGNED:]
        done = self.client.assign_proxies(domain, first, priority=priority)
        while rest:
            first, rest = rest[:_MAX_ASSIGNED], rest[_MAX_ASSIGNED:]
            more = self.client.assign_proxies(domain, first, priority=priority)
            for name in ("added", "changed", "unchanged"):
                getattr(done, name).extend(getattr(more, name))
        return done

    def unassign(self, domain: str, proxy_ids: Sequence[int] | None, *, actor: str) -> Unassignment:  # noqa: ARG002
        """Remove proxies, or all of them (None), from the pool of a domain."""
        assigned = {mapping.proxy_id for mapping in self.client.pool(domain) if mapping.assigned}
        chosen = assigned if proxy_ids is None else set(proxy_ids)
        for proxy_id in sorted(assigned & chosen):
            self.client.unassign_proxy(domain, proxy_id)
        return Unassignment(domain, sorted(assigned & chosen), sorted(chosen - assigned), len(assigned - chosen))

    def edit_mapping(self, domain: str, proxy_id: int, *, actor: str, on: bool) -> ProxyMapping:  # noqa: ARG002
        """Enable or disable a proxy in the pool of a domain. Returns the changed mapping."""
        return self.client.edit_pool_proxy(domain, proxy_id, is_active=on)

    def pool(self, domain: str) -> list[ProxyMapping]:
        """Return the pool of a domain."""
        return list(self.client.pool(domain))

    # Reports

    def pool_health(self, domain: str) -> PoolHealth:
        """Return the pool of one domain in numbers."""
        return self.client.pool_health(domain)

    def health(self, *, after: str, limit: int) -> list[PoolHealth]:
        """Return the pools of domains in numbers, by name."""
        return self.client.ask(endpoints.pools_health().page(encode_cursor((after,)), limit))[0]

    def costs(self, *, after: int, limit: int) -> list[ProxyCost]:
        """Return the cost of each proxy, by id."""
        return self.client.ask(endpoints.proxy_costs().page(encode_cursor((after,)), limit))[0]

    def provider_costs(self) -> list[ProviderCost]:
        """Return the cost of the proxies of each provider."""
        return self.client.provider_costs()
