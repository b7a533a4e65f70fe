"""Proxies: parsing, verdicts on their requests, pauses after failures, and how many of them a domain needs.

The rule: a password is in no text that is made of these values, neither for display nor in logs nor in errors. It enters by `parse_proxy`
or `make_proxy`, and leaves only for libcurl and for the encrypted store of secrets.
"""

import math
import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdfast.errors import BadUrl, UsageError

PROBED_ONLY_AFTER: Final = 5
"""Failures in a row, of a proxy or of a mapping, after which only single probes use it."""
DISABLED_AFTER: Final = 10
"""Failures in a row after which a proxy is disabled."""
AVERAGE_WEIGHT: Final = 0.2
"""Weight of the newest response time in the moving average."""
DEFAULT_BUFFER: Final = 0.2
"""The share of spare proxies that `proxies_needed` adds for failures."""
_MAX_TEXT: Final = 5000
_MAX_USERNAME: Final = 255
_MAX_PASSWORD: Final = 1000
_SERVER: Final = re.compile(r"(?:([A-Za-z0-9+.-]+)://)?(?:(.*)@)?([^@/?#\s]+):([0-9]{1,5})/?", re.DOTALL)


class Protocol(StrEnum):
    """The protocol of a proxy."""

    HTTP = "http"
    HTTPS = "https"
    """HTTP through TLS."""
    SOCKS5 = "socks5"
    """SOCKS5 with addresses resolved by us."""
    SOCKS5H = "socks5h"
    """SOCKS5 with names resolved by the proxy."""


class DisabledBy(StrEnum):
    """Who disabled a proxy."""

    OPERATOR = "operator"
    HEALTH = "health"


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """The address of a proxy, and the username for it."""

    protocol: Protocol
    host: str
    port: int
    username: str | None = None

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """The proxy that a request goes through."""

    proxy_id: int
    server: ProxyServer
    password: str | None = field(default=None, repr=False)
    allow_private: bool = False
    """The proxy itself may have a private address."""
    resolves: bool = False
    """The proxy resolves names; their addresses are not checked here."""


class ProxyMode(StrEnum):
    """Which proxies a domain uses."""

    DIRECT = "direct"
    """No proxy."""
    POOL = "pool"
    """The proxies assigned to it."""
    ANY = "any"
    """If none of these is usable, any other."""


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """How a domain uses proxies."""

    use: ProxyMode = ProxyMode.POOL
    direct: bool = False
    """Requests may go without a proxy when none is usable."""
    resolves: bool = False
    country: str | None = None
    sticky: timedelta | None = None
    """The time for which the same proxy is used, while it is usable."""


class ProxyOverrides(NamedTuple):
    """The proxy options of a domain that override the settings; None: not set."""

    use: str | None = None
    direct: bool | None = None
    resolves: bool | None = None
    country: str | None = None
    sticky: timedelta | None = None

    def rules(self, *, use: str, direct: bool) -> ProxyRules:
        """The resulting rules; `use` and `direct` are the defaults."""
        return ProxyRules(
            ProxyMode(self.use or use),
            direct if self.direct is None else self.direct,
            bool(self.resolves),
            self.country,
            self.sticky,
        )


class ProxyFault(StrEnum):
    """Attributes a failed request to the proxy or leaves it open."""

    PROXY = "proxy"
    """Certainly the proxy: it refused, was unreachable, or rejected our credentials."""
    UNCLEAR = "unclear"
    """The proxy or the site behind it; a request through another proxy decides."""


class ProxyVerdict(StrEnum):
    """The verdict of a request on the proxy that it went through."""

    SUCCESS = "success"
    REFUSED = "refused"
    """It reached the site, and the site refused this proxy."""
    ERROR = "error"
    """It reached the site, which answered with an error."""
    FAILED = "failed"
    """It did not get through the proxy."""
    UNCLEAR = "unclear"
    """It did not get through, and the cause is unknown."""


class UnclearFailure(NamedTuple):
    """A request that failed through a proxy with unknown cause. The proxy is blamed for it when another one gets through."""

    proxy_id: int
    probe: bool


@dataclass(slots=True)
class ProxyUse:
    """The use of a proxy by one request."""

    proxy_id: int
    verdict: ProxyVerdict
    started: float
    """Time of its start, on the crawler's clock."""
    response_ms: float | None = None
    """The moving average including this request; None: unchanged."""
    error: str | None = None
    probe: bool = False
    """The request tests whether a proxy that failed or was refused too often is usable again. Results of other requests that are still
    running at that time belong to the same incident and do not count."""
    blames: tuple[UnclearFailure, ...] = ()
    """Proxies that this one has shown to be at fault: it got through where they had not."""
    bytes: int = 0
    age: float = 0.0
    """Seconds since it began, at the time of the commit."""


class ProxyPauses(NamedTuple):
    """The pauses after too many failures: the first one, and the maximum."""

    first: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(hours=1)
    refused_first: timedelta = timedelta(minutes=10)
    """The first pause of a mapping."""
    refused_longest: timedelta = timedelta(days=1)


class ParsedProxy(NamedTuple):
    """A proxy and its password, as parsed."""

    server: ProxyServer
    password: str | None = None

    def __repr__(self) -> str:
        return f"ParsedProxy({self.server!r})"


def parse_proxy(text: str) -> ParsedProxy:
    """Parse SCHEME://USER:PASSWORD@HOST:PORT; %40 is an @. Raises UsageError, which never contains any of the text."""
    found = _SERVER.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if found is None:
        raise UsageError(
            "A proxy is written SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out."
        )
    scheme, login, host, port = found.groups()
    username, _, password = (login or "").partition(":")
    try:
        return make_proxy(
            parse_protocol(scheme or Protocol.HTTP),
            host,
            int(port),
            unquote(username, errors="strict"),
            unquote(password, errors="strict"),
        )
    except UnicodeDecodeError:
        raise UsageError("What is written with % in a proxy's user or password is no UTF-8 text.") from None


def parse_protocol(name: str) -> Protocol:
    """The protocol of that name. Raises UsageError."""
    try:
        return Protocol(name.lower())
    except ValueError:
        raise UsageError(f"The scheme of a proxy is one of {', '.join(Protocol)}.") from None


def make_proxy(protocol: Protocol, host: str, port: int, username: str = "", password: str = "") -> ParsedProxy:
    """Validate the parts of a proxy; an empty username or password counts as none. Raises UsageError, which never contains the
    arguments."""
    if password and not username:
        raise UsageError("A proxy's password needs a user to go with it.")
    check_password(password)
    return ParsedProxy(make_server(protocol, host, port, username or None), password or None)


def check_password(password: str) -> None:
    """Raise UsageError for an invalid password; the error never contains it."""
    if len(password) > _MAX_PASSWORD or not password.isprintable():
        raise UsageError(f"A proxy's password is at most {_MAX_PASSWORD} characters on one line.")


def make_server(protocol: Protocol, host: str, port: int, username: str | None = None) -> ProxyServer:
    """Validate the address of a proxy. Raises UsageError, which never contains the arguments."""
    if not 0 < port < 65536:
        raise UsageError("A proxy's port is a number from 1 to 65535.")
    if username is not None and (len(username) > _MAX_USERNAME or not username.isprintable() or ":" in username):
        raise UsageError(f"A proxy's user is at most {_MAX_USERNAME} characters on one line, without a colon.")
    from holdfast.model.url import checked_host, parse_url  # here: it needs ada-url, which the client does without

    try:
        name = checked_host(parse_url(f"http://{host}/"))
    except BadUrl:
        raise UsageError("A proxy's host is a name or an address, and this is neither.") from None
    return ProxyServer(protocol, name, port, username)


def moving_average(average: float | None, newest: float) -> float:
    """The moving average of response times including the newest one."""
    return newest if average is None else average + AVERAGE_WEIGHT * (newest - average)


def pause_after(failures: int, first: timedelta, longest: timedelta) -> timedelta | None:
    """The pause after `failures` failures in a row; None: the proxy is still used. Equal to the store's `proxy_pause`."""
    if failures < PROBED_ONLY_AFTER:
        return None
    return min(first * (1 << min(failures - PROBED_ONLY_AFTER, 24)), longest)


def proxies_needed(urls_per_hour: float, each_per_hour: float, buffer: float = DEFAULT_BUFFER) -> int:
    """The number of proxies that a domain needs for `urls_per_hour`, if each may be used `each_per_hour` times."""
    finite = all(map(math.isfinite, (urls_per_hour, each_per_hour, buffer)))
    if not finite or urls_per_hour < 0 or each_per_hour <= 0 or buffer < 0:
        raise UsageError(
            "URLs an hour and the buffer cannot be negative, and the requests an hour of a proxy must be more than 0."
        )
    least = math.ceil(urls_per_hour / each_per_hour) or int(urls_per_hour > 0)  # the quotient may underflow to 0
    return math.ceil(round(least * (1 + buffer), 9))
