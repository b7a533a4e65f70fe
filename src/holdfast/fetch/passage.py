"""Who kept a request from being answered that went through a proxy: the proxy, or perhaps the site behind it.

The rule: certain is only what happens before the site has a part in it, or what the proxy says of itself. A proxy that is frozen looks
like one that waits for a site that is, and a gateway's error may be that of the proxy or of a server: another proxy tells. Whatever a
site can make happen never counts as certain, or one site could have all proxies put aside.
"""

from typing import Final, NamedTuple

import pycurl

from holdfast.fetch.classify import ERRORS, PROXY_HANDSHAKE
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Fault, Protocol

_LOGIN_THERE: Final = 401
_LOGIN_HERE: Final = 407

_UNREACHABLE: Final = frozenset((pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_PROXY))
_NO_ANSWER_TO_CONNECT: Final = pycurl.E_FTP_WEIRD_SERVER_REPLY
_TLS: Final = frozenset(code for code, outcome in ERRORS.items() if outcome is Outcome.TLS_FAILURE)
_BREAKS: Final = frozenset(
    (Outcome.BAD_RESPONSE, Outcome.CONNECTION_FAILED, Outcome.TIMEOUT, Outcome.TLS_FAILURE, Outcome.TOO_SLOW)
)
"""Ends of an answer that began well which may be the proxy's doing. That it is too large, or packed badly, is the site's."""

_CONNECT_REFUSED: Final = frozenset(range(300, 500)) - {404, 408} | {501, 505}
"""Answers to CONNECT that a proxy gives by its own rules, or because it is none. 404 and 408 are also for names that are not found and
sites that do not answer, as are 500, 502, 503 and 504."""

_SOCKS_REFUSED: Final = frozenset((1, 2, 4, 5, 6, 10, 11, 12, 14, 18, 23, 28, 32, 33))
"""CURLPX codes of a proxy that speaks no SOCKS 5, does not know us, or does not allow it by its rules. Not among them: that it could not
reach the site, that it knows no such kind of address (a site may have no other), and that it closed the connection, at whatever point."""


class Passage(NamedTuple):
    """How far a request came that went through a proxy, and how it ended."""

    protocol: Protocol
    outcome: Outcome
    """As if there were no proxy."""
    error: int = 0
    """libcurl's; 0 is none."""
    status: int | None = None
    """What was answered to the request."""
    tunnel: bool = False
    """The proxy hands on bytes and cannot answer for the site: SOCKS, or TLS to the site."""
    login: bool = False
    """The proxy was told who we are."""
    connected: bool = True
    """To the proxy."""
    sent: bool = True
    """The request went out: until then only the proxy has answered."""
    connect_status: int = 0
    """What the proxy answered to CONNECT; 0: nothing, or it was not asked to now."""
    proxy_error: int = 0
    """libcurl's CURLPX code, of SOCKS; it means something only with the error that goes with it."""
    hurried: bool = False
    """Much of the time was gone before the proxy was asked."""


def fault(way: Passage) -> Fault | None:
    """Whether it is the proxy's fault that a request ended so; None: it got through."""
    if way.status is not None:
        return _of_an_answer(way)
    if way.error in _UNREACHABLE and not way.connect_status:
        return Fault.PROXY
    if not way.connected or not (way.sent or way.tunnel):  # no site was spoken of yet
        return Fault.UNCLEAR if way.hurried else Fault.PROXY
    if way.sent:
        return Fault.UNCLEAR
    return Fault.PROXY if _turned_away(way) else Fault.UNCLEAR


def _of_an_answer(way: Passage) -> Fault | None:
    if way.error and way.outcome in _BREAKS:
        return Fault.UNCLEAR
    if way.tunnel or way.status is None:
        return None
    if way.status == _LOGIN_HERE:
        return Fault.PROXY
    # tinyproxy says 401 when the password is wrong, as if it were the site.
    return Fault.UNCLEAR if way.status >= 500 or (way.status == _LOGIN_THERE and way.login) else None


def _turned_away(way: Passage) -> bool:
    """Did the proxy itself end it, before there was a way to the site?"""
    if way.connect_status:
        return way.connect_status in _CONNECT_REFUSED
    if way.error == PROXY_HANDSHAKE:
        return way.proxy_error in _SOCKS_REFUSED
    return way.error == _NO_ANSWER_TO_CONNECT or (way.protocol is Protocol.HTTPS and way.error in _TLS)
