"""What a site answers, and the truth about it: which URLs a complete crawl must have asked for.

The rule: everything follows from (seed, site, path), the generation, and how often the URL was asked for before; the server keeps those.
The truth is an enumeration, not a walk: pages form a tree, odd URLs hang on it as leaves, so nothing hides behind a failure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from holdfast.simweb import render
from holdfast.simweb.answer import Answer, Manner, missing
from holdfast.simweb.names import chance, draw, number_of, page_of, path_of
from holdfast.simweb.odd import odd_answer
from holdfast.simweb.plan import Address, Odd, Robots, Site, Trap, Wall, Web

_BEGINNING: Final = datetime(2024, 1, 1, tzinfo=UTC)
_ODD_KINDS: Final = frozenset(Odd)
_LOCKED: Final = frozenset({Robots.DENY_ALL, Robots.ERROR, Robots.TIMEOUT})
_DENYING: Final = frozenset({Robots.DENY, Robots.REDIRECT})


class Kind(StrEnum):
    """What a complete crawl makes of a URL."""

    PAGE = "page"
    FLAKY = "flaky"
    """A page, once it was asked for again."""
    REDIRECT = "redirect"
    FAILING = "failing"
    """Asked for, perhaps more than once, and given up."""
    OTHER = "other"
    """Answered, but no page."""
    HOSTILE = "hostile"
    """Asked for; how it ends is up to the crawler's limits."""
    DENIED = "denied"
    """Never asked for: robots.txt."""
    HIDDEN = "hidden"
    """Never asked for: all links to it ask not to be followed."""
    OPTIONAL = "optional"
    """Asked for or not, by taste."""


NEVER: Final = frozenset({Kind.DENIED, Kind.HIDDEN})
MUST: Final = frozenset(Kind) - NEVER - {Kind.OPTIONAL}


@dataclass(frozen=True, slots=True)
class ExpectedPage:
    """A URL and its end."""

    url: str
    status: int | None
    """Of the answer in the end; None: there is none, or it is up to the crawler."""
    kind: Kind


_ENDS: Final[dict[Odd, tuple[int | None, Kind]]] = {
    Odd.MISSING: (404, Kind.OTHER),
    Odd.GONE: (410, Kind.OTHER),
    Odd.BROKEN: (500, Kind.FAILING),
    Odd.UNAVAILABLE: (503, Kind.FAILING),
    Odd.FORBIDDEN: (403, Kind.FAILING),
    Odd.RESET: (None, Kind.FAILING),
    Odd.CUT: (None, Kind.FAILING),
    Odd.GARBAGE: (None, Kind.FAILING),
    Odd.HANG: (None, Kind.FAILING),
    Odd.PRIVATE: (200, Kind.PAGE),
    Odd.HIDDEN: (200, Kind.HIDDEN),
    Odd.NOFOLLOW: (200, Kind.PAGE),
    Odd.NOINDEX: (200, Kind.PAGE),
    Odd.COPY: (200, Kind.PAGE),
    Odd.CHARSET: (200, Kind.PAGE),
    Odd.BINARY: (200, Kind.OTHER),
    Odd.MOVED: (301, Kind.REDIRECT),
    Odd.LOOP: (302, Kind.REDIRECT),
    Odd.FAR: (307, Kind.REDIRECT),
    Odd.AWAY: (308, Kind.REDIRECT),
    Odd.SLOW: (200, Kind.PAGE),
    Odd.DRIP: (None, Kind.HOSTILE),
    Odd.ENDLESS: (None, Kind.HOSTILE),
    Odd.HUGE: (None, Kind.HOSTILE),
    Odd.BOMB: (None, Kind.HOSTILE),
    Odd.HEADERS: (None, Kind.HOSTILE),
    Odd.DEEP: (200, Kind.PAGE),
    Odd.WIDE: (200, Kind.PAGE),
    Odd.NUL: (200, Kind.PAGE),
}


def expected(web: Web, number: int, origin: str = "", *, max_redirects: int = 5) -> Iterator[ExpectedPage]:
    """Every URL of the site that a complete crawl from "/" (scope: the host) can meet, once each, but for what is in traps."""
    site = web.site(number)
    if site.wall and site.robots not in _LOCKED:
        login = site.wall is Wall.LOGIN
        yield ExpectedPage(f"{origin}/", 302 if login else int(site.wall), Kind.REDIRECT if login else Kind.FAILING)
        if login:
            yield ExpectedPage(f"{origin}/login", 200, Kind.OPTIONAL)
        return
    for path, status, kind in _paths(web, number, max_redirects):
        yield ExpectedPage(f"{origin}{path}", status, Kind.DENIED if site.robots in _LOCKED else kind)


def _paths(web: Web, number: int, max_redirects: int) -> Iterator[tuple[str, int | None, Kind]]:
    site = web.site(number)
    for i in range(site.pages):
        yield path_of(i), 200, Kind.FLAKY if _is_flaky(web, number, i) else Kind.PAGE
        there = [odd for odd, share in site.odd.items() if chance(web.seed, number, odd, i) < share]
        for odd in there:
            status, kind = _ENDS[odd]
            if odd is Odd.PRIVATE and site.robots in _DENYING:
                kind = Kind.DENIED
            path = render.odd_path(web, number, odd, i)
            for step, hop in enumerate(_chain(odd, path)):
                yield hop, status, kind if step <= max_redirects else Kind.OPTIONAL
        if Odd.NOFOLLOW in there and Odd.HIDDEN not in there:
            yield render.odd_path(web, number, Odd.HIDDEN, i), 200, Kind.HIDDEN


def _chain(odd: Odd, path: str) -> list[str]:
    """The URLs of the site that one after the other lead away from *path*, itself first."""
    if odd is Odd.LOOP:
        return [path, f"{path[:-1]}b"]
    if odd in (Odd.MOVED, Odd.FAR):
        _, kind, hops, name = path.split("/")
        return [f"/{kind}/{hop}/{name}" for hop in range(int(hops), 0, -1)]
    return [path]


def _is_flaky(web: Web, number: int, i: int) -> bool:
    site = web.site(number)
    return i > 0 and site.flaky_times > 0 and site.flaky > 0 and chance(web.seed, number, "flaky", i) < site.flaky


def is_trap(path: str) -> bool:
    """Is *path* (with its query) one of those that have no end?"""
    return path.startswith(("/cal/", "/echo/")) or "jsessionid=" in path.partition("?")[2]


def page(
    web: Web, number: int, target: str, address: Address, *, generation: int = 0, earlier: int | None = None
) -> Answer:
    """What site *number* answers to a request for *target* (path and query), asked for *earlier* times before.

    None for *earlier*: often enough.
    """
    site = web.site(number)
    path, _, query = target.partition("?")
    delay = site.latency + (site.jitter * chance(web.seed, number, "latency", path) if site.jitter else 0.0)
    if path in ("/robots.txt", "/robots-moved.txt"):
        return _robots(site, path, delay)
    if site.wall:
        return _walled(site.wall, path, delay)
    i = page_of(path)
    if i is not None:
        if i >= site.pages:
            return missing(delay)
        if earlier is not None and earlier < site.flaky_times and _is_flaky(web, number, i):
            return _failure(web, number, i, delay)
        sid = query if Trap.SESSION in site.traps else ""
        return _changing(web, number, i, address, generation, sid, delay)
    if path.startswith("/img/"):
        return Answer(200, render.picture(path), "image/png", delay=delay)
    return _trap(site, path, delay) or _odd(web, number, path, address, delay) or missing(delay)


def _robots(site: Site, path: str, delay: float) -> Answer:
    if site.robots is Robots.NONE:
        return missing(delay)
    if site.robots is Robots.ERROR:
        return Answer(500, b"broken", "text/plain", delay=delay)
    if site.robots is Robots.TIMEOUT:
        return Answer(0, manner=Manner.HANG, delay=delay)
    if site.robots is Robots.REDIRECT and path == "/robots.txt":
        return Answer(301, headers={"Location": "/robots-moved.txt"}, delay=delay)
    rule = {Robots.ALLOW: "Disallow:", Robots.DENY_ALL: "Disallow: /"}.get(site.robots, "Disallow: /private/")
    pause = f"Crawl-delay: {site.crawl_delay:g}\n" if site.crawl_delay else ""
    return Answer(200, f"User-agent: *\n{pause}{rule}\n".encode(), "text/plain; charset=utf-8", delay=delay)


def _walled(wall: Wall, path: str, delay: float) -> Answer:
    if wall is not Wall.LOGIN:
        retry_after = 1 if wall in (Wall.RATE_LIMITED, Wall.UNAVAILABLE) else None
        return Answer(int(wall), b"no", "text/plain", delay=delay, retry_after=retry_after)
    if path != "/login":
        return Answer(302, headers={"Location": "/login"}, delay=delay)
    form = (
        '<form method="post"><input name="user"><input type="password" name="password"><button>Log in</button></form>'
    )
    return Answer(200, render.html("Log in", form), delay=delay)


def _failure(web: Web, number: int, i: int, delay: float) -> Answer:
    way = draw(web.seed, number, "failure", i) % 3
    if way == 0:
        return Answer(500, b"try again", "text/plain", delay=delay)
    if way == 1:
        return Answer(0, manner=Manner.RESET, delay=delay)
    return Answer(200, render.html("cut", "<p>half a page</p>" * 20), manner=Manner.CUT, delay=delay)


def _changing(web: Web, number: int, i: int, address: Address, generation: int, sid: str, delay: float) -> Answer:
    site = web.site(number)
    changes = generation and site.changing and chance(web.seed, number, "changing", i) < site.changing
    version = generation if changes else 0
    die = draw(web.seed, number, "validators", i) % 3
    return Answer(
        200,
        render.page(web, number, i, address, version=version, sid=sid),
        delay=delay,
        etag=f'"{number}-{i}-{version}"' if die != 1 else None,
        modified=_date(version) if die != 0 else None,
    )


@lru_cache(maxsize=64)
def _date(version: int) -> str:
    return format_datetime(_BEGINNING + timedelta(days=version), usegmt=True)


def _trap(site: Site, path: str, delay: float) -> Answer | None:
    if Trap.CALENDAR in site.traps and path.startswith("/cal/"):
        numbers = path.removeprefix("/cal/").split("/")
        if len(numbers) in (2, 3) and all(n.isdecimal() and n.isascii() and len(n) < 6 for n in numbers):
            return Answer(200, render.calendar(int(numbers[0]), (int(numbers[1]) - 1) % 12 + 1), delay=delay)
    if Trap.ECHO in site.traps and path.startswith("/echo/") and not path.removeprefix("/").replace("echo/", ""):
        return Answer(200, render.html("echo", f'<a href="{path}echo/">echo</a>'), delay=delay)
    return None


def _odd(web: Web, number: int, path: str, address: Address, delay: float) -> Answer | None:
    """The answer of an odd URL; None if no page links to it."""
    kind, *steps = path[1:].split("/")
    if kind not in _ODD_KINDS or not steps:
        return None
    odd = Odd(kind)
    name = steps[0] if odd is Odd.LOOP else steps[-1]
    i = 0 if name == "home" else number_of(name)
    if i is None or (i == 0 and name != "home") or not _is_there(web, number, odd, i):
        return None
    if path not in _chain(odd, render.odd_path(web, number, odd, i)):
        return None
    return odd_answer(web, number, odd, i, path, address, delay)


def _is_there(web: Web, number: int, odd: Odd, i: int) -> bool:
    site = web.site(number)
    wanted = (odd, Odd.NOFOLLOW) if odd is Odd.HIDDEN else (odd,)
    return i < site.pages and any(chance(web.seed, number, each, i) < site.odd.get(each, 0.0) for each in wanted)
