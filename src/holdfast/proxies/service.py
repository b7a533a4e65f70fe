"""What people do with proxies: make them known, look at them, change them, put them into the pools of domains.

The rule: a password is sealed before the store sees it, and nothing here gives one back. Everything that changes something says who did
it (`actor`). What needs the web is in `proxies/tester`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, Self

from holdfast.control.secret_box import Safe
from holdfast.db import request_secrets
from holdfast.db.connection import Connection, Database
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
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries import reports as proxy_reports
from holdfast.proxies.queries.pools import Assigned, Unassigned
from holdfast.proxies.queries.pools import Mapping as PoolMapping
from holdfast.proxies.queries.proxies import Facts, NewProxy, Proxy
from holdfast.proxies.queries.reports import Cost, FewActive, Health, ManyFailures, ProviderCost
from holdfast.settings import Settings

PAGE: Final = 500
"""The most that a list gives at once."""
FIRST_PRIORITY: Final = 1
LAST_PRIORITY: Final = 10
EACH: Final = 20.0
"""Requests an hour that a site bears from one address, where nobody knows better."""

_CHUNK: Final = 500
_LAST_ID: Final = 2**63 - 1
_MOST_REQUESTS: Final = 2**31 - 1
_MOST_COST: Final = Decimal("99999999.99")
_LETS_GO_ON: Final = frozenset({"country_code", "max_requests_per_hour", "allow_private", "proxy_password"})


@dataclass(frozen=True, slots=True)
class Added:
    """A proxy that was to be made known."""

    id: int
    server: str
    created: bool
    """False: it was known, and is as it was."""


@dataclass(slots=True)
class Rotated:
    """How far a rotation is."""

    seen: int = 0
    resealed: int = 0
    failed: list[int] = field(default_factory=list)
    """Proxies whose passwords no key opens."""
    failed_secrets: list[str] = field(default_factory=list)
    """Jobs and domains whose headers, cookies or logins no key opens."""
    problem: str | None = None
    """Why, for one of them."""


@dataclass(frozen=True, slots=True)
class Alerts:
    """Domains to look after."""

    few_active: list[FewActive]
    many_failures: list[ManyFailures]


@dataclass(frozen=True, slots=True)
class Advice:
    """How many proxies a domain needs."""

    urls_per_hour: float
    each_per_hour: float
    buffer: float
    needed: int
    domain: str | None = None
    active: int | None = None
    """Those that it has."""


@dataclass(frozen=True, slots=True)
class ProxyService:
    """Proxies of one store, as the command line, the API and the dashboard handle them."""

    database: Database
    safe: Safe
    usual: ProxyMode = ProxyMode.DIRECT
    """What domains use that say nothing."""
    registrable: bool = False

    @classmethod
    def of(cls, settings: Settings, database: Database) -> Self:
        """As the settings say."""
        return cls(database, Safe.of(settings), ProxyMode(settings.proxies.use), settings.domains.registrable)

    # For whoever crawls

    def locked(self, *, limit: int = 1000) -> tuple[int, str]:
        """How many proxies have passwords that no key of ours opens, among the first so many, and why."""
        count, why = 0, ""
        with self.database.session() as connection:
            tokens = proxies.tokens(connection, after=0, limit=limit)
        for _, token in tokens:
            try:
                self.safe.open(token)
            except SettingsError as problem:
                count, why = count + 1, str(problem)
        return count, why

    def without_a_proxy(self, job_id: int, *, direct: bool) -> list[str]:
        """Domains, some of them if they are many, on which a job waits for a proxy that can be used."""
        with self.database.session() as connection:
            return proxy_reports.without_a_proxy(connection, job_id, usual=self.usual, direct=direct)

    # Making them known

    def add(self, written: ParsedProxy, facts: Facts, *, actor: str) -> Added:
        """Make a proxy known; one that is stays as it is."""
        new = self.sealed(written, facts)
        with self.database.session() as connection:
            made = proxies.add(connection, new, actor=actor)
            found = [made] if made else proxies.find(connection, written.server, exactly=True)
        if not found:
            raise Refused(f"{written.server} was known, and has been removed at this moment; add it again.")
        return Added(found[0], str(written.server), made is not None)

    def sealed(self, written: ParsedProxy, facts: Facts) -> NewProxy:
        """A proxy as it goes into the store. Raises UsageError for one that cannot be meant."""
        check(facts)
        check_place(written.server, allow_private=facts.allow_private)
        token = None if written.password is None else self._seal(written.password)
        return NewProxy(written.server, token, facts)

    def _seal(self, password: str) -> str:
        """A password as it is stored. Where some are sealed already, no new key is made in place of one that is not there."""
        if not self.safe.known():
            with self.database.session() as connection:
                if proxies.tokens(connection, after=0, limit=1):
                    raise Refused(
                        f"Other passwords are sealed by a key that is not in {self.safe.where}. Put it back there, or set "
                        "HOLDFAST_SECRET_KEY; `holdfast proxies new-key` makes one if it is lost for good."
                    )
        return self.safe.seal(password)

    # Looking

    def find(self, named: int | ProxyServer) -> int:
        """The proxy that a person means (see `named`). One that is known with several users is named with one, or by its id."""
        if isinstance(named, int):
            return named
        with self.database.session() as connection:
            ids = proxies.find(connection, named)
        if not ids:
            raise NotFound(f"There is no proxy {named}; `holdfast proxies list` shows those that are known.")
        if len(ids) > 1:
            raise Refused(f"{named} is known with several users: name it by its id, {' or '.join(map(str, ids))}.")
        return ids[0]

    def listing(
        self,
        *,
        active: bool | None = None,
        provider: str | None = None,
        country: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Proxy]:
        """Proxies in the order of their ids; `after` is the last one seen."""
        _check_page(limit)
        with self.database.session() as connection:
            return proxies.listing(
                connection, active=active, provider=provider, country=country, after=after, limit=limit
            )

    def matching(self, *, provider: str | None = None, country: str | None = None) -> list[int]:
        """All proxies of a provider, in a country, or both, by their ids."""
        with self.database.session() as connection:
            return proxies.ids(connection, provider=provider, country=country)

    def show(self, proxy_id: int) -> Proxy:
        """One proxy."""
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
        """Change what is said of a proxy (columns of `Facts`), or give it another password, empty for none; the proxy afterwards."""
        check_password(password or "")
        before = self.show(proxy_id)
        facts = {name: getattr(before, name) for name in Facts.__dataclass_fields__} | dict(changes)
        check(Facts(**facts))
        if "allow_private" in changes:
            check_place(before.server, allow_private=bool(changes["allow_private"]))
        columns = dict(changes)
        if password is not None:
            if password and before.username is None:
                raise Refused(f"Proxy {proxy_id} has no user that a password could go with: add it again with one.")
            columns["proxy_password"] = self._seal(password) if password else None
        with self.database.session() as connection:
            after = proxies.edit(connection, proxy_id, columns, actor=actor, version=version)
            if password is not None and proxies.recover(connection, proxy_id, actor=actor):
                after = proxies.get(connection, proxy_id)  # it may have failed for its password alone
            if _LETS_GO_ON & columns.keys():
                proxy_pools.let_go_on(connection, proxy_id)
        return after

    def switch(self, proxy_id: int, *, on: bool, actor: str) -> bool:
        """Let a proxy be used, with its failures forgotten, or by nobody; False if nothing changed."""
        with self.database.session() as connection:
            changed = proxies.switch(connection, proxy_id, on=on, actor=actor)
            if changed and on:
                proxy_pools.let_go_on(connection, proxy_id)
        return changed

    def remove(self, proxy_id: int, *, actor: str) -> None:
        """Forget a proxy, its place in pools and what it did there."""
        with self.database.session() as connection:
            proxies.remove(connection, proxy_id, actor=actor)

    def rotate(self, *, actor: str, progress: Callable[[Rotated], None] = lambda _: None) -> Rotated:
        """Seal everything that is sealed with the newest key: passwords of proxies, and headers, cookies and logins of jobs and domains.
        What was done before an interruption stays, and the next call does the rest."""
        done, after = Rotated(), 0
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

    def _reseal_secret(self, connection: Connection, token: request_secrets.Token, done: Rotated) -> None:
        done.seen += 1
        if self.safe.is_newest(token.sealed):
            return
        try:
            done.resealed += request_secrets.reseal(connection, token, self.safe.seal(self.safe.open(token.sealed)))
        except HoldfastError as problem:
            done.failed_secrets.append(f"{token.owner} {token.id} ({token.kind})")
            done.problem = str(problem)

    def _reseal(self, proxy_id: int, token: str, done: Rotated) -> str | None:
        """The token under the newest key; None: it is, or cannot be opened."""
        if self.safe.is_newest(token):
            return None
        try:
            return self.safe.seal(self.safe.open(token))
        except HoldfastError as problem:
            done.failed.append(proxy_id)
            done.problem = str(problem)
            return None

    # Pools

    def assign(self, domain: str, proxy_ids: Sequence[int], *, actor: str, priority: int | None = None) -> Assigned:
        """Put proxies into the pool of a domain."""
        _check_priority(priority)
        name = self.canonical(domain)
        with self.database.session() as connection:
            return proxy_pools.assign(connection, name, proxy_ids, usual=self.usual, actor=actor, priority=priority)

    def unassign(self, domain: str, proxy_ids: Sequence[int] | None, *, actor: str) -> Unassigned:
        """Take proxies, or all of them (None), out of the pool of a domain."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            return proxy_pools.unassign(connection, name, proxy_ids, actor=actor)

    def edit_mapping(
        self,
        domain: str,
        proxy_id: int,
        *,
        actor: str,
        priority: int | None = None,
        on: bool | None = None,
        version: int | None = None,
    ) -> PoolMapping:
        """Change a proxy's place in the pool of a domain, or switch it on or off there; the place afterwards."""
        _check_priority(priority)
        name = self.canonical(domain)
        with self.database.session() as connection:
            return proxy_pools.edit(connection, name, proxy_id, actor=actor, priority=priority, on=on, version=version)

    def pool(self, domain: str, *, limit: int = proxy_pools.MOST) -> list[PoolMapping]:
        """The pool of a domain, and what else it has used."""
        name = self.canonical(domain)
        with self.database.session() as connection:
            return proxy_pools.listing(connection, name, limit=limit)

    # From above

    def health(self, *, after: str = "", limit: int = 100) -> list[Health]:
        """The pools of domains in numbers, by name; `after` is the last one seen."""
        _check_page(limit)
        with self.database.session() as connection:
            return proxy_reports.health(connection, usual=self.usual, after=after, limit=limit)

    def alerts(
        self,
        *,
        fewest: int = proxy_reports.FEWEST,
        most: float = proxy_reports.MOST_FAILURES,
        after: str = "",
        limit: int = 100,
    ) -> Alerts:
        """Domains with fewer active proxies than `fewest`, and those with more failures than `most` per cent; each list by name."""
        _check_page(limit)
        with self.database.session() as connection:
            return Alerts(
                proxy_reports.few_active(connection, usual=self.usual, fewest=fewest, after=after, limit=limit),
                proxy_reports.many_failures(connection, usual=self.usual, most=most, after=after, limit=limit),
            )

    def costs(self, *, after: int = 0, limit: int = 100) -> list[Cost]:
        """What each proxy costs, in the order of their ids; `after` is the last one seen."""
        _check_page(limit)
        with self.database.session() as connection:
            return proxy_reports.costs(connection, after=after, limit=limit)

    def provider_costs(self) -> list[ProviderCost]:
        """What the proxies of each provider cost."""
        with self.database.session() as connection:
            return proxy_reports.provider_costs(connection)

    def advise(
        self, urls_per_hour: float, *, domain: str, each_per_hour: float = EACH, buffer: float = DEFAULT_BUFFER
    ) -> Advice:
        """How many proxies a domain needs for so many URLs an hour, and how many it has."""
        advice = advise(urls_per_hour, each_per_hour, buffer)
        name = self.canonical(domain)
        with self.database.session() as connection:
            return replace(advice, domain=name, active=proxy_reports.active(connection, name))

    def canonical(self, name: str) -> str:
        """The domain that a person means by a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)


def advise(urls_per_hour: float, each_per_hour: float = EACH, buffer: float = DEFAULT_BUFFER) -> Advice:
    """How many proxies any domain needs for so many URLs an hour."""
    return Advice(urls_per_hour, each_per_hour, buffer, proxies_needed(urls_per_hour, each_per_hour, buffer))


def named(name: str) -> int | ProxyServer:
    """What a person means by an id or by SCHEME://USER@HOST:PORT. Raises UsageError; a password is not to be in it."""
    if name.isascii() and name.isdigit():
        if not (len(name) < 20 and 0 < int(name) <= _LAST_ID):
            raise UsageError(f"The id of a proxy is a number from 1 to {_LAST_ID}.")
        return int(name)
    written = parse_proxy(name)
    if written.password is not None:
        raise UsageError("A proxy is named by its id, or as SCHEME://USER@HOST:PORT without its password.")
    return written.server


def check(facts: Facts) -> None:
    """Raise UsageError for what cannot be meant, with nothing of it: in a file a column may be another than one thinks."""
    country = facts.country_code
    if country is not None and not (
        len(country) == 2 and country.isascii() and country.isalpha() and country.isupper()
    ):
        raise UsageError("A country is a code of two letters, such as DE.")
    for what, text in (("city", facts.city), ("provider", facts.provider)):
        if text is not None and not (0 < len(text) <= 100 and text.isprintable()):
            raise UsageError(f"A {what} is 1 to 100 characters on one line.")
    cost = facts.monthly_cost
    if cost is not None and not (cost.is_finite() and 0 <= cost <= _MOST_COST):
        raise UsageError(f"A monthly cost is a number from 0 to {_MOST_COST}.")
    limit = facts.max_requests_per_hour
    if limit is not None and not 0 < limit <= _MOST_REQUESTS:
        raise UsageError(f"A limit is a whole number of requests an hour, from 1 to {_MOST_REQUESTS}.")


def check_place(server: ProxyServer, *, allow_private: bool) -> None:
    """Raise UsageError for an address that is not public, unless somebody has said that this is meant. Names are looked at later."""
    host = server.host.strip("[]")
    if allow_private or not (":" in host or host.rpartition(".")[2].isdigit()):
        return
    why = refusal_reason(host)
    if why is not None:
        raise UsageError(
            f"{server.host} is not an address of the public internet ({why}); `allow_private` says that this is meant."
        )


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE:
        raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")


def _check_priority(priority: int | None) -> None:
    if priority is not None and not FIRST_PRIORITY <= priority <= LAST_PRIORITY:
        raise UsageError(f"A priority is a number from {FIRST_PRIORITY} (first) to {LAST_PRIORITY}.")
