"""Maps libcurl's error or the server's status to one `Outcome`.

The rule: the tables are data and total. An error or a status that no table lists is BAD_RESPONSE; no other module of `fetch` decides.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from errno import ECONNREFUSED
from typing import Final

import pycurl

from holdfast.model.outcome import Outcome

MAX_RETRY_AFTER: Final = timedelta(days=30)

_TOO_LARGE: Final = 100
"""CURLE_TOO_LARGE: headers above libcurl's limit. PycURL has no constants for these."""
_HTTP2_STREAM: Final = 92
_NO_CONNECTION_AVAILABLE: Final = 89
_QUIC_CONNECT: Final = 96
_ECH_REQUIRED: Final = 101
PROXY_HANDSHAKE: Final = 97
"""CURLE_PROXY: the handshake with a SOCKS proxy failed; a CURLPX code has the reason."""

ERRORS: Final[dict[int, Outcome]] = {
    pycurl.E_UNSUPPORTED_PROTOCOL: Outcome.BAD_RESPONSE,  # the response is not HTTP, or is HTTP/0.9
    pycurl.E_URL_MALFORMAT: Outcome.URL_REFUSED,
    pycurl.E_COULDNT_RESOLVE_HOST: Outcome.DNS_FAILURE,
    pycurl.E_COULDNT_CONNECT: Outcome.CONNECTION_FAILED,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: Outcome.BAD_RESPONSE,
    pycurl.E_HTTP2: Outcome.BAD_RESPONSE,
    _HTTP2_STREAM: Outcome.BAD_RESPONSE,
    pycurl.E_PARTIAL_FILE: Outcome.BAD_RESPONSE,
    pycurl.E_WRITE_ERROR: Outcome.BAD_RESPONSE,
    pycurl.E_OPERATION_TIMEDOUT: Outcome.TIMEOUT,
    pycurl.E_GOT_NOTHING: Outcome.CONNECTION_FAILED,
    pycurl.E_SEND_ERROR: Outcome.CONNECTION_FAILED,
    pycurl.E_RECV_ERROR: Outcome.CONNECTION_FAILED,
    _NO_CONNECTION_AVAILABLE: Outcome.CONNECTION_FAILED,
    _QUIC_CONNECT: Outcome.CONNECTION_FAILED,
    PROXY_HANDSHAKE: Outcome.CONNECTION_FAILED,
    pycurl.E_INTERFACE_FAILED: Outcome.CONNECTION_FAILED,
    pycurl.E_BAD_CONTENT_ENCODING: Outcome.BAD_ENCODING,
    pycurl.E_FILESIZE_EXCEEDED: Outcome.TOO_LARGE,
    _TOO_LARGE: Outcome.BAD_RESPONSE,
    pycurl.E_SSL_CONNECT_ERROR: Outcome.TLS_FAILURE,
    pycurl.E_SSL_ENGINE_NOTFOUND: Outcome.TLS_FAILURE,
    pycurl.E_SSL_ENGINE_SETFAILED: Outcome.TLS_FAILURE,
    pycurl.E_SSL_CERTPROBLEM: Outcome.TLS_FAILURE,
    pycurl.E_SSL_CIPHER: Outcome.TLS_FAILURE,
    pycurl.E_PEER_FAILED_VERIFICATION: Outcome.TLS_FAILURE,
    pycurl.E_SSL_ENGINE_INITFAILED: Outcome.TLS_FAILURE,
    pycurl.E_SSL_CACERT_BADFILE: Outcome.TLS_FAILURE,
    pycurl.E_SSL_SHUTDOWN_FAILED: Outcome.TLS_FAILURE,
    pycurl.E_SSL_CRL_BADFILE: Outcome.TLS_FAILURE,
    pycurl.E_SSL_ISSUER_ERROR: Outcome.TLS_FAILURE,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: Outcome.TLS_FAILURE,
    pycurl.E_SSL_INVALIDCERTSTATUS: Outcome.TLS_FAILURE,
    _ECH_REQUIRED: Outcome.TLS_FAILURE,
}

ERROR_MESSAGES: Final[tuple[tuple[int, str, Outcome], ...]] = (
    (pycurl.E_OPERATION_TIMEDOUT, "too slow", Outcome.TOO_SLOW),
    (pycurl.E_RECV_ERROR, "Too large response", Outcome.BAD_RESPONSE),
    (pycurl.E_RECV_ERROR, "chunk", Outcome.BAD_RESPONSE),
)
"""Errors that only libcurl's message tells apart; tests provoke them, so a changed message is noticed."""

_NO_TLS: Final = ("wrong version number", "packet length too long")
"""libcurl's messages for a server that answers a TLS handshake with something else. Not a connection that is reset or closed: networks
and busy servers do that too, and a URL that falls back to http is not tried over https again."""

STATUSES: Final[dict[int, Outcome]] = {
    401: Outcome.LOGIN_WALL,
    403: Outcome.FORBIDDEN,
    404: Outcome.NOT_FOUND,
    407: Outcome.LOGIN_WALL,
    410: Outcome.NOT_FOUND,
    429: Outcome.RATE_LIMITED,
    503: Outcome.UNAVAILABLE,
}
"""Statuses with a meaning of their own; the others go by their class."""

CLASSES: Final[dict[int, Outcome]] = {
    2: Outcome.OK,
    3: Outcome.CLIENT_ERROR,  # a redirect without Location: a retry would get the same response
    4: Outcome.CLIENT_ERROR,
    5: Outcome.SERVER_ERROR,
}

_REDIRECTS: Final = frozenset((300, 301, 302, 303, 307, 308))
_NOT_MODIFIED: Final = 304
_SECONDS: Final = re.compile(r"([+-]?)([0-9]+)")


def outcome_of_error(code: int, message: str) -> Outcome:
    """Classify libcurl's error *code* with its *message*."""
    for known, words, outcome in ERROR_MESSAGES:
        if code == known and words in message:
            return outcome
    return ERRORS.get(code, Outcome.BAD_RESPONSE)


def is_not_tls(code: int, message: str, errno: int) -> bool:
    """Whether libcurl's error *code* means that the port does not serve TLS; *errno* is the system's. Never for a bad certificate."""
    if code == pycurl.E_COULDNT_CONNECT:
        return errno == ECONNREFUSED
    return code == pycurl.E_SSL_CONNECT_ERROR and any(words in message for words in _NO_TLS)


def outcome_of_status(code: int, *, location: bool, conditional: bool) -> Outcome:
    """Classify an HTTP status; *location*: the response has a Location; *conditional*: the request was conditional."""
    if code == _NOT_MODIFIED:
        return Outcome.NOT_MODIFIED if conditional else Outcome.BAD_RESPONSE
    if location and code in _REDIRECTS:
        return Outcome.REDIRECT
    return STATUSES.get(code) or CLASSES.get(code // 100, Outcome.BAD_RESPONSE)


def parse_retry_after(value: str, now: datetime) -> timedelta | None:
    """Parse a Retry-After into a delay from *now*, between 0 and MAX_RETRY_AFTER; None: invalid."""
    value = value.strip()
    if seconds := _SECONDS.fullmatch(value):
        sign, digits = seconds.groups()
        if sign == "-":
            return timedelta(0)
        # Ten digits are more than the maximum, and Python refuses to parse thousands of digits.
        wait = timedelta(seconds=int(digits)) if len(digits) < 10 else MAX_RETRY_AFTER
        return min(wait, MAX_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(value[:100])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if until.tzinfo is None:  # "-0000" or an unknown zone; HTTP dates are in GMT
        until = until.replace(tzinfo=UTC)
    try:
        return min(max(until - now, timedelta(0)), MAX_RETRY_AFTER)
    except OverflowError:
        return None
