"""The responses of a site, and the URLs that a complete crawl must have requested.

The rule: everything follows from (seed, site, path), the generation, and the number of earlier requests of the URL; the server keeps
those. The expected pages are an enumeration, not a walk: pages form a tree and special URLs are its leaves, so no page is reachable only
through a failure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from holdfast.testing.simweb import images, render, sitemaps
from holdfast.testing.simweb.render import Delivery, Response, not_found
from holdfast.testing.simweb.spec import Address, Robots, Site, SpecialUrl, Trap, Wall, Web
from holdfast.testing.simweb.special_urls import special_response
from holdfast.testing.simweb.url_names import chance, draw, number_of, page_of, path_of

_FIRST_VERSION_DATE: Final = datetime(2024, 1, 1, tzinfo=UTC)
_SPECIAL_KINDS: Final = frozenset(SpecialUrl)
CLOSED_BY_ROBOTS: Final = frozenset({Robots.DENY_ALL, Robots.ERROR, Robots.TIMEOUT})
"""Kinds of robots.txt under which nothing may be requested."""
PARTLY_DENIED: Final = frozenset({Robots.DENY, Robots.REDIRECT})
"""Kinds of robots.txt under which /private/ must not be requested."""


class UrlKind(StrEnum):
    """How a complete crawl treats a URL."""

    PAGE = "page"
    FLAKY = "flaky"
    """A page, after a retry."""
    REDIRECT = "redirect"
    FAILING = "failing"
    """Requested, perhaps with retries, and failed."""
    OTHER = "other"
    """A response that is not a page."""
    HOSTILE = "hostile"
    """Requested; the result depends on the limits of the crawler."""
    DENIED = "denied"
    """Never requested: disallowed by robots.txt."""
    HIDDEN = "hidden"
    """Never requested: all links to it are nofollow."""
    OPTIONAL = "optional"
    """May be requested or not."""


MUST_NOT_FETCH: Final = frozenset({UrlKind.DENIED, UrlKind.HIDDEN})
MUST_FETCH: Final = frozenset(UrlKind) - MUST_NOT_FETCH - {UrlKind.OPTIONAL}


@dataclass(frozen=True, slots=True)
class ExpectedPage:
    """A URL and how a complete crawl must treat it."""

    url: str
    status: int | None
    """Status of the final response; None: no response, or it depends on the crawler."""
    kind: UrlKind


_EXPECTED_RESULTS: Final[dict[SpecialUrl, tuple[int | None, UrlKind]]] = {
    SpecialUrl.MISSING: (404, UrlKind.OTHER),
    SpecialUrl.GONE: (410, UrlKind.OTHER),
    SpecialUrl.BROKEN: (500, UrlKind.FAILING),
    SpecialUrl.UNAVAILABLE: (503, UrlKind.FAILING),
    SpecialUrl.FORBIDDEN: (403, UrlKind.FAILING),
    SpecialUrl.RESET: (None, UrlKind.FAILING),
    SpecialUrl.CUT: (None, UrlKind.FAILING),
    SpecialUrl.GARBAGE: (None, UrlKind.FAILING),
    SpecialUrl.HANG: (None, UrlKind.FAILING),
    SpecialUrl.PRIVATE: (200, UrlKind.PAGE),
    SpecialUrl.HIDDEN: (200, UrlKind.HIDDEN),
    SpecialUrl.NOFOLLOW: (200, UrlKind.PAGE),
    SpecialUrl.NOINDEX: (200, UrlKind.PAGE),
    SpecialUrl.COPY: (200, UrlKind.PAGE),
    SpecialUrl.CHARSET: (200, UrlKind.PAGE),
    SpecialUrl.BINARY: (200, UrlKind.OTHER),
    SpecialUrl.MOVED: (301, UrlKind.REDIRECT),
    SpecialUrl.LOOP: (302, UrlKind.REDIRECT),
    SpecialUrl.FAR: (307, UrlKind.REDIRECT),
    SpecialUrl.AWAY: (308, UrlKind.REDIRECT),
    SpecialUrl.SLOW: (200, UrlKind.PAGE),
    SpecialUrl.DRIP: (None, UrlKind.HOSTILE),
    SpecialUrl.ENDLESS: (None, UrlKind.HOSTILE),
    SpecialUrl.HUGE: (None, UrlKind.HOSTILE),
    SpecialUrl.BOMB: (None, UrlKind.HOSTILE),
    SpecialUrl.HEADERS: (None, UrlKind.HOSTILE),
    SpecialUrl.DEEP: (200, UrlKind.PAGE),
    SpecialUrl.WIDE: (200, UrlKind.PAGE),
    SpecialUrl.NUL: (200, UrlKind.PAGE),
}


def expected(web: Web, number: int, origin: str = "", *, max_redirects: int = 5) -> Iterator[ExpectedPage]:
    """Every URL of the site that a complete crawl from "/" (scope: the host) can find by links and sitemaps, once each, except those in
    traps."""
    site = web.site(number)
    if site.wall and site.robots not in CLOSED_BY_ROBOTS:
        login = site.wall is Wall.LOGIN
        yield ExpectedPage(
            f"{origin}/", 302 if login else int(site.wall), UrlKind.REDIRECT if login else UrlKind.FAILING
        )
        if login:
            yield ExpectedPage(f"{origin}/login", 200, UrlKind.OPTIONAL)
        return
    for path, status, kind in _paths(web, number, max_redirects):
        yield ExpectedPage(f"{origin}{path}", status, UrlKind.DENIED if site.robots in CLOSED_BY_ROBOTS else kind)
    if site.robots not in CLOSED_BY_ROBOTS:
        for path, status, kind in _listed(site):
            yield ExpectedPage(f"{origin}{path}", status, kind)


def _listed(site: Site) -> Iterator[tuple[str, int | None, UrlKind]]:
    """The sitemaps of a site and what only they list."""
    if not site.listed:
        return
    for path in sitemaps.files_of(site):
        yield path, 200, UrlKind.OTHER
    for path in sitemaps.pages_of(site):
        yield path, 200, UrlKind.PAGE
    yield sitemaps.PRIVATE, 200, UrlKind.DENIED if site.robots in PARTLY_DENIED else UrlKind.PAGE


def _paths(web: Web, number: int, max_redirects: int) -> Iterator[tuple[str, int | None, UrlKind]]:
    site = web.site(number)
    for i in range(site.pages):
        yield path_of(i), 200, UrlKind.FLAKY if _is_flaky(web, number, i) else UrlKind.PAGE
        present = [special for special, share in site.odd.items() if chance(web.seed, number, special, i) < share]
        for special in present:
            status, kind = _EXPECTED_RESULTS[special]
            if special is SpecialUrl.PRIVATE and site.robots in PARTLY_DENIED:
                kind = UrlKind.DENIED
            path = render.special_path(web, number, special, i)
            for step, hop in enumerate(_chain(special, path)):
                yield hop, status, kind if step <= max_redirects else UrlKind.OPTIONAL
        if SpecialUrl.NOFOLLOW in present and SpecialUrl.HIDDEN not in present:
            yield render.special_path(web, number, SpecialUrl.HIDDEN, i), 200, UrlKind.HIDDEN


def _chain(special: SpecialUrl, path: str) -> list[str]:
    """The redirect chain that starts at *path*, within the site."""
    if special is SpecialUrl.LOOP:
        return [path, f"{path[:-1]}b"]
    if special in (SpecialUrl.MOVED, SpecialUrl.FAR):
        _, kind, hops, name = path.split("/")
        return [f"/{kind}/{hop}/{name}" for hop in range(int(hops), 0, -1)]
    return [path]


def _is_flaky(web: Web, number: int, i: int) -> bool:
    site = web.site(number)
    return i > 0 and site.flaky_times > 0 and site.flaky > 0 and chance(web.seed, number, "flaky", i) < site.flaky


def is_trap(path: str) -> bool:
    """Whether *path* (with its query) belongs to a crawler trap."""
    return path.startswith(("/cal/", "/echo/")) or "jsessionid=" in path.partition("?")[2]


def page(
    web: Web, number: int, target: str, address: Address, *, generation: int = 0, previous_requests: int | None = None
) -> Response:
    """The response of site *number* to *target* (path and query), after *previous_requests* requests of it.

    None: as many as it takes until a flaky page does not fail any more.
    """
    site = web.site(number)
    path, _, query = target.partition("?")
    delay = site.latency + (site.jitter * chance(web.seed, number, "latency", path) if site.jitter else 0.0)
    if path in ("/robots.txt", "/robots-moved.txt"):
        return _robots_response(site, path, address.origin(number), delay)
    if site.wall:
        return _wall_response(site.wall, path, delay)
    i = page_of(path)
    if i is not None:
        if i >= site.pages:
            return not_found(delay)
        if previous_requests is not None and previous_requests < site.flaky_times and _is_flaky(web, number, i):
            return _flaky_response(web, number, i, delay)
        sid = query if Trap.SESSION in site.traps else ""
        return _page_response(web, number, i, address, generation, sid, delay)
    if (answer := images.response(web, number, path, address, delay)) is not None:
        return answer
    if (answer := sitemaps.response(web, number, path, address, delay)) is not None:
        return answer
    return _trap_response(site, path, delay) or _special_response(web, number, path, address, delay) or not_found(delay)


def _robots_response(site: Site, path: str, origin: str, delay: float) -> Response:
    if site.robots is Robots.NONE:
        return not_found(delay)
    if site.robots is Robots.ERROR:
        return Response(500, b"broken", "text/plain", delay=delay)
    if site.robots is Robots.TIMEOUT:
        return Response(0, delivery=Delivery.HANG, delay=delay)
    if site.robots is Robots.REDIRECT and path == "/robots.txt":
        return Response(301, headers={"Location": "/robots-moved.txt"}, delay=delay)
    rule = {Robots.ALLOW: "Disallow:", Robots.DENY_ALL: "Disallow: /"}.get(site.robots, "Disallow: /private/")
    pause = f"Crawl-delay: {site.crawl_delay:g}\n" if site.crawl_delay else ""
    index = sitemaps.index_of(site)
    named = "" if index is None else f"Sitemap: {origin}{index}\n"
    return Response(200, f"User-agent: *\n{pause}{rule}\n{named}".encode(), "text/plain; charset=utf-8", delay=delay)


def _wall_response(wall: Wall, path: str, delay: float) -> Response:
    if wall is not Wall.LOGIN:
        retry_after = 1 if wall in (Wall.RATE_LIMITED, Wall.UNAVAILABLE) else None
        return Response(int(wall), b"no", "text/plain", delay=delay, retry_after=retry_after)
    if path != "/login":
        return Response(302, headers={"Location": "/login"}, delay=delay)
    form = (
        '<form method="post"><input name="user"><input type="password" name="password"><button>Log in</button></form>'
    )
    return Response(200, render.html("Log in", form), delay=delay)


def _flaky_response(web: Web, number: int, i: int, delay: float) -> Response:
    variant = draw(web.seed, number, "failure", i) % 3
    if variant == 0:
        return Response(500, b"try again", "text/plain", delay=delay)
    if variant == 1:
        return Response(0, delivery=Delivery.RESET, delay=delay)
    return Response(200, render.html("cut", "<p>half a page</p>" * 20), delivery=Delivery.CUT, delay=delay)


def _page_response(
    web: Web, number: int, i: int, address: Address, generation: int, sid: str, delay: float
) -> Response:
    site = web.site(number)
    changes = generation and site.changing and chance(web.seed, number, "changing", i) < site.changing
    version = generation if changes else 0
    bits = draw(web.seed, number, "validators", i) % 3
    return Response(
        200,
        render.page(web, number, i, address, version=version, sid=sid),
        delay=delay,
        etag=f'"{number}-{i}-{version}"' if bits != 1 else None,
        modified=_date(version) if bits != 0 else None,
    )


@lru_cache(maxsize=64)
def _date(version: int) -> str:
    return format_datetime(_FIRST_VERSION_DATE + timedelta(days=version), usegmt=True)


def _trap_response(site: Site, path: str, delay: float) -> Response | None:
    if Trap.CALENDAR in site.traps and path.startswith("/cal/"):
        numbers = path.removeprefix("/cal/").split("/")
        if len(numbers) in (2, 3) and all(n.isdecimal() and n.isascii() and len(n) < 6 for n in numbers):
            return Response(200, render.calendar(int(numbers[0]), (int(numbers[1]) - 1) % 12 + 1), delay=delay)
    if Trap.ECHO in site.traps and path.startswith("/echo/") and not path.removeprefix("/").replace("echo/", ""):
        return Response(200, render.html("echo", f'<a href="{path}echo/">echo</a>'), delay=delay)
    return None


def _special_response(web: Web, number: int, path: str, address: Address, delay: float) -> Response | None:
    """The response of a special URL; None if no page links to it."""
    kind, *steps = path[1:].split("/")
    if kind not in _SPECIAL_KINDS or not steps:
        return None
    special = SpecialUrl(kind)
    name = steps[0] if special is SpecialUrl.LOOP else steps[-1]
    i = 0 if name == "home" else number_of(name)
    if i is None or (i == 0 and name != "home") or not _exists(web, number, special, i):
        return None
    if path not in _chain(special, render.special_path(web, number, special, i)):
        return None
    return special_response(web, number, special, i, path, address, delay)


def _exists(web: Web, number: int, special: SpecialUrl, i: int) -> bool:
    site = web.site(number)
    wanted = (special, SpecialUrl.NOFOLLOW) if special is SpecialUrl.HIDDEN else (special,)
    return i < site.pages and any(chance(web.seed, number, each, i) < site.odd.get(each, 0.0) for each in wanted)
