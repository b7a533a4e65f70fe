"""The specification of a simulated web: number and size of its sites, latency, failures.

The rule: a spec is a value that, with its seed, determines everything. `Site` is one server, `Web` is all of them; both are serialized to
JSON, because the web is served by a process of its own.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.errors import UsageError


class Robots(StrEnum):
    """The robots.txt of a site."""

    NONE = "none"
    """404: everything is allowed."""
    ALLOW = "allow"
    DENY = "deny"
    """/private/ is disallowed."""
    DENY_ALL = "deny_all"
    ERROR = "error"
    """500, always."""
    TIMEOUT = "timeout"
    """No response."""
    REDIRECT = "redirect"
    """Redirects to /robots-moved.txt, which has the content of DENY."""


class Wall(StrEnum):
    """The response to every request of a site except robots.txt."""

    NONE = ""
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    RATE_LIMITED = "429"
    UNAVAILABLE = "503"
    LOGIN = "login"
    """Every page redirects to /login, a form with a password field."""


class Trap(StrEnum):
    """Crawler traps: infinite parts of a site."""

    CALENDAR = "calendar"
    """/cal/2024/1 links to the months and years around it."""
    ECHO = "echo"
    """/echo/ links to /echo/echo/, and so on."""
    SESSION = "session"
    """Links to the same page with a different ?jsessionid= on every page."""


class SpecialUrl(StrEnum):
    """URLs with special behaviour, in addition to the pages of a site. Page i links to /KIND/name-of-i with the probability of that
    kind; they link to no page that is not linked otherwise."""

    MISSING = "missing"
    GONE = "gone"
    BROKEN = "broken"
    """500, always."""
    UNAVAILABLE = "unavailable"
    """503, always."""
    FORBIDDEN = "forbidden"
    RESET = "reset"
    """Connection reset, always."""
    CUT = "cut"
    """The body is shorter than its Content-Length, always."""
    GARBAGE = "garbage"
    """The response is not HTTP."""
    HANG = "hang"
    """No response."""
    PRIVATE = "private"
    """A page that robots.txt disallows if the site has DENY or REDIRECT."""
    HIDDEN = "hidden"
    """A page that is linked with rel=nofollow only."""
    NOFOLLOW = "nofollow"
    """A page with a nofollow robots meta tag; it links to a hidden page."""
    NOINDEX = "noindex"
    COPY = "copy"
    """A duplicate of the page that links to it."""
    CHARSET = "charset"
    """Text in another charset, declared by header, by meta tag, or not at all."""
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
    """The body is sent a byte at a time."""
    ENDLESS = "endless"
    """The body is infinite."""
    HUGE = "huge"
    """The Content-Length is 10 GB, and the body is sent without end."""
    BOMB = "bomb"
    """100 KB that decompress to 100 MB."""
    HEADERS = "headers"
    """A megabyte of headers."""
    DEEP = "deep"
    """Elements nested 50 000 deep."""
    WIDE = "wide"
    """An element with 60 000 attributes."""
    NUL = "nul"
    """NUL bytes, lone surrogates, control characters, markup in the title."""


class ImageKind(StrEnum):
    """What the URL of an image leads to. Every motif of a site has a plain URL, and one of another kind (`Site.image_kinds`)."""

    PLAIN = "plain"
    """A PNG."""
    COPY = "copy"
    """The bytes of the plain image."""
    MISLABELLED = "mislabelled"
    """The bytes of the plain image, sent as HTML."""
    PRIVATE = "private"
    """The bytes of the plain image, under /private/."""
    RECODED = "recoded"
    """The pixels of the plain image as BMP: a near duplicate, like the next two."""
    RESIZED = "resized"
    """Twice as wide and high."""
    MARKED = "marked"
    """One place is brighter or darker."""
    VECTOR = "vector"
    """An SVG."""
    MOVED = "moved"
    """A redirect to an image that nothing else leads to, on the same host."""
    AWAY = "away"
    """Likewise, from the image host to the site itself."""
    MISSING = "missing"
    BROKEN = "broken"
    """500, always."""
    PAGE = "page"
    """HTML, sent as PNG."""
    CUT = "cut"
    """The first half of a PNG, as a whole body."""
    VAST = "vast"
    """A PNG of 256 megapixels in 33 KB."""
    FRAMES = "frames"
    """A GIF of 2001 frames."""
    HEAVY = "heavy"
    """10 GB are announced, and the body is sent without end."""
    PACKED = "packed"
    """100 KB that decompress to 100 MB."""


@dataclass(frozen=True, slots=True)
class Site:
    """One server. Fractions (0 to 1) are shares of its pages, chosen pseudo-randomly."""

    pages: int = 50
    """Pages with status 200, all reachable from "/" in at most `depth` links."""
    links: int = 20
    """Links to pages of the site, on every page (more where the tree needs them)."""
    body_bytes: int = 4000
    """Approximate; a page with many links may be longer."""
    images: int = 0
    """Images on every page; the first is the same on all pages."""
    gallery: int = 20
    """Motifs of its images."""
    image_kinds: tuple[ImageKind, ...] = ()
    """The other kinds of its images, in turn; none: they are all plain."""
    image_host: int | None = None
    """The number of the site that serves them; None: they are on the site itself."""
    external: float = 0.0
    """Pages with a link to a page of another site."""
    latency: float = 0.0
    """Seconds before a response; up to `jitter` seconds are added pseudo-randomly."""
    jitter: float = 0.0
    slow: float = 2.0
    """Additional seconds of a slow page."""
    robots: Robots = Robots.ALLOW
    crawl_delay: float = 0.0
    """Crawl-delay in robots.txt, in seconds; 0 = none."""
    wall: Wall = Wall.NONE
    flaky: float = 0.0
    """Pages that fail (500, reset, cut) for the first `flaky_times` requests, and then never again."""
    flaky_times: int = 1
    reset_reused: float = 0.0
    """Share of requests on a reused connection that are reset without a response; also for robots.txt."""
    rate_limit: int = 0
    """Requests allowed within `rate_window` seconds; more get 429 with Retry-After. 0 = no limit."""
    rate_window: float = 1.0
    changing: float = 0.0
    """Pages whose text, ETag and Last-Modified change with the generation; those of the others do not change."""
    listed: int = 0
    """Pages that no link leads to: the sitemaps of the site list them. 0: it has no sitemap."""
    traps: tuple[Trap, ...] = ()
    odd: Mapping[SpecialUrl, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        if self.pages < 1 or self.links < 1 or self.body_bytes < 0 or self.images < 0 or self.listed < 0:
            raise UsageError("A site needs at least one page, and a page at least one link.")
        if self.gallery < 1:
            raise UsageError("A site needs at least one motif for its images.")
        if ImageKind.AWAY in self.image_kinds and self.image_host is None:
            raise UsageError("Images that are redirected to another host need an image_host.")
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
        """Children of a page in the tree through which all pages are reachable."""
        return max(2, min(16, self.links // 2))

    @property
    def depth(self) -> int:
        """Links from "/" to the deepest page, along the tree; special URLs are one further."""
        depth, last = 0, self.pages - 1
        while last > 0:
            depth, last = depth + 1, (last - 1) // self.branch
        return depth

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Deserialize the result of `asdict`. Raises UsageError for unknown fields and values."""
        unknown = set(stored) - {known.name for known in fields(cls)}
        if unknown:
            raise UsageError(f"A site has no {', '.join(sorted(unknown))}.")
        values = dict(stored)
        try:
            if "robots" in values:
                values["robots"] = Robots(values["robots"])
            if "wall" in values:
                values["wall"] = Wall(values["wall"])
            values["image_kinds"] = tuple(ImageKind(kind) for kind in values.get("image_kinds", ()))
            values["traps"] = tuple(Trap(trap) for trap in values.get("traps", ()))
            values["odd"] = {SpecialUrl(kind): float(share) for kind, share in values.get("odd", {}).items()}
        except ValueError as error:
            raise UsageError(f"Invalid site: {error}.") from None
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Web:
    """A web of `sites` sites: `default`, except those in `special`, by number."""

    seed: int = 1
    sites: int = 1
    default: Site = field(default_factory=Site)
    special: Mapping[int, Site] = field(default_factory=dict)
    by_port: bool = False
    """Every site has a port of its own on 127.0.0.1, instead of a name under localhost."""

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        if self.sites < 1 or any(not 0 <= number < self.sites for number in self.special):
            raise UsageError("A web needs at least one site, and the numbers of `special` must be below `sites`.")
        for number, site in ((-1, self.default), *self.special.items()):
            host = site.image_host
            if host is not None and (not 0 <= host < self.sites or host == number or self.site(host).wall):
                raise UsageError(f"Site {host} cannot be an image_host: it must be another site without a wall.")

    def site(self, number: int) -> Site:
        """The spec of site *number*."""
        return self.special.get(number, self.default)

    def as_json(self) -> str:
        """Serialize to one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Deserialize the result of `as_json`. Raises UsageError for anything else."""
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
        """Host and port, as in the Host header."""
        return f"127.0.0.1:{self.ports[site]}" if self.by_port else f"s{site}.localhost:{self.ports[0]}"
