"""Named specs of simulated webs.

The rule: the docstring of a preset says what it contains, and no page is more than 9 links deep, so that a crawl with the default depth
reaches all of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.errors import UsageError
from holdfast.testing.simweb.spec import ImageKind, Robots, Site, SpecialUrl, Trap, Wall, Web
from holdfast.testing.simweb.url_names import chance, draw

_COMMON: Final = {
    SpecialUrl.MISSING: 0.05,
    SpecialUrl.MOVED: 0.05,
    SpecialUrl.COPY: 0.03,
    SpecialUrl.HIDDEN: 0.02,
    SpecialUrl.PRIVATE: 0.03,
}


def _demo(seed: int) -> Web:
    """A dozen friendly sites with a few dead links, redirects and images; all fast."""
    site = Site(40, 10, 6000, images=2, external=0.1, latency=0.02, jitter=0.06, robots=Robots.DENY, odd=_COMMON)
    return Web(seed, 12, site, {0: replace(site, pages=120), 7: replace(site, flaky=0.05), 11: Site(1)})


def _torture(seed: int) -> Web:
    """For crawls under faults: many special URLs, but none whose result depends on time or chance."""
    odd = {
        **_COMMON,
        **dict.fromkeys(
            (
                SpecialUrl.GONE,
                SpecialUrl.BROKEN,
                SpecialUrl.LOOP,
                SpecialUrl.FAR,
                SpecialUrl.AWAY,
                SpecialUrl.NOFOLLOW,
                SpecialUrl.NOINDEX,
            ),
            0.01,
        ),
        **dict.fromkeys((SpecialUrl.CHARSET, SpecialUrl.BINARY, SpecialUrl.NUL), 0.02),
    }
    site = Site(200, 20, 4000, images=1, external=0.1, latency=0.002, jitter=0.01, robots=Robots.DENY, flaky=0.03)
    return Web(seed, 8, replace(site, odd=odd), {7: Site(1)})


def _hostile(seed: int) -> Web:
    """Fifty good sites (0 to 49), followed by one of each hostile kind."""
    good = Site(30, 10, 4000, latency=0.005, jitter=0.02, external=0.05)
    bad = Site(10, 4, 2000)
    kinds = (
        SpecialUrl.DRIP,
        SpecialUrl.ENDLESS,
        SpecialUrl.HUGE,
        SpecialUrl.BOMB,
        SpecialUrl.HEADERS,
        SpecialUrl.DEEP,
        SpecialUrl.WIDE,
        SpecialUrl.NUL,
        SpecialUrl.GARBAGE,
        SpecialUrl.RESET,
        SpecialUrl.CUT,
        SpecialUrl.HANG,
        SpecialUrl.LOOP,
        SpecialUrl.FAR,
        SpecialUrl.CHARSET,
    )
    nasty = [
        *(replace(bad, odd={kind: 1.0}) for kind in kinds),
        *(replace(bad, traps=(trap,)) for trap in Trap),
        *(replace(bad, wall=wall) for wall in Wall if wall),
        *(replace(bad, robots=robots) for robots in (Robots.DENY_ALL, Robots.ERROR, Robots.TIMEOUT)),
    ]
    return Web(seed, 50 + len(nasty), good, {50 + n: site for n, site in enumerate(nasty)})


def _polite(seed: int) -> Web:
    """Sites for politeness checks: each kind of robots.txt, a Crawl-delay, rate limits."""
    site = Site(12, 6, 1500, odd={SpecialUrl.PRIVATE: 0.3, SpecialUrl.HIDDEN: 0.2})
    special = {n: replace(site, robots=robots) for n, robots in enumerate(Robots)}
    special[len(special)] = replace(site, robots=Robots.DENY, crawl_delay=1.0)
    special[len(special)] = replace(site, rate_limit=4, rate_window=1.0)
    special[len(special)] = replace(site, rate_limit=1, rate_window=0.5, latency=0.05)
    return Web(seed, len(special), site, special)


def _sitemaps(seed: int) -> Web:
    """Sites with pages that only their sitemaps list: named by robots.txt or found by custom; one site has none."""
    site = Site(20, 8, 2000, latency=0.002, jitter=0.01, robots=Robots.DENY, listed=30)
    special = {
        1: replace(site, robots=Robots.NONE),
        2: replace(site, robots=Robots.REDIRECT),
        3: replace(site, listed=0),
    }
    return Web(seed, 5, site, {**special, 4: replace(site, crawl_delay=0.5)})


def _images(seed: int) -> Web:
    """Sites that show images, bombs among them: two with theirs on a host without robots.txt, one on a host that denies /private/ and asks
    for a delay, one on itself."""
    kinds = tuple(kind for kind in ImageKind if kind is not ImageKind.PLAIN)
    odd = {SpecialUrl.COPY: 0.1, SpecialUrl.MISSING: 0.1}
    site = Site(
        30, 8, 2000, images=5, gallery=2 * len(kinds), image_kinds=kinds, image_host=4, robots=Robots.DENY, odd=odd
    )
    own = replace(site, image_kinds=tuple(kind for kind in kinds if kind is not ImageKind.AWAY), image_host=None)
    hosts = {4: Site(1, robots=Robots.NONE), 5: Site(1, robots=Robots.DENY, crawl_delay=0.1)}
    return Web(seed, 6, site, {2: replace(site, gallery=len(kinds), image_host=5), 3: own, **hosts})


def _fast(seed: int) -> Web:
    """For benchmarks: plain pages of 20 KB with 50 links, without latency."""
    return Web(seed, 100, Site(10_000, 50, 20_000))


def _mixed(seed: int) -> Web:
    """Two hundred sites, most of them small, some large, some slow, some broken."""
    special = {}
    for n in range(200):
        special[n] = Site(
            pages=1 + int(600 * chance(seed, n, "pages") ** 4),
            links=5 + draw(seed, n, "links") % 40,
            body_bytes=1000 + draw(seed, n, "bytes") % 30_000,
            images=draw(seed, n, "images") % 4,
            external=0.2,
            latency=0.3 * chance(seed, n, "latency") ** 3,
            jitter=0.05,
            robots=(Robots.NONE, Robots.ALLOW, Robots.DENY)[draw(seed, n, "robots") % 3],
            flaky=0.02,
            changing=0.2,
            odd={**_COMMON, SpecialUrl.BROKEN: 0.02, SpecialUrl.BINARY: 0.02, SpecialUrl.CHARSET: 0.02},
        )
    return Web(seed, len(special), special=special)


PRESETS: Final[dict[str, Callable[[int], Web]]] = {
    "demo": _demo,
    "torture": _torture,
    "hostile": _hostile,
    "polite": _polite,
    "sitemaps": _sitemaps,
    "images": _images,
    "fast": _fast,
    "mixed": _mixed,
}


def preset(
    name: str, *, seed: int = 1, sites: int | None = None, pages: int | None = None, by_port: bool = False
) -> Web:
    """The web of that name. *sites* sets the number of sites, *pages* the size of the default site."""
    make = PRESETS.get(name)
    if make is None:
        raise UsageError(f"There is no web called {name!r}; there are {', '.join(PRESETS)}.")
    web = make(seed)
    count = web.sites if sites is None else sites
    default = web.default if pages is None else replace(web.default, pages=pages)
    special = {n: site for n, site in web.special.items() if n < count}
    return replace(web, sites=count, default=default, special=special, by_port=by_port)
