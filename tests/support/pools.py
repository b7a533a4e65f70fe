"""Short ways to put proxies, pools and what went through them into a test's database."""

from dataclasses import dataclass
from typing import Any, Final

import psycopg

from holdfast.model.proxy import Protocol, ProxyMode, ProxyServer
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries.proxies import SealedProxy
from holdfast.proxies.records import Assignment, ProxyOptions
from tests.support.factories import Store

WHO: Final = "test:me"
_FAIL: Final = """
UPDATE {table} SET failure_count = %(times)s, is_active = %(times)s < %(off)s, last_error = 'refused', last_failure_at = now(),
    disabled_by = CASE WHEN %(times)s >= %(off)s THEN 'health' END, next_try_at = now() + proxy_pause(%(times)s, %(first)s, '1 day')
WHERE {key} = %(id)s
"""


@dataclass(frozen=True)
class Pools:
    """The proxies of a test's database."""

    store: Store

    @property
    def connection(self) -> psycopg.Connection:
        return self.store.connection

    def add(self, count: int = 1, **options: Any) -> list[int]:
        """Proxies at one host, each on a port of its own."""
        known = int(str(self.store.value("SELECT count(*) FROM proxies")))
        servers = [ProxyServer(Protocol.HTTP, "proxy.example", 1 + known + number) for number in range(count)]
        new = [SealedProxy(server, None, ProxyOptions(**options)) for server in servers]
        made = [proxies.add(self.connection, one, actor=WHO) for one in new]
        return [one for one in made if one is not None]

    def assign(
        self, domain: str, *ids: int, priority: int | None = None, default: ProxyMode = ProxyMode.DIRECT
    ) -> Assignment:
        return proxy_pools.assign(self.connection, domain, ids, default=default, actor=WHO, priority=priority)

    def used(self, domain: str, proxy_id: int, **columns: object) -> None:
        """What workers write of a proxy that a domain has used."""
        names = ", ".join(columns)
        news = ", ".join(f"{name} = excluded.{name}" for name in columns)
        self.connection.execute(
            f"INSERT INTO domain_proxies (domain_id, proxy_id, assigned, last_used_at, {names})"
            f" SELECT id, %(proxy)s, false, now(), {', '.join(f'%({name})s' for name in columns)} FROM domains WHERE domain = %(domain)s"
            f" ON CONFLICT (domain_id, proxy_id) DO UPDATE SET last_used_at = now(), {news}",
            {"domain": domain, "proxy": proxy_id, **columns},
        )

    def fails(self, proxy_id: int, times: int) -> None:
        """So many failures in a row, which are the proxy's."""
        query = _FAIL.format(table="proxies", key="id")
        self.connection.execute(query, {"times": times, "off": 10, "id": proxy_id, "first": "30 s"})

    def is_refused(self, proxy_id: int, times: int) -> None:
        """So many refusals in a row, by every domain that has it in its pool."""
        query = _FAIL.format(table="domain_proxies", key="proxy_id")
        self.connection.execute(query, {"times": times, "off": 5, "id": proxy_id, "first": "10 min"})

    def used_up(self, proxy_id: int) -> None:
        """Nothing is left of its limit for half an hour."""
        self.connection.execute(
            "INSERT INTO proxy_blocks (proxy_id, counts_until, requests)"
            " SELECT id, now() + interval '30 min', max_requests_per_hour FROM proxies WHERE id = %s",
            (proxy_id,),
        )

    def wait(self, domain: str, minutes: int = 10) -> None:
        """Let a domain wait, as a release does that found no proxy."""
        self.connection.execute(
            "UPDATE job_domains SET ready = false, not_before = now() + %s * interval '1 min'"
            " FROM domains d WHERE d.id = domain_id AND d.domain = %s",
            (minutes, domain),
        )
