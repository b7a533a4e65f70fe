"""What odd URLs answer: failures, redirects, and what is sent to hurt.

The rule: one function says it for all of them, and `Odd` is its list; an odd URL never leads to a page that no other leads to.
"""

from dataclasses import replace
from typing import Final

from holdfast.simweb import render
from holdfast.simweb.answer import Answer, Manner, missing
from holdfast.simweb.names import draw, path_of
from holdfast.simweb.plan import Address, Odd, Web

_FLOOD: Final = {f"X-Flood-{n}": "f" * 240 for n in range(4000)}
_STREAM: Final = b"<p>and so on and so on</p>" * 2500
_PLAIN_FAILURES: Final = {Odd.BROKEN: 500, Odd.UNAVAILABLE: 503, Odd.FORBIDDEN: 403}
_TITLED: Final = {
    Odd.PRIVATE: "Not for crawlers",
    Odd.HIDDEN: "Not to be followed",
    Odd.NOINDEX: "Not to be listed",
    Odd.NOFOLLOW: "Follow nothing from here",
    Odd.SLOW: "Patience",
}
_ROBOTS_META: Final = {Odd.NOINDEX: "noindex", Odd.NOFOLLOW: "nofollow"}


def odd_answer(web: Web, number: int, odd: Odd, i: int, path: str, address: Address, delay: float) -> Answer:
    """The answer of the odd URL of page *i* at *path*, which is known to be there."""
    if odd in (Odd.MISSING, Odd.GONE):
        return missing(delay, 404 if odd is Odd.MISSING else 410)
    if odd in _PLAIN_FAILURES:
        status = _PLAIN_FAILURES[odd]
        return Answer(status, b"no", "text/plain", delay=delay, retry_after=1 if status == 503 else None)
    if odd in (Odd.MOVED, Odd.LOOP, Odd.FAR, Odd.AWAY):
        return _redirect(web, number, odd, i, path, address, delay)
    if odd in _TITLED:
        return _titled(web, number, odd, i, path, delay)
    if odd is Odd.COPY:
        return Answer(200, render.page(web, number, i, address), delay=delay)
    return _nasty(web, number, odd, i, delay)


def _redirect(web: Web, number: int, odd: Odd, i: int, path: str, address: Address, delay: float) -> Answer:
    if odd is Odd.AWAY:
        return Answer(308, headers={"Location": render.foreign(web, number, i, address)}, delay=delay)
    if odd is Odd.LOOP:
        other = "b" if path.endswith("a") else "a"
        return Answer(302, headers={"Location": path[:-1] + other}, delay=delay)
    _, kind, hops, name = path.split("/")
    die = draw(web.seed, number, "target", f"{kind}/{i}")
    target = f"/{kind}/{int(hops) - 1}/{name}" if hops != "1" else path_of(die % web.site(number).pages)
    if die >> 63:  # absolute or relative: both are right, and a crawler must read both
        target = address.origin(number) + target
    return Answer(301 if odd is Odd.MOVED else 307, headers={"Location": target}, delay=delay)


def _titled(web: Web, number: int, odd: Odd, i: int, path: str, delay: float) -> Answer:
    head = f'<meta name="robots" content="{_ROBOTS_META[odd]}">' if odd in _ROBOTS_META else ""
    link = f'<a href="{render.odd_path(web, number, Odd.HIDDEN, i)}">hidden</a>' if odd is Odd.NOFOLLOW else ""
    text = render.prose(web.seed, draw(web.seed, number, odd, path), 300)
    body = render.html(f"{_TITLED[odd]}: {path}", f"{link}<p>{text}</p>", head)
    return Answer(200, body, delay=delay + (web.site(number).slow if odd is Odd.SLOW else 0))


def _nasty(web: Web, number: int, odd: Odd, i: int, delay: float) -> Answer:
    if odd is Odd.CHARSET:
        kind, body = render.in_charset(web, number, i)
        return Answer(200, body, kind, delay=delay)
    plain = render.html(f"{odd} {i}", "<p>Nothing good.</p>" * 20)
    answers = {
        Odd.RESET: lambda: Answer(0, manner=Manner.RESET),
        Odd.CUT: lambda: Answer(200, plain, manner=Manner.CUT),
        Odd.GARBAGE: lambda: Answer(0, b"\x00\xff\xfeSSH-2.0-nothing\r\n" * 20, manner=Manner.GARBAGE),
        Odd.HANG: lambda: Answer(0, manner=Manner.HANG),
        Odd.BINARY: lambda: Answer(200, b"%PDF-1.4\n" + bytes(range(256)) * 4, "application/pdf"),
        Odd.DRIP: lambda: Answer(200, plain, manner=Manner.DRIP),
        Odd.ENDLESS: lambda: Answer(200, _STREAM, manner=Manner.ENDLESS),
        Odd.HUGE: lambda: Answer(200, _STREAM, headers={"Content-Length": "10000000000"}, manner=Manner.ENDLESS),
        Odd.BOMB: lambda: Answer(200, render.bomb(), headers={"Content-Encoding": "gzip"}),
        Odd.HEADERS: lambda: Answer(200, plain, headers=_FLOOD),
        Odd.DEEP: lambda: Answer(200, render.deep()),
        Odd.WIDE: lambda: Answer(200, render.wide()),
        Odd.NUL: lambda: Answer(200, render.unclean(i)),
    }
    return replace(answers[odd](), delay=delay)
