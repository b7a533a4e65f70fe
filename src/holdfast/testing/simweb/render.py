"""Responses as values: the bytes of pages, images and hostile content, and the way in which they are delivered.

The rule: bytes follow from the seed and the number of the page; requests are not known here. A response has everything that the server
needs to send it.
"""

import gzip
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from holdfast.testing.simweb.image_urls import elements
from holdfast.testing.simweb.spec import Address, SpecialUrl, Trap, Web
from holdfast.testing.simweb.url_names import chance, draw, draws, path_of

_WORDS: Final = (
    "the of and a to in is it you that was for on are with as his they be at one have this from or had by hot but some what there "
    "we can out other were all your when up use word how said an each she which do their time if will way about many then them "
    "would write like so these her long make thing see him two has look more day could go come did my sound no most number who "
    "over know water than call first people may down side been now find any new work part take get place made live where after"
)
_POOL: Final = 1 << 18
_SAMPLES: Final = (
    ("windows-1251", "Свет мой, зеркальце! скажи, да всю правду доложи"),
    ("shift_jis", "吾輩は猫である。名前はまだ無い。"),
    ("gb18030", "道可道非常道。名可名非常名。"),
    ("iso-8859-1", "Voix ambiguë d'un cœur qui au zéphyr préfère".replace("œ", "oe")),
    ("utf-16-le", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία"),
    ("euc-kr", "다람쥐 헌 쳇바퀴에 타고파"),
)


@lru_cache(maxsize=4)
def _pool(seed: int) -> str:
    """Random words without markup, of which the text of pages is cut."""
    words = random.Random(seed).choices(_WORDS.split(), k=_POOL // 4)  # noqa: S311
    return " ".join(words)


def prose(seed: int, start: int, length: int) -> str:
    """*length* characters of random words, from position *start*."""
    pool = _pool(seed)
    start %= len(pool) // 2
    text = pool[start : start + length]
    return (
        text
        if len(text) == length
        else text + pool * ((length - len(text)) // len(pool)) + pool[: (length - len(text)) % len(pool)]
    )


def html(title: str, body: str, head: str = "") -> bytes:
    """A plain page in UTF-8."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>{head}</head>'
        f"<body><h1>{title}</h1>{body}</body></html>"
    ).encode()


def page(web: Web, number: int, i: int, address: Address, *, version: int = 0, sid: str = "") -> bytes:
    """Page *i* of site *number*: links, images, then text up to `Site.body_bytes`."""
    site, seed, path = web.site(number), web.seed, path_of(i)
    branch = site.branch
    children = range(i * branch + 1, min((i + 1) * branch + 1, site.pages))
    bits = draws(seed, number, "links", i, max(0, site.links - 1 - len(children)) + 1)
    links = [_link(0), *map(_link, children), *[_link(bit % site.pages) for bit in bits[1:]]]
    for special, share in site.odd.items():
        if chance(seed, number, special, i) < share:
            rel = ' rel="nofollow"' if special is SpecialUrl.HIDDEN else ""
            links.append(f'<a href="{special_path(web, number, special, i)}"{rel}>{special}</a>')
    if web.sites > 1 and site.external and chance(seed, number, "external", i) < site.external:
        links.append(f'<a href="{external_link(web, number, i, address)}">elsewhere</a>')
    links += _trap_links(web, number, i, path, sid)
    image_metadata, images = elements(web, number, i, address) if site.images else ("", "")
    title = f"{path[1:].replace('/', ' ') or 'home'} of site {number}, version {version}"
    head = f'<meta name="description" content="Page {i} of {site.pages}"><link rel="canonical" href="{path}">{image_metadata}'
    body = f"<nav>{' '.join(links)}</nav>{images}<p>"
    missing = site.body_bytes - len(body) - len(head) - 2 * len(title) - 130
    return html(title, f"{body}{prose(seed, bits[0] + version, max(0, missing))}</p>", head)


@lru_cache(maxsize=1 << 16)  # pages of all sites have the same paths, and a page of a benchmark has fifty links
def _link(i: int) -> str:
    path = path_of(i)
    return f'<a href="{path}">{path}</a>'


def _trap_links(web: Web, number: int, i: int, path: str, sid: str) -> list[str]:
    traps = web.site(number).traps
    links = []
    if i == 0 and Trap.CALENDAR in traps:
        links.append('<a href="/cal/2024/1">calendar</a>')
    if i == 0 and Trap.ECHO in traps:
        links.append('<a href="/echo/">echo</a>')
    if Trap.SESSION in traps:  # another id on every page and under every id: infinite for a crawler that keeps it
        links.append(f'<a href="{path}?jsessionid={draw(web.seed, number, "sid", path + sid):016x}">you</a>')
    return links


def calendar(year: int, month: int) -> bytes:
    """A page of a month, with links to the months and years around it and to three of its days."""
    after, before = (year + month // 12, month % 12 + 1), (year - (month == 1), (month - 2) % 12 + 1)
    months = [after, before, (year + 1, month), (year - 1, month)]
    links = [f'<a href="/cal/{y}/{m}">{y}-{m}</a>' for y, m in months]
    links += [f'<a href="/cal/{year}/{month}/{day}">{day}</a>' for day in (1, 2, 3)]
    return html(f"Month {month} of {year}", " ".join(links))


def special_path(web: Web, number: int, special: SpecialUrl, name: int) -> str:
    """The path of the special URL of a page (of a redirect chain: its start)."""
    path = path_of(name)[1:].rpartition("/")[2] or "home"
    if special is SpecialUrl.LOOP:
        return f"/loop/{path}/a"
    if special is SpecialUrl.MOVED:
        return f"/moved/{1 + draw(web.seed, number, 'hops', name) % 3}/{path}"
    if special is SpecialUrl.FAR:
        return f"/far/10/{path}"
    return f"/{special}/{path}"


def external_link(web: Web, number: int, i: int, address: Address) -> str:
    """The URL of a page of another site, if there is one."""
    bit = draw(web.seed, number, "foreign", i)
    other = (number + 1 + bit % max(1, web.sites - 1)) % web.sites
    return address.origin(other) + path_of((bit >> 32) % web.site(other).pages)


def page_in_charset(web: Web, number: int, i: int) -> tuple[str, bytes]:
    """The Content-Type and the page, in a charset that is declared by header, by meta tag, or not at all."""
    bit = draw(web.seed, number, "charset", i)
    charset, sample = _SAMPLES[bit % len(_SAMPLES)]
    declared_by = (bit >> 16) % 3
    meta = f'<meta charset="{charset}">' if declared_by == 1 else ""
    text = f"<!doctype html><html><head>{meta}<title>{sample} {i}</title></head><body><p>{sample}</p></body></html>"
    return "text/html" + (f"; charset={charset}" if declared_by == 0 else ""), text.encode(charset)


@lru_cache(maxsize=1)
def bomb() -> bytes:
    """100 MB of zero bytes, compressed to about 100 KB."""
    return gzip.compress(bytes(100 << 20), compresslevel=9, mtime=0)


@lru_cache(maxsize=1)
def deep() -> bytes:
    """Half a megabyte of nested elements."""
    return html("deep", "<div>" * 50_000 + "bottom" + "</div>" * 50_000)


@lru_cache(maxsize=1)
def wide() -> bytes:
    """One element with 60 000 attributes."""
    return html("wide", f"<p {' '.join(f'a{n}={n}' for n in range(60_000))}>text</p>")


def control_characters(i: int) -> bytes:
    """A page with NUL bytes, escape sequences, lone surrogates and markup in the title."""
    title = f"nul\0 \x1b[31mred\x1b[0m &lt;script&gt;alert({i})&lt;/script&gt; &#xD800; &#0; =1+1".encode()
    body = b"<p>\0\xed\xa0\x80 \xff\xfe &#xDFFF; \x07 text</p>"
    return b"<!doctype html><html><head><title>" + title + b"</title></head><body>" + body + b"</body></html>"


HTML: Final = "text/html; charset=utf-8"


class Delivery(Enum):
    """How a response is delivered."""

    PLAIN = "head and body"
    CUT = "half of the body, then the end of the connection"
    RESET = "a reset instead of an answer"
    HANG = "nothing, until the client gives up"
    GARBAGE = "the body alone, then the end of the connection"
    DRIP = "a byte at a time"
    ENDLESS = "the body again and again, chunked unless a length is declared"


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: int
    body: bytes = b""
    content_type: str = HTML
    """The Content-Type header."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Delivery = Delivery.PLAIN
    delay: float = 0.0
    """Seconds before the response is sent."""
    etag: str | None = None
    modified: str | None = None
    retry_after: int | None = None


def not_found(delay: float, status: int = 404) -> Response:
    """The response for a page that does not exist."""
    return Response(status, html(str(status), "<p>There is no such page.</p>"), delay=delay)
