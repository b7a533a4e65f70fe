"""Attributes a failed request to the proxy or to the site.

The rule: the proxy is blamed only for failures before the site is involved, or if the proxy reports the failure itself. A frozen proxy
looks like a proxy that waits for a frozen site, and a gateway error may come from the proxy or from a server: those are UNCLEAR until
another proxy is tried. A failure that a site can cause is never blamed on the proxy: one site could disable all proxies.
"""

from typing import Final, NamedTuple

import pycurl

from holdfast.fetch.classify import ERRORS, PROXY_HANDSHAKE
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Protocol, ProxyFault

_UNAUTHORIZED: Final = 401
_PROXY_AUTHENTICATION_REQUIRED: Final = 407

_UNREACHABLE: Final = frozenset((pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_PROXY))
_NO_ANSWER_TO_CONNECT: Final = pycurl.E_FTP_WEIRD_SERVER_REPLY
_TLS: Final = frozenset(code for code, outcome in ERRORS.items() if outcome is Outcome.TLS_FAILURE)
_INTERRUPTED_OUTCOMES: Final = frozenset(
    (Outcome.BAD_RESPONSE, Outcome.CONNECTION_FAILED, Outcome.TIMEOUT, Outcome.TLS_FAILURE, Outcome.TOO_SLOW)
)
"""Outcomes of an interrupted response that the proxy may have caused. A response too large or badly encoded is the site's fault."""

_CONNECT_REFUSED: Final = frozenset(range(300, 500)) - {404, 408} | {501, 505}
"""Responses to CONNECT that mean the proxy refuses, or that the server is no proxy. Not 404, 408, 500, 502, 503 and 504: proxies send
them for unknown names and sites that do not respond."""

_SOCKS_REFUSED: Final = frozenset((1, 2, 4, 5, 6, 10, 11, 12, 14, 18, 23, 28, 32, 33))
"""CURLPX codes of a proxy that does not speak SOCKS 5, rejects the credentials, or refuses by its rules. Not among them: site unreachable,
address type not supported (a site may have no other), connection closed."""


class ProxyAttempt(NamedTuple):
    """How far a request through a proxy got, and how it ended."""

    protocol: Protocol
    outcome: Outcome
    """The outcome as classified without regard to the proxy."""
    error: int = 0
    """libcurl's error code; 0: none."""
    status: int | None = None
    """HTTP status of the response; None: no response."""
    tunnel: bool = False
    """The proxy only forwards bytes and cannot respond for the site: SOCKS, or TLS to the site."""
    authenticated: bool = False
    """Credentials were sent to the proxy."""
    connected: bool = True
    """The connection to the proxy was established."""
    sent: bool = True
    """The request was sent; before that, only the proxy can have responded."""
    connect_status: int = 0
    """HTTP status of the response to CONNECT; 0: none, or no CONNECT was sent."""
    proxy_error: int = 0
    """libcurl's CURLPX code of a SOCKS handshake; valid only if `error` is PROXY_HANDSHAKE."""
    short_of_time: bool = False
    """More than half of the timeout had passed before the connection to the proxy was started."""


def find_fault(attempt: ProxyAttempt) -> ProxyFault | None:
    """Whether the proxy caused the end of a request; None: the proxy forwarded it."""
    if attempt.status is not None:
        return _fault_of_response(attempt)
    if attempt.error in _UNREACHABLE and not attempt.connect_status:
        return ProxyFault.PROXY
    if not attempt.connected or not (attempt.sent or attempt.tunnel):  # the site is not involved yet
        return ProxyFault.UNCLEAR if attempt.short_of_time else ProxyFault.PROXY
    if attempt.sent:
        return ProxyFault.UNCLEAR
    return ProxyFault.PROXY if _refused_by_proxy(attempt) else ProxyFault.UNCLEAR


def _fault_of_response(attempt: ProxyAttempt) -> ProxyFault | None:
    if attempt.error and attempt.outcome in _INTERRUPTED_OUTCOMES:
        return ProxyFault.UNCLEAR
    if attempt.tunnel or attempt.status is None:
        return None
    if attempt.status == _PROXY_AUTHENTICATION_REQUIRED:
        return ProxyFault.PROXY
    # tinyproxy responds 401 to a wrong password, as if it were the site.
    return (
        ProxyFault.UNCLEAR
        if attempt.status >= 500 or (attempt.status == _UNAUTHORIZED and attempt.authenticated)
        else None
    )


def _refused_by_proxy(attempt: ProxyAttempt) -> bool:
    """Whether the proxy itself refused, before there was a connection to the site."""
    if attempt.connect_status:
        return attempt.connect_status in _CONNECT_REFUSED
    if attempt.error == PROXY_HANDSHAKE:
        return attempt.proxy_error in _SOCKS_REFUSED
    return attempt.error == _NO_ANSWER_TO_CONNECT or (attempt.protocol is Protocol.HTTPS and attempt.error in _TLS)
