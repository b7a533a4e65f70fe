"""The responses of special URLs: failures, redirects, hostile content.

The rule: one function covers all kinds of `SpecialUrl`; a special URL never links to a page that is not linked otherwise.
"""

from dataclasses import replace
from typing import Final

from holdfast.testing.simweb import render
from holdfast.testing.simweb.render import Delivery, Response, not_found
from holdfast.testing.simweb.spec import Address, SpecialUrl, Web
from holdfast.testing.simweb.url_names import draw, path_of

_MANY_HEADERS: Final = {f"X-Flood-{n}": "f" * 240 for n in range(4000)}
_STREAM: Final = b"<p>and so on and so on</p>" * 2500
_PLAIN_FAILURES: Final = {SpecialUrl.BROKEN: 500, SpecialUrl.UNAVAILABLE: 503, SpecialUrl.FORBIDDEN: 403}
_TITLES: Final = {
    SpecialUrl.PRIVATE: "Not for crawlers",
    SpecialUrl.HIDDEN: "Not to be followed",
    SpecialUrl.NOINDEX: "Not to be listed",
    SpecialUrl.NOFOLLOW: "Follow nothing from here",
    SpecialUrl.SLOW: "Patience",
}
_ROBOTS_META: Final = {SpecialUrl.NOINDEX: "noindex", SpecialUrl.NOFOLLOW: "nofollow"}


def special_response(
    web: Web, number: int, special: SpecialUrl, i: int, path: str, address: Address, delay: float
) -> Response:
    """The response of the special URL of page *i* at *path*. Before: it exists."""
    if special in (SpecialUrl.MISSING, SpecialUrl.GONE):
        return not_found(delay, 404 if special is SpecialUrl.MISSING else 410)
    if special in _PLAIN_FAILURES:
        status = _PLAIN_FAILURES[special]
        return Response(status, b"no", "text/plain", delay=delay, retry_after=1 if status == 503 else None)
    if special in (SpecialUrl.MOVED, SpecialUrl.LOOP, SpecialUrl.FAR, SpecialUrl.AWAY):
        return _redirect(web, number, special, i, path, address, delay)
    if special in _TITLES:
        return _titled_page(web, number, special, i, path, delay)
    if special is SpecialUrl.COPY:
        return Response(200, render.page(web, number, i, address), delay=delay)
    return _hostile_response(web, number, special, i, delay)


def _redirect(
    web: Web, number: int, special: SpecialUrl, i: int, path: str, address: Address, delay: float
) -> Response:
    if special is SpecialUrl.AWAY:
        return Response(308, headers={"Location": render.external_link(web, number, i, address)}, delay=delay)
    if special is SpecialUrl.LOOP:
        other = "b" if path.endswith("a") else "a"
        return Response(302, headers={"Location": path[:-1] + other}, delay=delay)
    _, kind, hops, name = path.split("/")
    bits = draw(web.seed, number, "target", f"{kind}/{i}")
    target = f"/{kind}/{int(hops) - 1}/{name}" if hops != "1" else path_of(bits % web.site(number).pages)
    if bits >> 63:  # absolute or relative: both are valid, and a crawler must handle both
        target = address.origin(number) + target
    return Response(301 if special is SpecialUrl.MOVED else 307, headers={"Location": target}, delay=delay)


def _titled_page(web: Web, number: int, special: SpecialUrl, i: int, path: str, delay: float) -> Response:
    head = f'<meta name="robots" content="{_ROBOTS_META[special]}">' if special in _ROBOTS_META else ""
    link = (
        f'<a href="{render.special_path(web, number, SpecialUrl.HIDDEN, i)}">hidden</a>'
        if special is SpecialUrl.NOFOLLOW
        else ""
    )
    text = render.prose(web.seed, draw(web.seed, number, special, path), 300)
    body = render.html(f"{_TITLES[special]}: {path}", f"{link}<p>{text}</p>", head)
    return Response(200, body, delay=delay + (web.site(number).slow if special is SpecialUrl.SLOW else 0))


def _hostile_response(web: Web, number: int, special: SpecialUrl, i: int, delay: float) -> Response:
    if special is SpecialUrl.CHARSET:
        kind, body = render.page_in_charset(web, number, i)
        return Response(200, body, kind, delay=delay)
    plain = render.html(f"{special} {i}", "<p>Nothing good.</p>" * 20)
    answers = {
        SpecialUrl.RESET: lambda: Response(0, delivery=Delivery.RESET),
        SpecialUrl.CUT: lambda: Response(200, plain, delivery=Delivery.CUT),
        SpecialUrl.GARBAGE: lambda: Response(0, b"\x00\xff\xfeSSH-2.0-nothing\r\n" * 20, delivery=Delivery.GARBAGE),
        SpecialUrl.HANG: lambda: Response(0, delivery=Delivery.HANG),
        SpecialUrl.BINARY: lambda: Response(200, b"%PDF-1.4\n" + bytes(range(256)) * 4, "application/pdf"),
        SpecialUrl.DRIP: lambda: Response(200, plain, delivery=Delivery.DRIP),
        SpecialUrl.ENDLESS: lambda: Response(200, _STREAM, delivery=Delivery.ENDLESS),
        SpecialUrl.HUGE: lambda: Response(
            200, _STREAM, headers={"Content-Length": "10000000000"}, delivery=Delivery.ENDLESS
        ),
        SpecialUrl.BOMB: lambda: Response(200, render.bomb(), headers={"Content-Encoding": "gzip"}),
        SpecialUrl.HEADERS: lambda: Response(200, plain, headers=_MANY_HEADERS),
        SpecialUrl.DEEP: lambda: Response(200, render.deep()),
        SpecialUrl.WIDE: lambda: Response(200, render.wide()),
        SpecialUrl.NUL: lambda: Response(200, render.control_characters(i)),
    }
    return replace(answers[special](), delay=delay)
