"""Names to addresses: asked by us, not by libcurl, whose lookups wait for each other.

Owns the name servers and the cache. The rule: every lookup ends within its time as addresses or as an `Outcome`, none waits for another
one, and an address leaves here only if the guard lets it (or whoever asks may go to private ones).

The hosts file comes first, then the cache, then the name servers, which are asked for A and AAAA at once.
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
from holdfast.fetch.guard import refusal
from holdfast.fetch.hosts import Hosts, is_localhost
from holdfast.model.outcome import Outcome
from holdfast.settings import Fetch

CACHE_SIZE: Final = 50_000
"""Names that are remembered; the oldest go first."""
SHORTEST_TTL: Final = 5.0
"""Seconds that an answer holds at least: a name with a TTL of 0 is asked for once a visit's moment, not once a page."""
FAILURE_TTL: Final = 5.0
"""Seconds until name servers that failed are asked again; that a name does not exist holds longer."""
MOST_ADDRESSES: Final = 8
"""Of a name that are tried."""
GRACE: Final = 0.3
"""Seconds that the answer about one kind of address is waited for when the other kind has been found (RFC 8305)."""
_TRIES: Final = 3
_SHARES: Final = 7
"""Each further try waits twice as long as the one before; this is all of them in terms of the first."""
_HOSTS_TTL: Final = 1.0
"""Seconds until the hosts file is looked at again."""

_NO_SUCH_NAME: Final = frozenset((errno.ARES_ENOTFOUND, errno.ARES_ENODATA, errno.ARES_EBADNAME))


@dataclass(frozen=True, slots=True)
class Resolved:
    """Addresses that may be connected to, or why there are none."""

    addresses: tuple[str, ...] = ()
    outcome: Outcome | None = None
    """NO_SUCH_HOST, DNS_FAILURE or ADDRESS_REFUSED; None: there are addresses."""
    detail: str = ""
    pin: str = ""
    """The addresses as libcurl reads them; empty for a host that is an address itself."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer in the cache."""

    until: float
    any: Resolved
    public: Resolved
    """What those get who may not go to private addresses."""


class Resolver:
    """Finds addresses. It is bound to the event loop of its first lookup."""

    def __init__(self, settings: Fetch, *, hosts_file: Path = Path("/etc/hosts"), cache_size: int = CACHE_SIZE) -> None:
        """Raises SettingsError for a name server that is none."""
        self._timeout = settings.dns_timeout.total_seconds()
        self._longest = settings.dns_ttl_max.total_seconds()
        self._negative = settings.dns_ttl_negative.total_seconds()
        self._servers = [_server(text) for text in settings.dns_servers]
        self._hosts = Hosts(hosts_file)
        self._cache: dict[str, _Known] = {}
        self._cache_size = cache_size
        self._under_way: dict[str, asyncio.Task[_Known]] = {}
        self._resolver: aiodns.DNSResolver | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """After: no lookup is under way, and whoever waited for one was told DNS_FAILURE or cancelled."""
        for task in list(self._under_way.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    def known(self, host: str, *, allow_private: bool) -> Resolved | None:
        """What `resolve` would say, if it need ask nobody."""
        found = self._cache.get(host)
        if found is None or found.until <= time.monotonic():
            return None
        return found.any if allow_private else found.public

    async def resolve(self, host: str, *, allow_private: bool) -> Resolved:
        """The addresses of *host*: a name in lower case without a trailing dot, an IPv4 address, or an IPv6 one in brackets."""
        if found := self.known(host, allow_private=allow_private):
            return found
        local = self._local(host)
        if local is None:
            task = self._under_way.get(host)
            if task is None:
                task = self._under_way[host] = asyncio.create_task(self._ask(host))
                task.add_done_callback(lambda _: self._under_way.pop(host, None))
            # Shielded: whoever asked first may be cancelled while others wait for the same answer.
            local = await asyncio.shield(task)
        return local.any if allow_private else local.public

    def _local(self, host: str) -> _Known | None:
        """An answer that needs no name server. After: it is in the cache, that of the hosts file for a moment: it may change."""
        now = time.monotonic()
        literal = host[1:-1] if host.startswith("[") else host
        try:
            address = str(ip_address(literal))
        except ValueError:
            addresses = self._hosts.look_up(host)
            return self._remember(host, _answer(addresses, now + _HOSTS_TTL)) if addresses else None
        return self._remember(host, _answer((address,), now + self._longest, literal=True))

    async def _ask(self, host: str) -> _Known:
        """Ask the name servers. After: the answer is in the cache, whatever it is."""
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
        return self._remember(host, self._judge([task.result() for task in done], complete=len(done) == len(wanted)))

    def _judge(self, answers: "Sequence[_Records | int]", *, complete: bool) -> _Known:
        now = time.monotonic()
        records = [answer for answer in answers if isinstance(answer, _Records)]
        if records:
            ttl = float(min(answer.ttl for answer in records))
            if not complete:
                ttl = min(ttl, FAILURE_TTL)  # the other kind may be there next time
            addresses = [address for answer in records for address in answer.addresses]
            addresses.sort(key=lambda address: ":" in address)  # IPv4 first: not every machine has the other
            return _answer(tuple(addresses), now + min(max(ttl, SHORTEST_TTL), self._longest))
        errors = [answer for answer in answers if isinstance(answer, int)]
        if errno.ARES_ENOTFOUND in errors or (complete and _NO_SUCH_NAME.issuperset(errors)):
            gone = "the name does not exist" if errno.ARES_ENOTFOUND in errors else "the name has no address"
            nothing = Resolved((), Outcome.NO_SUCH_HOST, gone)
            return _Known(now + self._negative, nothing, nothing)
        why = next((str(errno.strerror(code)) for code in errors if code not in _NO_SUCH_NAME), "no answer in time")
        failed = Resolved((), Outcome.DNS_FAILURE, f"name servers: {why}")
        return _Known(now + min(FAILURE_TTL, self._negative), failed, failed)

    def _remember(self, host: str, known: _Known) -> _Known:
        self._cache.pop(host, None)  # so that the order of the cache is that of age
        if len(self._cache) >= self._cache_size:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = known
        return known

    async def _query(self, host: str, kind: str) -> "_Records | int":
        """The addresses of one kind, or the name servers' error."""
        if self._resolver is None:
            self._resolver = aiodns.DNSResolver(
                self._servers or None, timeout=max(self._timeout / _SHARES, 0.05), tries=_TRIES, lookups="b"
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


def needs_no_lookup(host: str) -> bool:
    """Whether it is clear where *host* (as `resolve` reads it) leads, to us and to a proxy alike: an address, or localhost."""
    try:
        ip_address(host[1:-1] if host.startswith("[") else host)
    except ValueError:
        return is_localhost(host)
    return True


def _answer(addresses: tuple[str, ...], until: float, *, literal: bool = False) -> _Known:
    refused = [(address, why) for address in addresses if (why := refusal(address))]
    public = tuple(address for address in addresses if not refusal(address))
    if public:
        safe = _resolved(public, literal=literal)
    else:
        address, why = refused[0]
        safe = Resolved((), Outcome.ADDRESS_REFUSED, f"{address} is {why}")
    return _Known(until, _resolved(addresses, literal=literal), safe)


def _resolved(addresses: tuple[str, ...], *, literal: bool) -> Resolved:
    kept = addresses[:MOST_ADDRESSES]
    pin = ",".join(f"[{address}]" if ":" in address else address for address in kept)
    return Resolved(kept, pin="" if literal else pin)


def _server(text: str) -> str:
    """A name server's address as c-ares reads it."""
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        good = not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536)
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"A name server is an address, perhaps with :port, not {text!a}.")
    return (f"[{address}]" if address.version == 6 else str(address)) + (f":{port}" if colon else "")
