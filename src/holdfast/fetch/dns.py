"""DNS resolver with a cache: resolves host names before libcurl, whose own lookups block each other.

Owns the name servers, the hosts file and the cache. The rule: every lookup ends within its timeout as addresses or as an `Outcome`,
lookups of different names do not wait for each other, and an address is returned only if the address filter accepts it (or the caller
allows private ones).

Order: cache, hosts file, name servers, which are queried for A and AAAA at once. A name in the hosts file is never sent to a name server.
`localhost` and its subdomains are this machine, whatever the file says (RFC 6761).
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiodns
import pycares
from aiodns.error import DNSError
from pycares import errno

from holdfast.errors import SettingsError
from holdfast.fetch.address_filter import refusal_reason
from holdfast.model.outcome import Outcome
from holdfast.settings import Fetch

CACHE_SIZE: Final = 50_000
"""Names in the cache; the oldest are evicted first."""
MIN_TTL: Final = 5.0
"""Seconds that an answer is cached at least, so that a TTL of 0 does not cause a query per page."""
FAILURE_TTL: Final = 5.0
"""Seconds that a failure of the name servers is cached; the answer that a name does not exist is cached longer."""
MAX_ADDRESSES: Final = 8
"""Addresses of a name that are tried."""
GRACE: Final = 0.3
"""Seconds to wait for the second address family when the first has been found (RFC 8305)."""
_TRIES: Final = 3
_TIMEOUT_SHARES: Final = 7
"""The timeout of all tries as a multiple of the first: each try waits twice as long as the one before (1 + 2 + 4)."""
_HOSTS_TTL: Final = 1.0
"""Seconds that an answer of the hosts file is cached."""

_NOT_FOUND_ERRORS: Final = frozenset((errno.ARES_ENOTFOUND, errno.ARES_ENODATA, errno.ARES_EBADNAME))


@dataclass(frozen=True, slots=True)
class Resolved:
    """Addresses that may be connected to, or the reason why there are none."""

    addresses: tuple[str, ...] = ()
    outcome: Outcome | None = None
    """NO_SUCH_HOST, DNS_FAILURE or ADDRESS_REFUSED; None: there are addresses."""
    detail: str = ""
    pin: str = ""
    """The addresses in the format of CURLOPT_RESOLVE; empty if the host is an IP address."""


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """A cached answer. `expires_at` is in seconds of the monotonic clock."""

    expires_at: float
    any: Resolved
    public: Resolved
    """The answer for callers that do not allow private addresses."""


class Resolver:
    """Resolves host names. Bound to the event loop of its first lookup."""

    def __init__(self, settings: Fetch, *, hosts_file: Path = Path("/etc/hosts"), cache_size: int = CACHE_SIZE) -> None:
        """Raises SettingsError for an invalid name server."""
        self._timeout = settings.dns_timeout.total_seconds()
        self._max_ttl = settings.dns_ttl_max.total_seconds()
        self._negative_ttl = settings.dns_ttl_negative.total_seconds()
        self._servers = [_server(text) for text in settings.dns_servers]
        self._hosts = HostsFile(hosts_file)
        self._cache: dict[str, _CacheEntry] = {}
        self._cache_size = cache_size
        self._active: dict[str, asyncio.Task[_CacheEntry]] = {}
        self._resolver: aiodns.DNSResolver | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """After: no lookup is in progress; its callers received DNS_FAILURE or were cancelled."""
        for task in list(self._active.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    def cached(self, host: str, *, allow_private: bool) -> Resolved | None:
        """The cached answer of `resolve`; None: a lookup is needed."""
        found = self._cache.get(host)
        if found is None or found.expires_at <= time.monotonic():
            return None
        return found.any if allow_private else found.public

    async def resolve(self, host: str, *, allow_private: bool) -> Resolved:
        """Resolve *host*: a name in lower case without a trailing dot, an IPv4 address, or an IPv6 address in brackets."""
        if found := self.cached(host, allow_private=allow_private):
            return found
        local = self._local(host)
        if local is None:
            task = self._active.get(host)
            if task is None:
                task = self._active[host] = asyncio.create_task(self._query_servers(host))
                task.add_done_callback(lambda _: self._active.pop(host, None))
            # Shielded: the first caller may be cancelled while others wait for the same lookup.
            local = await asyncio.shield(task)
        return local.any if allow_private else local.public

    def _local(self, host: str) -> _CacheEntry | None:
        """Resolve without DNS. After: the answer is cached; one from the hosts file for _HOSTS_TTL only, as the file may change."""
        now = time.monotonic()
        literal = host[1:-1] if host.startswith("[") else host
        try:
            address = str(ip_address(literal))
        except ValueError:
            addresses = self._hosts.lookup(host)
            return self._cache_entry(host, _make_entry(addresses, now + _HOSTS_TTL)) if addresses else None
        return self._cache_entry(host, _make_entry((address,), now + self._max_ttl, literal=True))

    async def _query_servers(self, host: str) -> _CacheEntry:
        """Query the name servers. After: the answer is cached, also a failure."""
        deadline = time.monotonic() + self._timeout
        wanted = {asyncio.create_task(self._query(host, kind)) for kind in ("A", "AAAA")}
        try:
            done, missing = await asyncio.wait(wanted, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if missing:
                left = max(deadline - time.monotonic(), 0.0)
                found = any(isinstance(task.result(), _Records) for task in done)
                more, _ = await asyncio.wait(missing, timeout=min(left, GRACE) if found else left)
                done |= more
        finally:
            for task in wanted:
                task.cancel()
        return self._cache_entry(
            host, self._interpret([task.result() for task in done], complete=len(done) == len(wanted))
        )

    def _interpret(self, answers: "Sequence[_Records | int]", *, complete: bool) -> _CacheEntry:
        now = time.monotonic()
        records = [answer for answer in answers if isinstance(answer, _Records)]
        if records:
            ttl = float(min(answer.ttl for answer in records))
            if not complete:
                ttl = min(ttl, FAILURE_TTL)  # the other address family may be there next time
            addresses = [address for answer in records for address in answer.addresses]
            addresses.sort(key=lambda address: ":" in address)  # IPv4 first: not every machine has IPv6
            return _make_entry(tuple(addresses), now + min(max(ttl, MIN_TTL), self._max_ttl))
        errors = [answer for answer in answers if isinstance(answer, int)]
        if errno.ARES_ENOTFOUND in errors or (complete and _NOT_FOUND_ERRORS.issuperset(errors)):
            gone = "the name does not exist" if errno.ARES_ENOTFOUND in errors else "the name has no address"
            nothing = Resolved((), Outcome.NO_SUCH_HOST, gone)
            return _CacheEntry(now + self._negative_ttl, nothing, nothing)
        reason = next(
            (str(errno.strerror(code)) for code in errors if code not in _NOT_FOUND_ERRORS), "no answer in time"
        )
        failed = Resolved((), Outcome.DNS_FAILURE, f"name servers: {reason}")
        return _CacheEntry(now + min(FAILURE_TTL, self._negative_ttl), failed, failed)

    def _cache_entry(self, host: str, known: _CacheEntry) -> _CacheEntry:
        self._cache.pop(host, None)  # keeps the cache in the order of age
        if len(self._cache) >= self._cache_size:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = known
        return known

    async def _query(self, host: str, kind: str) -> "_Records | int":
        """Query one record type; returns the addresses or the error code of c-ares."""
        if self._resolver is None:
            self._resolver = aiodns.DNSResolver(
                self._servers or None, timeout=max(self._timeout / _TIMEOUT_SHARES, 0.05), tries=_TRIES, lookups="b"
            )
        try:
            answer = await self._resolver.query_dns(host, kind)
        except DNSError as error:
            return int(error.args[0])
        except UnicodeError:
            return int(errno.ARES_EBADNAME)
        addresses = tuple(
            record.data.addr
            for record in answer.answer
            if isinstance(record.data, pycares.ARecordData | pycares.AAAARecordData)
        )
        if not addresses:
            return int(errno.ARES_ENODATA)
        return _Records(addresses, min(record.ttl for record in answer.answer))


@dataclass(frozen=True, slots=True)
class _Records:
    addresses: tuple[str, ...]
    ttl: int


def is_address_or_localhost(host: str) -> bool:
    """Whether *host* (in the format of `resolve`) is an IP address or localhost: it leads to the same place from here and from a proxy."""
    try:
        ip_address(host[1:-1] if host.startswith("[") else host)
    except ValueError:
        return is_localhost(host)
    return True


def _make_entry(addresses: tuple[str, ...], until: float, *, literal: bool = False) -> _CacheEntry:
    refused = [(address, reason) for address in addresses if (reason := refusal_reason(address))]
    public = tuple(address for address in addresses if not refusal_reason(address))
    if public:
        safe = _resolved(public, literal=literal)
    else:
        address, reason = refused[0]
        safe = Resolved((), Outcome.ADDRESS_REFUSED, f"{address} is {reason}")
    return _CacheEntry(until, _resolved(addresses, literal=literal), safe)


def _resolved(addresses: tuple[str, ...], *, literal: bool) -> Resolved:
    kept = addresses[:MAX_ADDRESSES]
    pin = ",".join(f"[{address}]" if ":" in address else address for address in kept)
    return Resolved(kept, pin="" if literal else pin)


def _server(text: str) -> str:
    """Parse the address of a name server into the format of c-ares."""
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        good = not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536)
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"A name server is an address, perhaps with :port, not {text!a}.")
    return (f"[{address}]" if address.version == 6 else str(address)) + (f":{port}" if colon else "")


LOOPBACK: Final = ("127.0.0.1", "::1")
_MAX_HOSTS_BYTES: Final = 16 << 20
"""Bytes read of a hosts file; block lists of a million names fit."""


class HostsFile:
    """A hosts file, reloaded when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._names: dict[str, tuple[str, ...]] = {}

    def lookup(self, name: str) -> tuple[str, ...]:
        """The addresses of *name* (lower case, without a trailing dot); empty: not in the file."""
        if is_localhost(name):
            return LOOPBACK
        self._refresh()
        return self._names.get(name, ())

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                with self._path.open(encoding="utf-8", errors="replace") as file:
                    self._names = parse_hosts(file.read(_MAX_HOSTS_BYTES))
                self._stamp = stamp
        except OSError:  # the machine has no hosts file
            self._stamp, self._names = None, {}


def is_localhost(name: str) -> bool:
    """Whether *name* (lower case, without a trailing dot) is localhost or below it."""
    return name == "localhost" or name.endswith(".localhost")


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a hosts file into names and their addresses, in its order; invalid lines are skipped."""
    names: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *aliases = line.partition("#")[0].split() or [""]
        try:
            ip_address(address)
        except ValueError:
            continue
        for alias in aliases:
            name = alias.lower().removesuffix(".")
            if address not in names.get(name, ()):
                names[name] = (*names.get(name, ()), address)
    return names
