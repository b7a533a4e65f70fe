"""The sitemaps of a site: an index, a packed one, one as text, a broken one, and the pages that only they list.

The rule: a site has them if `Site.listed` is not 0. robots.txt names the index; a site without a robots.txt has it where crawlers look by
custom.
"""

import gzip
from collections.abc import Iterator
from typing import Final

from holdfast.testing.simweb import render
from holdfast.testing.simweb.render import Response
from holdfast.testing.simweb.spec import Address, Robots, Site, Web
from holdfast.testing.simweb.url_names import draw, name_of, number_of

DEFAULT_PATH: Final = "/sitemap.xml"
"""Where crawlers look for a sitemap that nothing names."""
PRIVATE: Final = "/private/listed"
"""A page that a sitemap lists and robots.txt may disallow."""
_INDEX: Final = "/maps/index.xml"
_PACKED: Final = "/maps/pages.xml.gz"
_TEXT: Final = "/maps/pages.txt"
_BROKEN: Final = "/maps/broken.xml"
_LISTED: Final = "/listed/"
_LASTMOD: Final = "2024-01-01T00:00:00Z"


def index_of(site: Site) -> str | None:
    """The path of the index; None: the site has no sitemap."""
    if not site.listed:
        return None
    return DEFAULT_PATH if site.robots is Robots.NONE else _INDEX


def files_of(site: Site) -> tuple[str, ...]:
    """The paths of all sitemaps of a site."""
    index = index_of(site)
    return () if index is None else (index, _PACKED, _TEXT, _BROKEN)


def pages_of(site: Site) -> Iterator[str]:
    """The paths of the pages that only sitemaps list, except the one that robots.txt may disallow."""
    for number in range(site.listed):
        yield f"{_LISTED}{name_of(number)}"


def response(web: Web, number: int, path: str, address: Address, delay: float) -> Response | None:
    """The response to a path of a sitemap or of a page that only sitemaps list; None: it is none."""
    site = web.site(number)
    if path == PRIVATE or path.startswith(_LISTED):
        known = site.listed > 0 if path == PRIVATE else _is_listed(site, path)
        return _page(web, number, path, delay) if known else None
    if path not in files_of(site):
        return None
    origin = address.origin(number)
    pages = [f"{origin}{page}" for page in pages_of(site)]
    if path == _PACKED:  # also a page that links lead to
        packed = gzip.compress(_urlset([f"{origin}/", f"{origin}{PRIVATE}", *pages[::2]]), mtime=0)
        return Response(200, packed, "application/gzip", delay=delay)
    if path == _TEXT:
        return Response(200, "\n".join(pages[1::2]).encode(), "text/plain; charset=utf-8", delay=delay)
    if path == _BROKEN:  # it ends within an element; what is before that is listed by the others, too
        return Response(200, _urlset(pages[:1]).removesuffix(b"</urlset>") + b"<url><lo", "text/xml", delay=delay)
    locations = "".join(f"<sitemap><loc>{origin}{child}</loc></sitemap>" for child in (_PACKED, _TEXT, _BROKEN))
    return Response(200, f"<sitemapindex>{locations}</sitemapindex>".encode(), "application/xml", delay=delay)


def _is_listed(site: Site, path: str) -> bool:
    number = number_of(path.removeprefix(_LISTED))
    return number is not None and number < site.listed


def _page(web: Web, number: int, path: str, delay: float) -> Response:
    text = render.prose(web.seed, draw(web.seed, number, "listed", path), 300)
    return Response(200, render.html(f"Only in a sitemap: {path}", f"<p>{text}</p>"), delay=delay)


def _urlset(urls: list[str]) -> bytes:
    entries = "".join(f"<url><loc>{url}</loc><lastmod>{_LASTMOD}</lastmod></url>" for url in urls)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'.encode()
