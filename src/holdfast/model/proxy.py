"""A proxy: a server that asks the web for us. How it is written, how it is judged, how many of them are needed.

The rule: a password is in no text that is made of these values, neither for people nor for logs nor in errors. It comes in by
`read` or `written`, and leaves only for libcurl and for the safe in `control/secrets`.
"""

import math
import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdfast.errors import BadUrl, UsageError
from holdfast.model.url import parse, visitable

NOT_CHOSEN: Final = 5
"""Failures in a row, of a proxy or of a mapping, after which it is only tried now and then."""
DISABLED: Final = 10
"""Failures in a row after which a proxy is not active any more."""
WEIGHT: Final = 0.2
"""Of the newest response time in the moving average."""
BUFFER: Final = 0.2
"""Proxies that `needed` adds for those that fail."""
_LONGEST: Final = 5000
_LONGEST_NAME: Final = 255
_LONGEST_PASSWORD: Final = 1000
_SERVER: Final = re.compile(r"(?:([A-Za-z0-9+.-]+)://)?(?:(.*)@)?([^@/?#\s]+):([0-9]{1,5})/?", re.DOTALL)


class Protocol(StrEnum):
    """How a proxy is spoken to."""

    HTTP = "http"
    HTTPS = "https"
    """As HTTP, through TLS."""
    SOCKS5 = "socks5"
    """It is told addresses."""
    SOCKS5H = "socks5h"
    """It is told names."""


class Off(StrEnum):
    """Who made something inactive."""

    OPERATOR = "operator"
    HEALTH = "health"


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """Where a proxy is, and whom it knows us as."""

    protocol: Protocol
    host: str
    port: int
    username: str | None = None

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a request through a proxy."""

    proxy_id: int
    server: ProxyServer
    password: str | None = field(default=None, repr=False)
    allow_private: bool = False
    """The proxy itself may have a private address."""
    resolves: bool = False
    """Names are the proxy's to look up; nobody here has seen their addresses."""


class Use(StrEnum):
    """Which proxies a domain uses."""

    DIRECT = "direct"
    """None."""
    POOL = "pool"
    """Those that were assigned to it."""
    ANY = "any"
    """When these give none, any other."""


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """How a domain uses proxies."""

    use: Use = Use.POOL
    direct: bool = False
    """It may be asked without a proxy when none can be had."""
    resolves: bool = False
    country: str | None = None
    sticky: timedelta | None = None
    """For so long the same proxy is used, as long as it can be."""


class ProxyWishes(NamedTuple):
    """What a domain says of its own about proxies; None: nothing."""

    use: str | None = None
    direct: bool | None = None
    resolves: bool | None = None
    country: str | None = None
    sticky: timedelta | None = None

    def rules(self, *, use: str, direct: bool) -> ProxyRules:
        """What follows, with these where it says nothing."""
        return ProxyRules(
            Use(self.use or use),
            direct if self.direct is None else self.direct,
            bool(self.resolves),
            self.country,
            self.sticky,
        )


class Fault(StrEnum):
    """Who kept a request that went through a proxy from being answered."""

    PROXY = "proxy"
    """Certainly: it refused, or could not be reached, or does not know us."""
    UNCLEAR = "unclear"
    """The proxy, or the site behind it. Another proxy tells."""


class Verdict(StrEnum):
    """What a request that went through a proxy says of it."""

    SUCCESS = "success"
    REFUSED = "refused"
    """It got through, and the site does not want this proxy."""
    ERROR = "error"
    """It got through, to an error of the site's."""
    FAILED = "failed"
    """It did not get through the proxy."""
    UNCLEAR = "unclear"
    """It did not get through, and nobody knows whose fault that is."""


class Blame(NamedTuple):
    """A request that did not get through a proxy, and nobody knew whose fault that was until another proxy got through."""

    proxy_id: int
    probe: bool


@dataclass(slots=True)
class ProxyUse:
    """A request that went through a proxy."""

    proxy_id: int
    verdict: Verdict
    started: float
    """By the engine's clock."""
    response_ms: float | None = None
    """The moving average with it; None: as before."""
    error: str | None = None
    probe: bool = False
    """It was to show whether a proxy can be used again that had failed, or was refused, too often. What of the others is still under
    way when that is said belongs to the same incident, and counts no more."""
    blames: tuple[Blame, ...] = ()
    """Proxies that this one has shown to be at fault: it got through where they had not."""
    bytes: int = 0
    age: float = 0.0
    """Seconds since it began, when it is committed."""


class Rests(NamedTuple):
    """How long nobody tries what has failed too often: at first, and at most."""

    first: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(hours=1)
    refused_first: timedelta = timedelta(minutes=10)
    """Of a mapping."""
    refused_longest: timedelta = timedelta(days=1)


class Written(NamedTuple):
    """A proxy as people write it."""

    server: ProxyServer
    password: str | None = None

    def __repr__(self) -> str:
        return f"Written({self.server!r})"


def read(text: str) -> Written:
    """A proxy from SCHEME://USER:PASSWORD@HOST:PORT; %40 is an @. Raises UsageError, with nothing of the text in it."""
    found = _SERVER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        raise UsageError(
            "A proxy is written SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out."
        )
    scheme, login, host, port = found.groups()
    username, _, password = (login or "").partition(":")
    try:
        return written(
            protocol(scheme or Protocol.HTTP),
            host,
            int(port),
            unquote(username, errors="strict"),
            unquote(password, errors="strict"),
        )
    except UnicodeDecodeError:
        raise UsageError("What is written with % in a proxy's user or password is no UTF-8 text.") from None


def protocol(name: str) -> Protocol:
    """How a proxy is spoken to, by its name. Raises UsageError."""
    try:
        return Protocol(name.lower())
    except ValueError:
        raise UsageError(f"A proxy speaks {', '.join(Protocol)}, and nothing else.") from None


def written(protocol: Protocol, host: str, port: int, username: str = "", password: str = "") -> Written:
    """A proxy of its parts, checked; an empty user or password is none. Raises UsageError, with nothing of what it was given."""
    if password and not username:
        raise UsageError("A proxy's password needs a user to go with it.")
    check_password(password)
    return Written(server(protocol, host, port, username or None), password or None)


def check_password(password: str) -> None:
    """Raise UsageError for what can be nobody's password, with nothing of it."""
    if len(password) > _LONGEST_PASSWORD or not password.isprintable():
        raise UsageError(f"A proxy's password is at most {_LONGEST_PASSWORD} characters on one line.")


def server(protocol: Protocol, host: str, port: int, username: str | None = None) -> ProxyServer:
    """A proxy's place, checked. Raises UsageError, with nothing of what it was given."""
    if not 0 < port < 65536:
        raise UsageError("A proxy's port is a number from 1 to 65535.")
    if username is not None and (len(username) > _LONGEST_NAME or not username.isprintable() or ":" in username):
        raise UsageError(f"A proxy's user is at most {_LONGEST_NAME} characters on one line, without a colon.")
    try:
        name = visitable(parse(f"http://{host}/"))
    except BadUrl:
        raise UsageError("A proxy's host is a name or an address, and this is neither.") from None
    return ProxyServer(protocol, name, port, username)


def moving(average: float | None, newest: float) -> float:
    """The moving average of response times with one more of them."""
    return newest if average is None else average + WEIGHT * (newest - average)


def rest(failures: int, first: timedelta, longest: timedelta) -> timedelta | None:
    """How long nobody tries what has failed so many times in a row; None: it is still used. The store's `proxy_pause` says the same."""
    if failures < NOT_CHOSEN:
        return None
    return min(first * (1 << min(failures - NOT_CHOSEN, 24)), longest)


def needed(urls_per_hour: float, each_per_hour: float, buffer: float = BUFFER) -> int:
    """Proxies that a domain needs for so many URLs an hour, if each may be used so often."""
    finite = all(map(math.isfinite, (urls_per_hour, each_per_hour, buffer)))
    if not finite or urls_per_hour < 0 or each_per_hour <= 0 or buffer < 0:
        raise UsageError("URLs an hour and a buffer cannot be negative, and a proxy must be good for something.")
    least = math.ceil(urls_per_hour / each_per_hour) or int(
        urls_per_hour > 0
    )  # a quotient may be too small to be told from 0
    return math.ceil(round(least * (1 + buffer), 9))
