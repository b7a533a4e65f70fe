"""The plan of a simulated web: how many sites, how large, how fast, how nasty.

The rule: a plan is a value, and with its seed it says everything. `Site` is one server, `Web` is all of them; both go to JSON and back,
because the web is served by a process of its own.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.errors import UsageError


class Robots(StrEnum):
    """What a site's robots.txt is."""

    NONE = "none"
    """404: all is allowed."""
    ALLOW = "allow"
    DENY = "deny"
    """/private/ is not for crawlers."""
    DENY_ALL = "deny_all"
    ERROR = "error"
    """500, always."""
    TIMEOUT = "timeout"
    """It never answers."""
    REDIRECT = "redirect"
    """To /robots-moved.txt, which says what DENY says."""


class Wall(StrEnum):
    """What stands before a whole site. robots.txt is outside."""

    NONE = ""
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    RATE_LIMITED = "429"
    UNAVAILABLE = "503"
    LOGIN = "login"
    """Every page redirects to /login, which is a form with a password."""


class Trap(StrEnum):
    """Parts of a site that have no end."""

    CALENDAR = "calendar"
    """/cal/2024/1 leads to the months and years around it."""
    ECHO = "echo"
    """/echo/ leads to /echo/echo/, and so on."""
    SESSION = "session"
    """Links to known pages with another ?jsessionid= on every page."""


class Odd(StrEnum):
    """URLs beside the pages of a site. Page i links to /ODD/name-of-i if the dice say so; nothing new is behind it."""

    MISSING = "missing"
    GONE = "gone"
    BROKEN = "broken"
    """500, always."""
    UNAVAILABLE = "unavailable"
    """503, always."""
    FORBIDDEN = "forbidden"
    RESET = "reset"
    """The connection is reset, always."""
    CUT = "cut"
    """The body is shorter than was said, always."""
    GARBAGE = "garbage"
    """What comes is not HTTP."""
    HANG = "hang"
    """Nothing comes."""
    PRIVATE = "private"
    """A page that robots.txt denies if it is one that denies anything."""
    HIDDEN = "hidden"
    """A page to which only links lead that ask not to be followed."""
    NOFOLLOW = "nofollow"
    """A page that asks not to follow its links; they lead to a hidden one."""
    NOINDEX = "noindex"
    COPY = "copy"
    """The same bytes as those of the page that links to it."""
    CHARSET = "charset"
    """Text in another charset, told by header, by meta, or not at all."""
    BINARY = "binary"
    """Not HTML (application/pdf)."""
    MOVED = "moved"
    """One to three redirects to a page of the site."""
    LOOP = "loop"
    """Two URLs that redirect to each other."""
    FAR = "far"
    """Ten redirects in a row."""
    AWAY = "away"
    """A redirect to another site."""
    SLOW = "slow"
    """A page that takes `Site.slow` seconds longer."""
    DRIP = "drip"
    """The body comes a byte at a time."""
    ENDLESS = "endless"
    """The body has no end."""
    HUGE = "huge"
    """The body is said to be 10 GB, and starts to come."""
    BOMB = "bomb"
    """100 KB that are 100 MB when unpacked."""
    HEADERS = "headers"
    """A megabyte of headers."""
    DEEP = "deep"
    """Elements nested 50 000 deep."""
    WIDE = "wide"
    """An element with 60 000 attributes."""
    NUL = "nul"
    """NUL bytes, lone surrogates, control characters, markup in the title."""


@dataclass(frozen=True, slots=True)
class Site:
    """One server. Fractions are of its pages, from 0 to 1, by the dice."""

    pages: int = 50
    """Pages that end well, all reachable from "/" in at most `depth` clicks."""
    links: int = 20
    """To pages of the site, on every page (more where the tree needs them)."""
    body_bytes: int = 4000
    """About; a page with many links may be longer."""
    images: int = 0
    external: float = 0.0
    """Pages with a link to a page of another site."""
    latency: float = 0.0
    """Seconds before an answer; up to `jitter` are added by the dice."""
    jitter: float = 0.0
    slow: float = 2.0
    """What a slow page takes beyond that."""
    robots: Robots = Robots.ALLOW
    crawl_delay: float = 0.0
    """Said by robots.txt if it says anything; 0 = nothing said."""
    wall: Wall = Wall.NONE
    flaky: float = 0.0
    """Pages that fail (500, reset, cut) the first `flaky_times` that they are asked for, and then never again."""
    flaky_times: int = 1
    reset_reused: float = 0.0
    """Requests on a connection that has answered one before, which are reset without an answer; also for robots.txt."""
    rate_limit: int = 0
    """Requests within `rate_window` seconds; what is more gets 429 with Retry-After. 0 = no limit."""
    rate_window: float = 1.0
    changing: float = 0.0
    """Pages whose text, ETag and Last-Modified change with the generation; the others have them too, and they stay."""
    traps: tuple[Trap, ...] = ()
    odd: Mapping[Odd, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for a site that cannot be."""
        if self.pages < 1 or self.links < 1 or self.body_bytes < 0 or self.images < 0:
            raise UsageError("A site has a page, and a page has a link, at least.")
        shares = [
            ("external", self.external),
            ("flaky", self.flaky),
            ("changing", self.changing),
            ("reset_reused", self.reset_reused),
            *self.odd.items(),
        ]
        for name, share in shares:
            if not 0 <= share <= 1:
                raise UsageError(f"{name} is a fraction from 0 to 1, not {share}.")
        times = (self.latency, self.jitter, self.slow, self.crawl_delay, self.rate_window)
        if not all(math.isfinite(time) and time >= 0 for time in times) or self.rate_limit < 0 or self.flaky_times < 0:
            raise UsageError("Times and counts of a site cannot be negative.")

    @property
    def branch(self) -> int:
        """Children of a page in the tree that makes all pages reachable."""
        return max(2, min(16, self.links // 2))

    @property
    def depth(self) -> int:
        """Clicks from "/" to the deepest page, along the tree; odd URLs are one further."""
        depth, last = 0, self.pages - 1
        while last > 0:
            depth, last = depth + 1, (last - 1) // self.branch
        return depth

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """From what `asdict` made of one. Raises UsageError for what no site has."""
        unknown = set(stored) - {known.name for known in fields(cls)}
        if unknown:
            raise UsageError(f"A site has no {', '.join(sorted(unknown))}.")
        values = dict(stored)
        try:
            if "robots" in values:
                values["robots"] = Robots(values["robots"])
            if "wall" in values:
                values["wall"] = Wall(values["wall"])
            values["traps"] = tuple(Trap(trap) for trap in values.get("traps", ()))
            values["odd"] = {Odd(kind): float(share) for kind, share in values.get("odd", {}).items()}
        except ValueError as error:
            raise UsageError(f"A site cannot be like that: {error}.") from None
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Web:
    """All sites: `sites` of them, like `default` but for those that `special` names."""

    seed: int = 1
    sites: int = 1
    default: Site = field(default_factory=Site)
    special: Mapping[int, Site] = field(default_factory=dict)
    by_port: bool = False
    """Every site has a port of its own on 127.0.0.1, instead of a name under localhost."""

    def __post_init__(self) -> None:
        """Raise UsageError for a web that cannot be."""
        if self.sites < 1 or any(not 0 <= number < self.sites for number in self.special):
            raise UsageError("A web has a site at least, and its special sites are among them.")

    def site(self, number: int) -> Site:
        """The plan of site *number*."""
        return self.special.get(number, self.default)

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `as_json` wrote. Raises UsageError for anything else."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UsageError(f"The spec of a web is JSON: {error}.") from None
        if not isinstance(values, dict) or set(values) - {known.name for known in fields(cls)}:
            raise UsageError(f"The spec of a web has {', '.join(known.name for known in fields(cls))}, nothing else.")
        if "default" in values:
            values["default"] = Site.from_json(values["default"])
        values["special"] = {int(n): Site.from_json(site) for n, site in values.get("special", {}).items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a web is served: one port for all sites, or a port for each."""

    ports: tuple[int, ...]
    by_port: bool = False

    def origin(self, site: int) -> str:
        """Scheme, host and port of a site, without a slash at the end."""
        return f"http://{self.host(site)}"

    def host(self, site: int) -> str:
        """As the Host header says it."""
        return f"127.0.0.1:{self.ports[site]}" if self.by_port else f"s{site}.localhost:{self.ports[0]}"
