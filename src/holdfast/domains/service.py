"""What people do with domains: look, configure, start over, put in order."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.control.parsers import check_known
from holdfast.control.request_secrets import SecretSealer, names_of_domain
from holdfast.db import audit, domain_removal, domains, explain, jobs, operator_reports, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.model.domain_name import canonical_domain
from holdfast.model.duration import parse as parse_duration
from holdfast.model.maintenance_window import MaintenanceWindows
from holdfast.model.proxy import ProxyMode
from holdfast.model.request_secrets import RequestSecrets, check_user_agent, domain_origins
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import check_parameter_names
from holdfast.model.wait import DelaySource
from holdfast.settings import Parsing

KIND: Final = "domain"
_STANDARD: Final = NewDomains()
_DAY: Final = 86_400
_MOST_PARAMETERS: Final = 100
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
class ResetReport:
    """What a reset or an un-block did."""

    domain: str
    was: str
    was_held_by: str | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Known:
    """A domain that was to be made known."""

    domain: str
    created: bool
    """False: it was known, and is as it was."""


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """The robots.txt of one origin of a domain, as it was had the last time."""

    url: str
    origin: str
    status: int | None
    """Of the answer; None: there was none."""
    content: str | None
    """None: there is none, which allows everything; or, not reachable, there never was one."""
    reachable: bool
    """False: it could not be had the last time, and the content, if any, is of the time before."""
    problem: str | None
    fetched_at: datetime | None
    fresh_until: datetime | None
    fresh: bool
    """It need not be asked for again yet."""


@dataclass(frozen=True, slots=True)
class DomainService:
    """Domains of one store, as the command line, the API and the dashboard handle them."""

    database: Database
    registrable: bool = False
    defaults: NewDomains = _STANDARD
    """How those are treated that are made known here."""
    sealer: SecretSealer | None = None
    """Needed where secrets are given."""
    parsing: Parsing | None = None
    """Where parsers are found; None: a parser that a person names is not looked for."""

    def listing(self, status: Status | None, limit: int) -> list[dict[str, Any]]:
        """Domains, the ones crawled last first."""
        with self.database.session() as connection:
            return domains.listing(connection, status=status, limit=limit)

    def top(self, limit: int) -> list[dict[str, Any]]:
        """Domains by the images that a page of them yields."""
        with self.database.session() as connection:
            return domains.listing(connection, status=None, limit=limit, by_yield=True)

    def counts(self) -> dict[str, int]:
        """How many domains are in each status; every status is named."""
        with self.database.session() as connection:
            return dict.fromkeys(Status, 0) | domains.counts(connection)

    def info(self, name: str) -> dict[str, Any]:
        """Everything about one domain."""
        with self.database.session() as connection:
            row = domains.get(connection, self.canonical(name))
            return row | {
                "work": operator_reports.work_of(connection, row["id"]),
                "transitions": operator_reports.transitions_of(connection, row["id"]),
                "tenures": operator_reports.tenures_of(connection, row["id"]),
                "secrets": names_of_domain(connection, row["id"]),
                **self._delay_in_force(row),
            }

    def _delay_in_force(self, row: Mapping[str, Any]) -> dict[str, object]:
        """The delay between two requests and what it comes from: as the last visit found it, or as the domain says by now."""
        own, last, source = row["crawl_delay_seconds"], row["pace_delay_seconds"], row["pace_delay_source"]
        if source == DelaySource.JOB or (source in (DelaySource.ROBOTS, DelaySource.LEARNT) and last > own):
            return {"delay_in_force_seconds": last, "delay_source": source}
        source = DelaySource.DEFAULT if own == self.defaults.crawl_delay else DelaySource.DOMAIN
        return {"delay_in_force_seconds": own, "delay_source": source}

    def robots(self, name: str) -> list[RobotsFile]:
        """The robots.txt of each origin of a domain that was asked for one."""
        with self.database.session() as connection:
            rows = explain.robots_of(connection, domains.id_of(connection, self.canonical(name)))
            now = jobs.now(connection)
        return [
            RobotsFile(
                url=row["url"],
                origin=row["url"].removesuffix("/robots.txt"),
                status=row["status"],
                content=row["content"],
                reachable=row["reachable"],
                problem=row["problem"],
                fetched_at=row["fetched_at"],
                fresh_until=row["expires_at"],
                fresh=row["expires_at"] is not None and row["expires_at"] > now,
            )
            for row in rows
        ]

    def add(
        self,
        name: str,
        changes: Mapping[str, object] | None = None,
        *,
        actor: str,
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> Known:
        """Make a domain known, configured so (see `configure`), without a URL to crawl; one that is known stays as it is."""
        seed = make_seed(name, registrable=self.registrable)
        self._check(seed.domain, changes or {})
        with self.database.session() as connection, connection.transaction():
            created = domains.add(connection, seed, defaults=self.defaults)
            given: Mapping[str, object] = {}
            if created:
                if changes or secrets:
                    row = domains.edit(connection, seed.domain, changes or {})
                    given = self._give(connection, row, secrets, plain_http=plain_http)
                self._record(connection, actor, "add", seed.domain, {**(changes or {}), **given})
        return Known(seed.domain, created)

    def bury(self, name: str, *, actor: str) -> domain_removal.Removed:
        """Remove a domain, which is short: nobody finds it any more. Refused while somebody works on it. `forget` is the other half.

        The log, the tenures and the archive keep what was asked of its server. Its name may be met again, as that of a new domain.
        """
        with self.database.session() as connection, connection.transaction():
            removed = domain_removal.remove(connection, self.canonical(name))
            self._record(connection, actor, "remove", removed.domain, {"id": removed.id})
        return removed

    def forget(self, domain_id: int, watch: Callable[[int], None] = lambda _: None) -> None:
        """Forget what a removed domain had: URLs, pages, tasks, products, its place in pools. Takes as long as that is much.

        What this cannot finish, the sweep of a worker does. `watch` hears how many rows have gone so far.
        """
        total = 0
        with self.database.session() as connection:
            while (gone := domain_removal.delete_chunk(connection, domain_id)) is not None:
                total += gone
                watch(total)

    def reset(self, name: str, why: str, *, actor: str) -> ResetReport:
        """Start a domain over, from any status; a worker that holds it is fenced off."""
        with self.database.session() as connection:
            with connection.transaction():
                before = domains.get(connection, self.canonical(name))
                domain_id = domains.reset(connection, before["domain"], why=why)
                details = {"why": why, "was": before["status"], "was_held_by": before["claimed_by"]}
                self._record(connection, actor, "reset", before["domain"], details)
            sweeper.fold_wakes_now(connection, domain_id)
            work = operator_reports.work_of(connection, domain_id)
        return ResetReport(
            before["domain"], before["status"], before["claimed_by"], sum(row["waiting"] for row in work)
        )

    def unblock(self, name: str, why: str, *, actor: str) -> ResetReport:
        """Let a blocked or unreachable domain be tried again; only URLs that wait or were refused are crawled. Refused if it is neither."""
        with self.database.session() as connection:
            with connection.transaction():
                before = domains.get(connection, self.canonical(name))
                domain_id = domains.unblock(connection, before["domain"], why=why)
                details = {"why": why, "was": before["status"], "code": before["block_reason_code"]}
                self._record(connection, actor, "unblock", before["domain"], details)
            sweeper.fold_wakes_now(connection, domain_id)
            work = operator_reports.work_of(connection, domain_id)
        return ResetReport(before["domain"], before["status"], None, sum(row["waiting"] for row in work))

    def configure(
        self,
        name: str,
        changes: Mapping[str, object],
        version: int | None = None,
        *,
        actor: str,
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> dict[str, Any]:
        """Change columns of a domain's configuration (see `parse_assignments`) and what is sent with requests to it; the domain
        afterwards, with the names of `secrets`. With `version` only if it has not been changed since, else Changed.

        `plain_http`: the secrets are sent over http, too. After: a worker that visits the domain goes by it within two seconds.
        """
        self._check(self.canonical(name), changes)
        with self.database.session() as connection, connection.transaction():
            after = domains.edit(connection, self.canonical(name), changes, version=version)
            given = self._give(connection, after, secrets, plain_http=plain_http)
            self._record(connection, actor, "edit", after["domain"], {**changes, **given})
            return after | {"secrets": names_of_domain(connection, after["id"]), **self._delay_in_force(after)}

    def _check(self, domain: str, changes: Mapping[str, object]) -> None:
        """Raise UsageError for the base URL of another domain, and for a parser that there is none of, as `crawl --parser` does."""
        base_url = changes.get("base_url")
        if isinstance(base_url, str) and (other := self.canonical(base_url)) != domain:
            raise UsageError(f"{base_url} is a URL of {other}, not of {domain}.")
        parser = changes.get("parser_name")
        if self.parsing is not None and isinstance(parser, str):
            check_known(parser, self.parsing)

    def _give(
        self, connection: Connection, row: Mapping[str, Any], secrets: RequestSecrets | None, *, plain_http: bool
    ) -> dict[str, object]:
        """Change a domain's secrets; what the audit log is told of it."""
        if not secrets:
            return {}
        assert self.sealer is not None  # noqa: S101 — made with one wherever secrets are taken
        origins = domain_origins(row["domain"], plain_http=plain_http)
        names = self.sealer.give_domain(connection, row["id"], secrets, origins)
        return {"secrets": ", ".join(names), "secrets_for": ", ".join(origins)}

    def recalculate(self) -> Iterator[tuple[int, int, int]]:
        """Rewrite all scores, in chunks; after each (domains looked at, scores changed, domains in all)."""
        with self.database.session() as connection:
            total = sum(domains.counts(connection).values())
            seen = changed = 0
            for looked_at, rewritten in domains.recalculate(connection):
                seen += looked_at
                changed += rewritten
                yield seen, changed, total

    def canonical(self, name: str) -> str:
        """The domain that a person means by a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)

    def _record(
        self, connection: Connection, actor: str, action: str, domain: str, details: Mapping[str, object]
    ) -> None:
        said = {
            key: value if isinstance(value, str | int | float | bool | None) else str(value)
            for key, value in details.items()
        }
        audit.write(connection, actor=actor, action=action, kind=KIND, object_id=domain, details=said)


def parse_assignments(words: Sequence[str]) -> dict[str, object]:
    """`crawl_delay_seconds=2 is_active=no …` as columns and values; short forms are in `ALIASES`. Raises UsageError, naming the word."""
    return read_assignments(words, KEYS, ALIASES, what="a domain", all_keys=ALL_KEYS)


def read_assignments(
    words: Sequence[str],
    readers: Mapping[str, Callable[[str], object]],
    aliases: Mapping[str, str],
    *,
    what: str,
    all_keys: str,
) -> dict[str, object]:
    """`key=value …` as names and values, each read by its reader, which raises ValueError for what it cannot be."""
    changes: dict[str, object] = {}
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        column = aliases.get(key, key)
        if not equals or column not in readers:
            # The value is not repeated: behind a key that was misspelt (headers=, password=) it may be a secret.
            said = re.split("[=:]", word, maxsplit=1)[0]
            raise UsageError(f"{said!r} is not a setting of {what}; write key=value with one of: {all_keys}.")
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


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
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
    """As it was written, if it can be meant: UsageError says what is wrong with it."""
    MaintenanceWindows.parse(text)
    return " ".join(text.split()) or None


def _parameters(text: str) -> list[str] | None:
    names = list(dict.fromkeys(name for name in text.replace(",", " ").split() if name))
    if len(names) > _MOST_PARAMETERS:
        raise ValueError(f"must be at most {_MOST_PARAMETERS} names")
    check_parameter_names(names)
    return names or None


def _use(text: str) -> str | None:
    if text and text not in set(ProxyMode):
        raise ValueError(f"must be {', '.join(ProxyMode)} or empty")
    return text or None


def _perhaps(text: str) -> bool | None:
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
    """None: takes the parser back; crawls have none then."""
    return _word(text) if text else None


def _budget(text: str) -> int | None:
    return _whole(1, 2**31 - 1)(text) if text else None


def _base_url(text: str) -> str:
    """Its origin: scheme, host and port. Whether the host is the domain's is for `DomainService` to check."""
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
    "proxy_use": _use,
    "proxy_direct": _perhaps,
    "proxy_resolves": _perhaps,
    "proxy_country": _country,
    "proxy_sticky": _sticky,
}
"""What people set, by column, and how its value is read. The same names are read, in the API and by `domains info --json`."""
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
SECRET_KEYS: Final = ("header", "cookie", "basic_auth")
"""What it knows besides; these are sealed, and in no column of the domain."""
_SHORT: Final = {column: alias for alias, column in ALIASES.items()}
ALL_KEYS: Final = ", ".join(f"{key} ({_SHORT[key]})" if key in _SHORT else key for key in (*KEYS, *SECRET_KEYS))
"""For people: each key, with its short form."""
