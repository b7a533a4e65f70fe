"""Requests about proxies and the pools of domains."""

from collections.abc import Sequence
from typing import Final, Unpack

import httpx

from holdfast.client.decoding import read
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, document, format_path, if_match, no_body
from holdfast.proxies.records import (
    Assignment,
    NewProxy,
    NextProxy,
    PoolHealth,
    ProviderCost,
    Proxy,
    ProxyChanges,
    ProxyCost,
    ProxyMapping,
    ProxyTest,
)

_PROXY_TEST_SECONDS: Final = 120.0
"""Seconds to wait for the test of a proxy; the server's own limit (`fetch.timeout`) is shorter by default."""


def proxies(
    *, active: bool | None = None, provider: str | None = None, country: str | None = None, order: str = "oldest"
) -> ListSpec[Proxy]:
    """Proxies, without their passwords. The order is `oldest` or `newest`."""
    filters = {"active": active, "provider": provider, "country": country, "order": order}
    return ListSpec("/api/proxies", Proxy, filters)


def proxy(proxy: int) -> RequestSpec[Proxy]:
    """One proxy."""
    return RequestSpec("GET", format_path("/api/proxies/{}", proxy), decode_one(Proxy))


def proxy_pools(proxy: int) -> ListSpec[ProxyMapping]:
    """The pools that a proxy is in, by domain."""
    return ListSpec(format_path("/api/proxies/{}/domains", proxy), ProxyMapping, {})


def add_proxy(**proxy: Unpack[NewProxy]) -> RequestSpec[Proxy]:
    """Add a proxy, by its `url` or by its parts. Its password is stored sealed, and never returned."""
    return RequestSpec("POST", "/api/admin/proxies", decode_one(Proxy), body=proxy)


def edit_proxy(proxy: int, *, version: int | None = None, **changes: Unpack[ProxyChanges]) -> RequestSpec[Proxy]:
    """Change a proxy. With `version`: only if there was no other change since that version."""
    path = format_path("/api/admin/proxies/{}", proxy)
    return RequestSpec("PATCH", path, decode_one(Proxy), body=changes, headers=if_match(version))


def enable_proxy(proxy: int) -> RequestSpec[Proxy]:
    """Enable a proxy, and reset its failures."""
    return RequestSpec("POST", format_path("/api/admin/proxies/{}/enable", proxy), decode_one(Proxy))


def disable_proxy(proxy: int) -> RequestSpec[Proxy]:
    """Disable a proxy, until it is enabled."""
    return RequestSpec("POST", format_path("/api/admin/proxies/{}/disable", proxy), decode_one(Proxy))


def delete_proxy(proxy: int) -> RequestSpec[None]:
    """Delete a proxy with its membership in pools and its statistics."""
    return RequestSpec("DELETE", format_path("/api/admin/proxies/{}", proxy), no_body)


def test_proxy(proxy: int, *, url: str | None = None) -> RequestSpec[ProxyTest]:  # noqa: PT028 — not a test of ours
    """Test a proxy by a request for `url` (by default http://example.com/) through it."""
    return RequestSpec(
        "POST",
        format_path("/api/admin/proxies/{}/test", proxy),
        decode_one(ProxyTest),
        body=None if url is None else {"url": url},
        read_timeout=_PROXY_TEST_SECONDS,
    )


def pools_health() -> ListSpec[PoolHealth]:
    """The pools of all domains in numbers, by name."""
    return ListSpec("/api/proxies/health", PoolHealth, {})


def proxy_costs() -> ListSpec[ProxyCost]:
    """The cost of each proxy."""
    return ListSpec("/api/proxies/cost", ProxyCost, {})


def provider_costs() -> RequestSpec[list[ProviderCost]]:
    """The cost of the proxies of each provider."""

    def read_providers(response: httpx.Response) -> list[ProviderCost]:
        return read(list[ProviderCost], document(response)["providers"])

    return RequestSpec("GET", "/api/proxies/cost", read_providers, {"limit": 1})


def pool(domain: str) -> ListSpec[ProxyMapping]:
    """The pool of a domain in the order of use, followed by other proxies that it has used."""
    return ListSpec(format_path("/api/domains/{}/proxies", domain), ProxyMapping, {})


def pool_health(domain: str) -> RequestSpec[PoolHealth]:
    """The pool of a domain in numbers."""
    return RequestSpec("GET", format_path("/api/domains/{}/proxies/health", domain), decode_one(PoolHealth))


def next_proxy(domain: str) -> RequestSpec[NextProxy]:
    """The proxy of the next request to a domain, and the reason."""
    return RequestSpec("GET", format_path("/api/domains/{}/proxies/next", domain), decode_one(NextProxy))


def assign_proxies(domain: str, proxies: Sequence[int], *, priority: int | None = None) -> RequestSpec[Assignment]:
    """Assign proxies to a domain, at most 1000, with a priority from 1 (first) to 10."""
    body = {"proxy_ids": list(proxies), "priority": priority}
    path = format_path("/api/admin/domains/{}/proxies", domain)
    return RequestSpec("POST", path, decode_one(Assignment), body=body)


def edit_pool_proxy(
    domain: str,
    proxy: int,
    *,
    priority: int | None = None,
    is_active: bool | None = None,
    version: int | None = None,
) -> RequestSpec[ProxyMapping]:
    """Change the priority of a proxy in the pool of a domain, or enable or disable it there. With `version`: only if
    there was no other change since that version."""
    return RequestSpec(
        "PATCH",
        format_path("/api/admin/domains/{}/proxies/{}", domain, proxy),
        decode_one(ProxyMapping),
        body={"priority": priority, "is_active": is_active},
        headers=if_match(version),
    )


def unassign_proxy(domain: str, proxy: int) -> RequestSpec[None]:
    """Remove a proxy from the pool of a domain."""
    return RequestSpec("DELETE", format_path("/api/admin/domains/{}/proxies/{}", domain, proxy), no_body)
