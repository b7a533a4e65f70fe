"""Proxies and the pools of domains: add, list, show, edit, enable, disable, remove; assign, unassign; health, alerts, cost, advice.

The rule: a password is sealed before it is stored, and no method returns one. Every change is recorded in the audit log with its author
(`actor`). Tests by requests to the web are in `proxies/tester`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Final, Self

from holdfast.control.secret_box import SecretBox
from holdfast.db import domains, request_secrets
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import HoldfastError, NotFound, Refused, SettingsError, UsageError
from holdfast.fetch.address_filter import refusal_reason
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import (
    DEFAULT_BUFFER,
    ParsedProxy,
    ProxyMode,
    ProxyServer,
    check_password,
    parse_proxy,
    proxies_needed,
)
from holdfast.proxies.queries import pools, proxies, reports
from holdfast.proxies.queries.proxies import SealedProxy
from holdfast.proxies.records import (
    FIRST_PRIORITY,
    LAST_PRIORITY,
    AddedProxy,
    Advice,
    Assignment,
    NextProxy,
    PoolAlerts,
    PoolHealth,
    ProviderCost,
    Proxy,
    ProxyCost,
    ProxyFilter,
    ProxyMapping,
    ProxyOptions,
    Unassignment,
)
from holdfast.settings import Settings

DEFAULT_EACH: Final = 20.0
"""Requests an hour that a site accepts from one address, by default."""

_CHUNK: Final = 500
_MAX_ID: Final = 2**63 - 1
_MAX_REQUESTS: Final = 2**31 - 1
_MAX_COST: Final = Decimal("99999999.99")
_WAKES_DOMAINS: Final = frozenset({"country_code", "max_requests_per_hour", "allow_private", "proxy_password"})
"""Columns whose change may make a proxy usable again."""


@dataclass(slots=True)
class Rotation:
    """The progress of a key rotation."""

    seen: int = 0
    resealed: int = 0
    failed: list[int] = field(default_factory=list)
    """Proxies whose passwords no key opens."""
    failed_secrets: list[str] = field(default_factory=list)
    """Jobs and domains whose headers, cookies or logins no key opens."""
    problem: str | None = None
    """The reason, for one of them."""


@dataclass(frozen=True, slots=True)
class ProxyService:
    """The proxies and pools of one database."""

    database: Database
    secrets: SecretBox
    default: ProxyMode = ProxyMode.DIRECT
    """The mode of domains without a mode of their own."""
    direct: bool = False
    """Whether requests may go without a proxy when none is usable, for domains without a value of their own."""
    registrable: bool = False

    @classmethod
    def of(cls, settings: Settings, database: Database) -> Self:
        """The service with these settings."""
        mode = ProxyMode(settings.proxies.use)
        secrets = SecretBox.of(settings)
        return cls(database, secrets, mode, settings.proxies.direct, settings.domains.registrable)

    # For crawls

    def unreadable_passwords(self, *, limit: int = 1000) -> tuple[int, str]:
        """Return the number of proxies whose passwords no key opens, among the first `limit`, and the reason."""
        count, why = 0, ""
        with self.database.session() as connection:
            tokens = proxies.tokens(connection, after=0, limit=limit)
        for _, token in tokens:
            try:
                self.secrets.open(token)
            except SettingsError as problem:
                count, why = count + 1, str(problem)
        return count, why

    def without_a_proxy(self, job_id: int) -> list[str]:
        """Return domains on which a job waits for a usable proxy; of many, some of them."""
        with self.database.session() as connection:
            return pools.without_a_proxy(connection, job_id, default=self.default, direct=self.direct)

    # Adding

    def add(self, parsed: ParsedProxy, options: ProxyOptions, *, actor: str) -> AddedProxy:
        """Add a proxy; a known one stays as it is."""
        new = self.sealed(parsed, options)
        with self.database.session() as connection:
            added = proxies.add(connection, new, actor=actor)
            found = [added] if added else proxies.find(connection, parsed.server, exactly=True)
        if not found:
            raise Refused(f"{parsed.server} was known, and has been removed at this moment; add it again.")
        return AddedProxy(found[0], str(parsed.server), added is not None)

    def sealed(self, parsed: ParsedProxy, options: ProxyOptions) -> SealedProxy:
        """Return a proxy as it is stored. Raises UsageError for invalid options."""
        check_options(options)
        check_address(parsed.server, allow_private=options.allow_private)
        token = None if parsed.password is None else self._seal(parsed.password)
        return SealedProxy(parsed.server, token, options)

    def _seal(self, password: str) -> str:
        """Seal a password. If other passwords are sealed and their key is missing, no new key is generated in its place."""
        if not self.secrets.keys():
            with self.database.session() as connection:
                if proxies.tokens(connection, after=0, limit=1):
                    raise Refused(
                        f"Other passwords are sealed by a key that is not in {self.secrets.place}. Put it back there, or set "
                        "HOLDFAST_SECRET_KEY; `holdfast proxies new-key` makes one if it is lost for good."
                    )
        return self.secrets.seal(password)

    # Looking up

    def find(self, reference: int | ProxyServer) -> int:
        """Return the id of the proxy that a reference (see `parse_reference`) names. Raises NotFound, or Refused if several match."""
        if isinstance(reference, int):
            return reference
        with self.database.session() as connection:
            return only_match(reference, proxies.find(connection, reference))

    def page(
        self, where: ProxyFilter | None = None, *, order: str = "oldest", after: Key | None = None, limit: int = 100
    ) -> Page[Proxy]:
        """Return one page of proxies, by id; `after` is the `next` of the page before."""
        check_page_size(limit)
        with self.database.session() as connection:
            return proxies.page(connection, where or ProxyFilter(), order=order, after=after, limit=limit)

    def matching(self, *, provider: str | None = None, country: str | None = None) -> list[int]:
        """Return the ids of all proxies of a provider, in a country, or both."""
        with self.database.session() as connection:
            return proxies.ids(connection, provider=provider, country=country)

    def show(self, proxy_id: int) -> Proxy:
        """Return one proxy. Raises NotFound."""
        with self.database.session() as connection:
            return proxies.get(connection, proxy_id)

    # Changing

    def edit(
        self,
        proxy_id: int,
        changes: Mapping[str, object],
        *,
        actor: str,
        password: str | None = None,
        version: int | None = None,
    ) -> Proxy:
        """Change options of a proxy (fields of `ProxyOptions`), or its password (empty: it has none). Returns the changed proxy."""
        check_password(password or "")
        before = self.show(proxy_id)
        options = {name: getattr(before, name) for name in asdict(ProxyOptions())} | dict(changes)
        check_options(ProxyOptions(**options))
        if "allow_private" in changes:
            check_address(before.address, allow_private=bool(changes["allow_private"]))
        columns = dict(changes)
        if password is not None:
            if password and before.username is None:
                raise Refused(f"Proxy {proxy_id} has no user that a password could go with: add it again with one.")
            columns["proxy_password"] = self._seal(password) if password else None
        with self.database.session() as connection:
            after = proxies.edit(connection, proxy_id, columns, actor=actor, version=version)
            if password is not None and proxies.recover(connection, proxy_id, actor=actor):
                after = proxies.get(connection, proxy_id)  # the old password may have been the cause of its failures
            if _WAKES_DOMAINS & columns.keys():
                pools.wake_domains(connection, proxy_id)
        return after

    def switch(self, proxy_id: int, *, on: bool, actor: str) -> bool:
        """Enable a proxy and reset its failures, or disable it; returns whether anything changed."""
        with self.database.session() as connection:
            changed = proxies.switch(connection, proxy_id, on=on, actor=actor)
            if changed and on:
                pools.wake_domains(connection, proxy_id)
        return changed

    def remove(self, proxy_id: int, *, actor: str) -> None:
        """Delete a proxy with its mappings and their statistics."""
        with self.database.session() as connection:
            proxies.remove(connection, proxy_id, actor=actor)

    def rotate(self, *, actor: str, progress: Callable[[Rotation], None] = lambda _: None) -> Rotation:
        """Reseal all secrets with the newest key: passwords of proxies, and headers, cookies and logins of jobs and domains. An interrupted
        rotation keeps its result; the next call does the rest."""
        done, after = Rotation(), 0
        with self.database.session() as connection:
            while chunk := proxies.tokens(connection, after=after, limit=_CHUNK):
                sealed = [(proxy_id, old, new) for proxy_id, old in chunk if (new := self._reseal(proxy_id, old, done))]
                done.resealed += proxies.reseal(connection, sealed, actor=actor)
                done.seen += len(chunk)
                after = chunk[-1][0]
                progress(done)
            for token in request_secrets.tokens(connection):
                self._reseal_secret(connection, token, done)
                progress(done)
        return done

    def _reseal_secret(self, connection: Connection, token: request_secrets.Token, done: Rotation) -> None:
        done.seen += 1
        if self.secrets.is_newest(token.sealed):
            return
        try:
            resealed = self.secrets.seal(self.secrets.open(token.sealed))
            done.resealed += request_secrets.reseal(connection, token, resealed)
        except HoldfastError as problem:
            done.failed_secrets.append(f"{token.owner} {token.id} ({token.kind})")
            done.problem = str(problem)

    def _reseal(self, proxy_id: int, token: str, done: Rotation) -> str | None:
        """Return the token under the newest key; None: it has the newest key already, or no key opens it."""
        if self.secrets.is_newest(token):
            return None
        try:
            return self.secrets.seal(self.secrets.open(token))
        except HoldfastError as problem:
            done.failed.append(proxy_id)
            done.problem = str(problem)
            return None

    # Pools

    def assign(self, domain: str, proxy_ids: Sequence[int], *, actor: str, priority: int | None = None) -> Assignment:
        """Add proxies to the pool of a domain."""
        _check_priority(priority)
        name = self.canonical(domain)
        with self.database.session() as connection:
            return pools.assign(connection, name, proxy_ids, default=self.default, actor=actor, priority=priority)

    def unassign(self, domain: str, proxy_ids: Sequence[int] | None, *, actor: str) -> Unassignment:
        """Remove proxies, or all of them (None), from the pool of a domain."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            return pools.unassign(connection, name, proxy_ids, actor=actor)

    def edit_mapping(
        self,
        domain: str,
        proxy_id: int,
        *,
        actor: str,
        priority: int | None = None,
        on: bool | None = None,
        version: int | None = None,
    ) -> ProxyMapping:
        """Change the priority of a proxy in the pool of a domain, or enable or disable it there. Returns the changed mapping."""
        _check_priority(priority)
        name = self.canonical(domain)
        with self.database.session() as connection:
            return pools.edit(connection, name, proxy_id, actor=actor, priority=priority, on=on, version=version)

    def pool(self, domain: str) -> list[ProxyMapping]:
        """Return the pool of a domain in the order of use, followed by other proxies that it has used."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            return pools.listing(connection, name)

    def pools_of(self, proxy_id: int, *, after: str = "", limit: int = 100) -> list[ProxyMapping]:
        """Return the pools that a proxy is in, by domain; `after` is the last domain of the page before. Raises NotFound."""
        check_page_size(limit)
        with self.database.session() as connection:
            return pools.pools_of(connection, proxy_id, after=after, limit=limit)

    def next(self, domain: str) -> NextProxy:
        """Return the proxy that the next request to a domain would go through, as far as the database knows, and the reason."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            domain_id = domains.id_of(connection, name)
            return pools.next_for(connection, domain_id, name, default=self.default, direct=self.direct)

    # Reports

    def pool_health(self, domain: str) -> PoolHealth:
        """Return the pool of one domain in numbers; zeros if it has none."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            return reports.health_of(connection, name, default=self.default)

    def health(self, *, after: str = "", limit: int = 100) -> list[PoolHealth]:
        """Return the pools of domains in numbers, by name; `after` is the last name of the previous page."""
        check_page_size(limit)
        with self.database.session() as connection:
            return reports.health(connection, default=self.default, after=after, limit=limit)

    def alerts(
        self,
        *,
        min_active: int = reports.MIN_ACTIVE,
        max_percent: float = reports.MAX_FAILURE_PERCENT,
        after: str = "",
        limit: int = 100,
    ) -> PoolAlerts:
        """Return domains with fewer active proxies than `min_active`, and with more failures than `max_percent`; each list by name."""
        check_page_size(limit)
        with self.database.session() as connection:
            return PoolAlerts(
                reports.few_active(connection, default=self.default, min_active=min_active, after=after, limit=limit),
                reports.many_failures(
                    connection, default=self.default, max_percent=max_percent, after=after, limit=limit
                ),
            )

    def costs(self, *, after: int = 0, limit: int = 100) -> list[ProxyCost]:
        """Return the cost of each proxy, by id; `after` is the last id of the previous page."""
        check_page_size(limit)
        with self.database.session() as connection:
            return reports.costs(connection, after=after, limit=limit)

    def provider_costs(self) -> list[ProviderCost]:
        """Return the cost of the proxies of each provider."""
        with self.database.session() as connection:
            return reports.provider_costs(connection)

    def canonical(self, name: str) -> str:
        """Return the domain of a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)


def advise(urls_per_hour: float, each_per_hour: float = DEFAULT_EACH, buffer: float = DEFAULT_BUFFER) -> Advice:
    """Return the number of proxies that a domain needs for `urls_per_hour`."""
    return Advice(urls_per_hour, each_per_hour, buffer, proxies_needed(urls_per_hour, each_per_hour, buffer))


def parse_reference(text: str) -> int | ProxyServer:
    """Parse the id of a proxy, or SCHEME://USER@HOST:PORT. Raises UsageError, also if there is a password."""
    if text.isascii() and text.isdigit():
        if not (len(text) < 20 and 0 < int(text) <= _MAX_ID):
            raise UsageError(f"The id of a proxy is a number from 1 to {_MAX_ID}.")
        return int(text)
    parsed = parse_proxy(text)
    if parsed.password is not None:
        raise UsageError("A proxy is named by its id, or as SCHEME://USER@HOST:PORT without its password.")
    return parsed.server


def only_match(server: ProxyServer, ids: Sequence[int]) -> int:
    """Return the only id of the proxies with this address. Raises NotFound if there is none, Refused if there are several."""
    if not ids:
        raise NotFound(f"There is no proxy {server}; `holdfast proxies list` shows those that are known.")
    if len(ids) > 1:
        raise Refused(f"{server} is known with several users: name it by its id, {' or '.join(map(str, ids))}.")
    return ids[0]


def check_options(options: ProxyOptions) -> None:
    """Raise UsageError for invalid options. The message does not repeat a value: a column of a file may be a password by mistake."""
    country = options.country_code
    if country is not None and not (
        len(country) == 2 and country.isascii() and country.isalpha() and country.isupper()
    ):
        raise UsageError("A country is a code of two letters, such as DE.")
    for what, text in (("city", options.city), ("provider", options.provider)):
        if text is not None and not (0 < len(text) <= 100 and text.isprintable()):
            raise UsageError(f"A {what} is 1 to 100 characters on one line.")
    cost = options.monthly_cost
    if cost is not None and not (cost.is_finite() and 0 <= cost <= _MAX_COST):
        raise UsageError(f"A monthly cost is a number from 0 to {_MAX_COST}.")
    limit = options.max_requests_per_hour
    if limit is not None and not 0 < limit <= _MAX_REQUESTS:
        raise UsageError(f"A limit is a whole number of requests an hour, from 1 to {_MAX_REQUESTS}.")


def check_address(server: ProxyServer, *, allow_private: bool) -> None:
    """Raise UsageError for an address that is not public, unless `allow_private`. Names are checked when they are connected to."""
    host = server.host.strip("[]")
    if allow_private or not (":" in host or host.rpartition(".")[2].isdigit()):
        return
    why = refusal_reason(host)
    if why is not None:
        raise UsageError(f"{server.host} is not an address of the public internet ({why}); `allow_private` permits it.")


def _check_priority(priority: int | None) -> None:
    if priority is not None and not FIRST_PRIORITY <= priority <= LAST_PRIORITY:
        raise UsageError(f"A priority is a number from {FIRST_PRIORITY} (first) to {LAST_PRIORITY}.")
