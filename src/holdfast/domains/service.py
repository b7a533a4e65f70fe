"""Domains: list, show, configure, reset, unblock, remove, recalculate priorities."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.control.parsers import check_known
from holdfast.control.request_secrets import SecretSealer, names_of_domain
from holdfast.db import audit, domain_removal, domains, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.domains import queries
from holdfast.domains.records import (
    Domain,
    DomainAction,
    DomainColumns,
    DomainDetails,
    DomainFacts,
    DomainFilter,
    DomainReset,
    MaintenanceWindow,
    MatchingDomains,
    RemovalPreview,
    RobotsFile,
    StoredRobots,
    Tenure,
    Transition,
    WindowFilter,
)
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.activity import DelaySource
from holdfast.model.domain import Status
from holdfast.model.domain_name import canonical_domain
from holdfast.model.duration import parse as parse_duration
from holdfast.model.maintenance_window import MaintenanceWindows
from holdfast.model.proxy import ProxyMode
from holdfast.model.request_secrets import SECRET_KEYS, RequestSecrets, check_user_agent, domain_origins
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import check_parameter_names
from holdfast.politeness.robots_txt import PRODUCT, Robots, product_token
from holdfast.settings import Parsing
from holdfast.sitemaps import queries as sitemap_queries
from holdfast.sitemaps.service import lastmod_trust

KIND: Final = "domain"
_DEFAULTS: Final = NewDomains()
_DAY: Final = 86_400
_CHUNK: Final = 500
"""Domains that are looked up at once to change them."""
_MAX_PARAMETERS: Final = 100
_MAX_SITEMAPS: Final = 100
"""Sitemaps of a robots.txt that are shown."""
_WORDS: Final = {
    "yes": True,
    "true": True,
    "on": True,
    "1": True,
    "no": False,
    "false": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, slots=True)
class AddedDomain:
    """The result of `add`."""

    domain: str
    created: bool
    """False: it existed already, and is unchanged."""


@dataclass(frozen=True, slots=True)
class ChangedDomains:
    """The result of `change_matching`."""

    changed: int
    skipped: int
    """Domains that were removed, or no longer fitted the action, when their turn came."""


@dataclass(frozen=True, slots=True)
class DomainService:
    """The domains of one database."""

    database: Database
    registrable: bool = False
    defaults: NewDomains = _DEFAULTS
    """The configuration of domains that `add` creates."""
    sealer: SecretSealer | None = None
    """Seals secrets; needed to set any."""
    parsing: Parsing | None = None
    """Where parsers are found; None: the name of a parser is not checked."""
    user_agent: str = PRODUCT
    """The user agent of domains without an own one."""

    # Lists. In each, `after` is the `next` of the page before.

    def page(
        self, where: DomainFilter | None = None, *, order: str = "name", after: Key | None = None, limit: int = 100
    ) -> Page[Domain]:
        """Return one page of domains, in an order of `queries.DOMAINS`. Raises UsageError."""
        return self._page(queries.DOMAINS, (where or DomainFilter()).given(), order, after, limit)

    def transitions(self, name: str, *, after: Key | None = None, limit: int = 100) -> Page[Transition]:
        """Return one page of the changes of a domain's status, newest first. Raises UsageError, NotFound."""
        return self._page(queries.TRANSITIONS, {"domain": self.canonical(name)}, "newest", after, limit)

    def tenures(self, name: str, *, after: Key | None = None, limit: int = 100) -> Page[Tenure]:
        """Return one page of the workers that held a domain, newest first. Raises UsageError, NotFound."""
        return self._page(queries.TENURES, {"domain": self.canonical(name)}, "newest", after, limit)

    def windows(
        self, where: WindowFilter | None = None, *, after: Key | None = None, limit: int = 100
    ) -> Page[MaintenanceWindow]:
        """Return one page of the domains with maintenance windows, by name. Raises UsageError."""
        return self._page(queries.WINDOWS, (where or WindowFilter()).given(), "name", after, limit)

    def _page(
        self, listing: Listing[Any], filters: Mapping[str, object], order: str, after: Key | None, limit: int
    ) -> Page[Any]:
        check_page_size(limit)
        listing.order(order).check(after)
        with self.database.session() as connection:
            if "domain" in filters:
                filters = {"domain": domains.id_of(connection, str(filters["domain"]))}
            return listing.page(connection, filters, order=order, after=after, limit=limit)

    def recent(self, status: Status | None, limit: int) -> Sequence[Domain]:
        """Return domains with all their columns, the last crawled first."""
        with self.database.session() as connection:
            return queries.recent(connection, status=status, limit=limit)

    def top(self, limit: int) -> Sequence[Domain]:
        """Return domains with all their columns, those with the most stored images per page first."""
        with self.database.session() as connection:
            return queries.by_yield(connection, limit=limit)

    def counts(self) -> dict[str, int]:
        """Count domains by status; every status is named."""
        with self.database.session() as connection:
            return dict.fromkeys(Status, 0) | domains.counts(connection)

    # One domain

    def info(self, name: str) -> DomainFacts:
        """Return everything about a domain. Raises NotFound."""
        with self.database.session() as connection:
            found = queries.get(connection, self.canonical(name))
            return DomainFacts(
                domain=found.domain,
                version=found.version,
                status=found.status,
                facts=self._details(connection, found),
                work=queries.work_of(connection, found.id),
                transitions=queries.transitions_of(connection, found.id),
                tenures=queries.tenures_of(connection, found.id),
                sitemaps=sitemap_queries.of_domain(connection, found.id),
                lastmod=lastmod_trust(connection, found.id),
            )

    def _details(self, connection: Connection, found: DomainColumns) -> DomainDetails:
        """Add the names of secrets and the delay in force: as the last visit found it, or as the domain is configured by now."""
        delay, source = found.pace_delay_seconds, found.pace_delay_source
        own = found.crawl_delay_seconds
        slower = source in (DelaySource.ROBOTS, DelaySource.LEARNT) and delay is not None and delay > own
        if delay is None or source is None or not (source == DelaySource.JOB or slower):
            delay, source = own, DelaySource.DEFAULT if own == self.defaults.crawl_delay else DelaySource.DOMAIN
        secrets = names_of_domain(connection, found.id)
        return DomainDetails(**asdict(found), secrets=secrets, delay_in_force_seconds=delay, delay_source=source)

    def robots(self, name: str) -> list[RobotsFile]:
        """Return the robots.txt of each origin of a domain that was requested, with the lines that count for our user agent. Raises
        NotFound."""
        with self.database.session() as connection:
            found = queries.get(connection, self.canonical(name))
            agent = product_token(found.user_agent or self.user_agent)
            return [_with_applied_lines(file, agent) for file in queries.robots_of(connection, found.id)]

    def add(
        self,
        name: str,
        changes: Mapping[str, object] | None = None,
        *,
        actor: str,
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> AddedDomain:
        """Create a domain with this configuration (see `configure`) and no URL to crawl; one that exists is unchanged."""
        seed = make_seed(name, registrable=self.registrable)
        self._check(seed.domain, changes or {})
        with self.database.session() as connection, connection.transaction():
            created = queries.add(connection, seed, defaults=self.defaults)
            details: Mapping[str, object] = {}
            if created:
                if changes or secrets:
                    row = queries.edit(connection, seed.domain, changes or {})
                    details = self._set_secrets(connection, row, secrets, plain_http=plain_http)
                self._record(connection, actor, "add", seed.domain, {**(changes or {}), **details})
        return AddedDomain(seed.domain, created)

    def preview_removal(self, name: str) -> RemovalPreview:
        """Count what `remove` would delete, and say whether it would be refused now. Raises NotFound."""
        with self.database.session() as connection:
            found = queries.get(connection, self.canonical(name))
            work = queries.work_of(connection, found.id)
            pages = queries.pages_of(connection, found.id)
            problem = domain_removal.problem(connection, found.domain)
        return RemovalPreview(found.domain, sum(one.discovered for one in work), pages, len(work), problem)

    def remove(self, name: str, *, actor: str) -> domain_removal.Removed:
        """Remove a domain, which is quick: no query finds it any more. `forget` deletes its rows. Raises Refused while it is in use.

        The log, the tenures and the archive keep what was fetched from it. Its name may be seen again, as that of a new domain.
        """
        with self.database.session() as connection, connection.transaction():
            removed = domain_removal.remove(connection, self.canonical(name))
            self._record(connection, actor, "remove", removed.domain, {"id": removed.id})
        return removed

    def forget(self, domain_id: int, progress: Callable[[int], None] = lambda _: None) -> None:
        """Delete the rows of a removed domain in chunks: URLs, pages, tasks, products, its place in pools.

        What an interruption leaves, the sweep of a worker deletes. `progress` is called with the number of rows deleted so far.
        """
        total = 0
        with self.database.session() as connection:
            while (deleted := domain_removal.delete_chunk(connection, domain_id)) is not None:
                total += deleted
                progress(total)

    def reset(self, name: str, why: str, *, actor: str) -> DomainReset:
        """Reset a domain, from any status; a worker that holds it is fenced off. Raises NotFound."""
        with self.database.session() as connection:
            with connection.transaction():
                before = queries.get(connection, self.canonical(name))
                queries.reset(connection, before.domain, why=why)
                details = {"why": why, "was": before.status, "was_held_by": before.claimed_by}
                self._record(connection, actor, "reset", before.domain, details)
            return self._restarted(connection, before, before.claimed_by)

    def unblock(self, name: str, why: str, *, actor: str) -> DomainReset:
        """Try a blocked or unreachable domain again; only URLs that wait, were refused or not reached are crawled. Raises Refused if
        it is neither."""
        with self.database.session() as connection:
            with connection.transaction():
                before = queries.get(connection, self.canonical(name))
                queries.unblock(connection, before.domain, why=why)
                details = {"why": why, "was": before.status, "code": before.block_reason_code}
                self._record(connection, actor, "unblock", before.domain, details)
            return self._restarted(connection, before, None)

    def _restarted(self, connection: Connection, before: DomainColumns, was_held_by: str | None) -> DomainReset:
        """Make a domain ready after a reset, and count its URLs. Before: the reset is committed."""
        sweeper.fold_wakes_now(connection, before.id)
        waiting = sum(work.waiting for work in queries.work_of(connection, before.id))
        return DomainReset(before.domain, before.status, was_held_by, waiting)

    # Many domains

    def count_matching(self, action: DomainAction, where: DomainFilter) -> MatchingDomains:
        """Count the domains that `change_matching` would change, up to `queries.COUNT_LIMIT`. Raises UsageError."""
        with self.database.session() as connection:
            count, held, exact = queries.count_matching(connection, _matching(action, where))
        return MatchingDomains(action, count, held, exact)

    def change_matching(
        self,
        action: DomainAction,
        where: DomainFilter,
        why: str,
        *,
        actor: str,
        known_at: datetime | None = None,
        again: bool = False,
        watch: Callable[[int], None] = lambda _: None,
    ) -> ChangedDomains:
        """Apply an action to every domain that matches a filter, each in a transaction of its own. Raises UsageError.

        Domains that were found after `known_at` stay as they are. `again`: this call repeats one that was interrupted, so domains that
        were reset or unblocked since `known_at` are left out. `watch` is called with the number of domains so far.
        """
        filters = _matching(action, where)
        if known_at is not None:
            filters["known_at"] = known_at
            if again and action is DomainAction.RESET:
                filters["not_retried_since"] = known_at
        changed = skipped = 0
        after: Key | None = None
        while True:
            with self.database.session() as connection:
                found = queries.matching(connection, filters, after=after, limit=_CHUNK)
            for name in found.rows:
                try:
                    self._apply(action, name, why, actor=actor)
                    changed += 1
                except (NotFound, Refused):  # it was removed or changed meanwhile
                    skipped += 1
                watch(changed)
            if found.next is None:
                return ChangedDomains(changed, skipped)
            after = found.next

    def _apply(self, action: DomainAction, name: str, why: str, *, actor: str) -> None:
        if action is DomainAction.RESET:
            self.reset(name, why, actor=actor)
        elif action is DomainAction.UNBLOCK:
            self.unblock(name, why, actor=actor)
        else:
            self.configure(name, {"is_active": action is DomainAction.SWITCH_ON}, actor=actor)

    # Configuration

    def configure(
        self,
        name: str,
        changes: Mapping[str, object],
        version: int | None = None,
        *,
        actor: str,
        settings_version: int | None = None,
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> DomainDetails:
        """Change columns of a domain's configuration (see `parse_assignments`) and the secrets that are sent to it; returns the domain.
        With `version` only if it was not changed since that version, else Changed; with `settings_version` only if no operator has edited
        it since that one.

        `plain_http`: the secrets are sent over http, too. After: a worker that visits the domain applies it within two seconds.
        """
        self._check(self.canonical(name), changes)
        with self.database.session() as connection, connection.transaction():
            after = queries.edit(
                connection, self.canonical(name), changes, version=version, settings_version=settings_version
            )
            details = self._set_secrets(connection, after, secrets, plain_http=plain_http)
            self._record(connection, actor, "edit", after.domain, {**changes, **details})
            return self._details(connection, after)

    def _check(self, domain: str, changes: Mapping[str, object]) -> None:
        """Raise UsageError for the base URL of another domain, and for an unknown parser, as `crawl --parser` does."""
        base_url = changes.get("base_url")
        if isinstance(base_url, str) and (other := self.canonical(base_url)) != domain:
            raise UsageError(f"{base_url} is a URL of {other}, not of {domain}.")
        parser = changes.get("parser_name")
        if self.parsing is not None and isinstance(parser, str):
            check_known(parser, self.parsing)

    def _set_secrets(
        self, connection: Connection, row: Domain, secrets: RequestSecrets | None, *, plain_http: bool
    ) -> dict[str, object]:
        """Change a domain's secrets; returns their details for the audit log."""
        if not secrets:
            return {}
        assert self.sealer is not None  # noqa: S101 — set wherever secrets are accepted
        origins = domain_origins(row.domain, plain_http=plain_http)
        names = self.sealer.give_domain(connection, row.id, secrets, origins)
        return {"secrets": ", ".join(names), "secrets_for": ", ".join(origins)}

    def recalculate(self) -> Iterator[tuple[int, int, int]]:
        """Rewrite all scores in chunks; yields after each (domains read, scores changed, all domains)."""
        with self.database.session() as connection:
            total = sum(domains.counts(connection).values())
            seen = changed = 0
            for read, rewritten in queries.recalculate(connection):
                seen += read
                changed += rewritten
                yield seen, changed, total

    def canonical(self, name: str) -> str:
        """The canonical name of a domain, from a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)

    def _record(
        self, connection: Connection, actor: str, action: str, domain: str, details: Mapping[str, object]
    ) -> None:
        values = {
            key: value if isinstance(value, str | int | float | bool | None) else str(value)
            for key, value in details.items()
        }
        audit.write(connection, actor=actor, action=action, kind=KIND, object_id=domain, details=values)


def _matching(action: DomainAction, where: DomainFilter) -> dict[str, object]:
    """The filters of the domains that an action changes: those that match, and are not in the requested state already."""
    needed: dict[DomainAction, dict[str, object]] = {
        DomainAction.RESET: {},
        DomainAction.UNBLOCK: {"stopped": True},
        DomainAction.SWITCH_OFF: {"active": True},
        DomainAction.SWITCH_ON: {"inactive": True},
    }
    return {**where.given(), **needed[action]}


def _with_applied_lines(file: StoredRobots, agent: str) -> RobotsFile:
    """Add which lines of a robots.txt count for an agent."""
    if file.content is None:
        return RobotsFile(**asdict(file), agent=agent)
    robots = Robots(file.content, max_crawl_delay=math.inf)
    applied = robots.applied_lines(agent)
    return RobotsFile(
        **asdict(file),
        agent=agent,
        group=applied.group,
        applied_lines=list(applied.numbers),
        crawl_delay_seconds=robots.crawl_delay(agent),
        sitemaps=list(robots.sitemaps()[:_MAX_SITEMAPS]),
    )


def parse_assignments(words: Sequence[str]) -> dict[str, object]:
    """Parse `crawl_delay_seconds=2 is_active=no …` into columns and values; short forms are in `ALIASES`. Raises UsageError."""
    return read_assignments(words, KEYS, ALIASES, what="a domain", all_keys=ALL_KEYS)


def read_assignments(
    words: Sequence[str],
    readers: Mapping[str, Callable[[str], object]],
    aliases: Mapping[str, str],
    *,
    what: str,
    all_keys: str,
) -> dict[str, object]:
    """Parse `key=value …` into names and values, each with its reader, which raises ValueError for an invalid value."""
    changes: dict[str, object] = {}
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        column = aliases.get(key, key)
        if not equals or column not in readers:
            # The value is not repeated: after a misspelt key (headers=, password=) it may be a secret.
            shown = re.split("[=:]", word, maxsplit=1)[0]
            raise UsageError(f"{shown!r} is not a setting of {what}; write key=value with one of: {all_keys}.")
        try:
            read = readers[column](value.strip())
        except ValueError as problem:
            raise UsageError(f"{word!r} cannot be set: {key} {problem}.") from problem
        if column in changes and changes[column] != read:
            both = f"{keys[column]} and {key} are the same setting" if keys[column] != key else f"{key} is given twice"
            raise UsageError(f"{both}, with different values: give one of them.")
        changes[column], keys[column] = read, key
    if not changes:
        raise UsageError(f"Say what to set: key=value with one of: {all_keys}.")
    return changes


def _delay(text: str) -> float:
    seconds = parse_duration(text).total_seconds()
    if seconds > _DAY:
        raise ValueError("must be at most a day")
    return seconds


def _whole(minimum: int, maximum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return int(text)

    return read


def _word(text: str) -> str:
    if not re.fullmatch(r"[\w.-]{1,100}", text):
        raise ValueError("must be one word of letters, digits, dots and dashes")
    return text


def _user_agent(text: str) -> str | None:
    return check_user_agent(text) if text else None


def _yes_or_no(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError("must be yes or no")
    return _WORDS[text.lower()]


def _window(text: str) -> str | None:
    """The window as it was written, with single spaces. Raises UsageError for an invalid one."""
    MaintenanceWindows.parse(text)
    return " ".join(text.split()) or None


def _parameters(text: str) -> list[str] | None:
    names = list(dict.fromkeys(name for name in text.replace(",", " ").split() if name))
    if len(names) > _MAX_PARAMETERS:
        raise ValueError(f"must be at most {_MAX_PARAMETERS} names")
    check_parameter_names(names)
    return names or None


def _proxy_use(text: str) -> str | None:
    if text and text not in set(ProxyMode):
        raise ValueError(f"must be {', '.join(ProxyMode)} or empty")
    return text or None


def _optional_yes_or_no(text: str) -> bool | None:
    return _yes_or_no(text) if text else None


def _country(text: str) -> str | None:
    if text and not re.fullmatch(r"[A-Za-z]{2}", text):
        raise ValueError("must be a code of two letters, such as DE, or empty")
    return text.upper() or None


def _sticky(text: str) -> timedelta | None:
    if not text:
        return None
    span = parse_duration(text)
    if not timedelta(0) < span <= timedelta(seconds=_DAY):
        raise ValueError("must be more than 0s and at most a day, or empty")
    return span


def _parser(text: str) -> str | None:
    """None removes the parser: then crawls have none."""
    return _word(text) if text else None


def _budget(text: str) -> int | None:
    return _whole(1, 2**31 - 1)(text) if text else None


def _base_url(text: str) -> str:
    """The origin: scheme, host and port. `DomainService` checks that the host is the domain's."""
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise ValueError("must begin with http:// or https://")
    return make_seed(text).base_url


KEYS: Final[Mapping[str, Callable[[str], object]]] = {
    "crawl_delay_seconds": _delay,
    "max_concurrent_requests": _whole(1, 1000),
    "parser_name": _parser,
    "user_agent": _user_agent,
    "is_active": _yes_or_no,
    "max_pages_per_run": _budget,
    "default_crawl_frequency": parse_duration,
    "maintenance_window": _window,
    "base_url": _base_url,
    "strip_params": _parameters,
    "proxy_use": _proxy_use,
    "proxy_direct": _optional_yes_or_no,
    "proxy_resolves": _optional_yes_or_no,
    "proxy_country": _country,
    "proxy_sticky": _sticky,
}
"""The settings of a domain by column, with the reader of each. The API and `domains info --json` show them under the same names."""
ALIASES: Final[Mapping[str, str]] = {
    "delay": "crawl_delay_seconds",
    "concurrency": "max_concurrent_requests",
    "parser": "parser_name",
    "active": "is_active",
    "budget": "max_pages_per_run",
    "frequency": "default_crawl_frequency",
    "window": "maintenance_window",
    "proxy": "proxy_use",
}
"""Short forms, in commands and in bodies of the API."""
_SHORT: Final = {column: alias for alias, column in ALIASES.items()}
ALL_KEYS: Final = ", ".join(f"{key} ({_SHORT[key]})" if key in _SHORT else key for key in (*KEYS, *SECRET_KEYS))
"""All keys with their short forms, for messages."""
