"""The bytes of pages, pictures and of what is only sent to hurt.

The rule: bytes follow from the seed and the page's number; nothing here knows of requests.
"""

import gzip
import random
import struct
import zlib
from functools import lru_cache
from typing import Final

from holdfast.simweb.names import chance, draw, draws, path_of
from holdfast.simweb.plan import Address, Odd, Trap, Web

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
    """Prose without meaning or markup, from which pages cut theirs."""
    words = random.Random(seed).choices(_WORDS.split(), k=_POOL // 4)  # noqa: S311
    return " ".join(words)


def prose(seed: int, start: int, length: int) -> str:
    """*length* characters of it from somewhere."""
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
    """Page *i* of site *number*: its links, its pictures, then prose up to the length that the site's pages have."""
    site, seed, path = web.site(number), web.seed, path_of(i)
    branch = site.branch
    children = range(i * branch + 1, min((i + 1) * branch + 1, site.pages))
    dice = draws(seed, number, "links", i, max(0, site.links - 1 - len(children)) + 1)
    links = [_link(0), *map(_link, children), *[_link(die % site.pages) for die in dice[1:]]]
    for odd, share in site.odd.items():
        if chance(seed, number, odd, i) < share:
            rel = ' rel="nofollow"' if odd is Odd.HIDDEN else ""
            links.append(f'<a href="{odd_path(web, number, odd, i)}"{rel}>{odd}</a>')
    if web.sites > 1 and site.external and chance(seed, number, "external", i) < site.external:
        links.append(f'<a href="{foreign(web, number, i, address)}">elsewhere</a>')
    links += _into_traps(web, number, i, path, sid)
    images = "".join(
        f'<img src="/img/{draw(seed, number, "image", f"{i}/{n}"):016x}.png" alt="picture {n}">'
        for n in range(site.images)
    )
    title = f"{path[1:].replace('/', ' ') or 'home'} of site {number}, version {version}"
    head = f'<meta name="description" content="Page {i} of {site.pages}"><link rel="canonical" href="{path}">'
    body = f"<nav>{' '.join(links)}</nav>{images}<p>"
    missing = site.body_bytes - len(body) - len(head) - 2 * len(title) - 130
    return html(title, f"{body}{prose(seed, dice[0] + version, max(0, missing))}</p>", head)


@lru_cache(maxsize=1 << 16)  # pages of all sites bear the same names, and a page of a benchmark has fifty of them
def _link(i: int) -> str:
    path = path_of(i)
    return f'<a href="{path}">{path}</a>'


def _into_traps(web: Web, number: int, i: int, path: str, sid: str) -> list[str]:
    traps = web.site(number).traps
    links = []
    if i == 0 and Trap.CALENDAR in traps:
        links.append('<a href="/cal/2024/1">calendar</a>')
    if i == 0 and Trap.ECHO in traps:
        links.append('<a href="/echo/">echo</a>')
    if Trap.SESSION in traps:  # another id on every page and under every id: who keeps it never ends
        links.append(f'<a href="{path}?jsessionid={draw(web.seed, number, "sid", path + sid):016x}">you</a>')
    return links


def calendar(year: int, month: int) -> bytes:
    """A month that leads to the months and years around it and to three of its days."""
    after, before = (year + month // 12, month % 12 + 1), (year - (month == 1), (month - 2) % 12 + 1)
    months = [after, before, (year + 1, month), (year - 1, month)]
    links = [f'<a href="/cal/{y}/{m}">{y}-{m}</a>' for y, m in months]
    links += [f'<a href="/cal/{year}/{month}/{day}">{day}</a>' for day in (1, 2, 3)]
    return html(f"Month {month} of {year}", " ".join(links))


def odd_path(web: Web, number: int, odd: Odd, name: int) -> str:
    """Where the odd URL of that page is (of a chain: where it begins)."""
    path = path_of(name)[1:].rpartition("/")[2] or "home"
    if odd is Odd.LOOP:
        return f"/loop/{path}/a"
    if odd is Odd.MOVED:
        return f"/moved/{1 + draw(web.seed, number, 'hops', name) % 3}/{path}"
    if odd is Odd.FAR:
        return f"/far/10/{path}"
    return f"/{odd}/{path}"


def foreign(web: Web, number: int, i: int, address: Address) -> str:
    """A page of another site, if there is one."""
    die = draw(web.seed, number, "foreign", i)
    other = (number + 1 + die % max(1, web.sites - 1)) % web.sites
    return address.origin(other) + path_of((die >> 32) % web.site(other).pages)


def picture(name: str) -> bytes:
    """A small PNG of one colour."""
    colour = zlib.crc32(name.encode()).to_bytes(4, "big")[:3]
    rows = (b"\0" + colour * 8) * 8

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def in_charset(web: Web, number: int, i: int) -> tuple[str, bytes]:
    """The Content-Type and the page, in a charset that is told by header, by meta, or by nobody."""
    die = draw(web.seed, number, "charset", i)
    charset, sample = _SAMPLES[die % len(_SAMPLES)]
    told = (die >> 16) % 3
    meta = f'<meta charset="{charset}">' if told == 1 else ""
    text = f"<!doctype html><html><head>{meta}<title>{sample} {i}</title></head><body><p>{sample}</p></body></html>"
    return "text/html" + (f"; charset={charset}" if told == 0 else ""), text.encode(charset)


@lru_cache(maxsize=1)
def bomb() -> bytes:
    """100 MB of nothing, packed: about 100 KB."""
    return gzip.compress(bytes(100 << 20), compresslevel=9, mtime=0)


@lru_cache(maxsize=1)
def deep() -> bytes:
    """Half a megabyte of elements within elements."""
    return html("deep", "<div>" * 50_000 + "bottom" + "</div>" * 50_000)


@lru_cache(maxsize=1)
def wide() -> bytes:
    """One element with more attributes than any parser likes."""
    return html("wide", f"<p {' '.join(f'a{n}={n}' for n in range(60_000))}>text</p>")


def unclean(i: int) -> bytes:
    """What a terminal, a database or a careless dashboard would choke on."""
    title = f"nul\0 \x1b[31mred\x1b[0m &lt;script&gt;alert({i})&lt;/script&gt; &#xD800; &#0; =1+1".encode()
    body = b"<p>\0\xed\xa0\x80 \xff\xfe &#xDFFF; \x07 text</p>"
    return b"<!doctype html><html><head><title>" + title + b"</title></head><body>" + body + b"</body></html>"
