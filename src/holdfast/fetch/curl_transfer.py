"""One easy handle of libcurl: its fixed options and the callbacks that check a transfer.

The rules: the address filter runs in the callbacks. Every new socket and every reused connection is checked by its remote address, and
the callback records the reason of a rejection: libcurl itself only reports "could not connect" or "aborted". A transfer sends one
request: where libcurl would resend it by itself (a kept-alive connection broke, an HTTP/2 stream was refused), the transfer ends.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import pycurl

from holdfast.fetch.address_filter import refusal_reason
from holdfast.fetch.response import (
    PARSEABLE_TYPES,
    BodyCollector,
    BufferedBytes,
    ResponseHead,
    parse_head,
    parse_status,
)
from holdfast.model.content_type import SNIFFED_BYTES, ContentGroup, is_wanted, is_wanted_by_content
from holdfast.model.fetch_types import FetchRequest
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Protocol, ProxyRoute
from holdfast.settings import Fetch

MAX_ENCODINGS: Final = 2
MAX_ERROR_BODY_BYTES: Final = 64 * 1024
"""Limit for the body of a redirect or an error: enough to read most of them to the end, so that the connection can be reused."""
BUFFER_BYTES: Final = 64 * 1024
"""Bytes read from a socket at once; libcurl's default is 16 KiB. A larger buffer costs less CPU for large pages."""
ACCEPT_ENCODING: Final = "gzip, deflate, br"
_ABORT: Final = 0
_DAY: Final = 86_400
_SOCKS5_AUTH: Final = 267
"""CURLOPT_SOCKS5_AUTH, for which PycURL has no constant."""
_RESEND: Final = "a reused connection broke before the answer; the URL is requested again in its turn"


class _SelfClosingSocket(socket.socket):
    """A socket that PycURL duplicates for libcurl; the original closes itself when it is garbage collected."""

    __slots__ = ()

    def __del__(self) -> None:
        self.close()


class TransferSpec(NamedTuple):
    """The parameters of one transfer, as libcurl takes them."""

    request: FetchRequest
    url: str
    user_agent: bytes
    headers: tuple[bytes, ...]
    pins: tuple[str, ...]
    """HOST:PORT:ADDRESS… for every host that libcurl connects to or names to a SOCKS5 proxy; empty if the URL has an IP address."""
    seconds: float
    max_bytes: int
    secret: tuple[bytes, ...] = ()
    """Headers that are sent but not archived."""


class CurlTransfer:
    """An easy handle and the state of its current transfer. Reused for one request after the other."""

    __slots__ = (
        "_allow_private",
        "_any_type",
        "_fresh",
        "_headers",
        "_lines",
        "_max_file",
        "_may_send",
        "_on_answered",
        "_on_sent",
        "_pinned",
        "_posting",
        "_route",
        "_seconds",
        "_types",
        "_user_agent",
        "address",
        "body",
        "detail",
        "handle",
        "head",
        "outcome",
        "resend",
        "sent",
        "withheld",
    )

    def __init__(self, settings: Fetch, ca_file: str | None, buffered: BufferedBytes) -> None:
        self.handle = pycurl.Curl()
        self.body = BodyCollector(buffered)
        self._lines: list[bytes] = []
        self._user_agent: bytes | None = None
        self._headers: tuple[bytes, ...] | None = None
        self._pinned = False
        self._posting = False
        self._fresh = False
        self._route: ProxyRoute | None = None
        self._seconds = -1.0
        self._max_file = -1
        self._may_send: Callable[[], bool] | None = None
        self._on_sent: Callable[[], None] | None = None
        self._on_answered: Callable[[], None] | None = None
        self._allow_private = False
        self._any_type = False
        self._types: frozenset[ContentGroup] = frozenset()
        self.head: ResponseHead | None = None
        self.address: str | None = None
        self.sent = False
        """The request was sent, on any connection."""
        self.resend = False
        """libcurl was about to send the request a second time, and the transfer was ended instead."""
        self.outcome: Outcome | None = None
        """The outcome that a callback decided on, with `detail`; it takes precedence over libcurl's error."""
        self.detail = ""
        self.withheld = False
        self._set_up(settings, ca_file)

    def _set_up(self, settings: Fetch, ca_file: str | None) -> None:
        option = self.handle.setopt
        option(pycurl.NOSIGNAL, 1)
        option(pycurl.BUFFERSIZE, BUFFER_BYTES)
        option(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        # Set even without a proxy: libcurl would read http_proxy from the environment, and the address filter would check the proxy only.
        option(pycurl.PROXY, "")
        option(pycurl.NOPROXY, "*")
        option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        option(pycurl.HTTP09_ALLOWED, 0)
        option(pycurl.FOLLOWLOCATION, 0)
        # Headers for the site, which may be secrets, are not sent to a proxy with CONNECT. This is libcurl's default, too.
        option(pycurl.HEADEROPT, pycurl.HEADER_SEPARATE)
        option(pycurl.PATH_AS_IS, 1)
        option(pycurl.ACCEPT_ENCODING, ACCEPT_ENCODING)
        option(pycurl.SSL_VERIFYPEER, 1)
        option(pycurl.SSL_VERIFYHOST, 2)
        option(pycurl.PROXY_SSL_VERIFYPEER, 1)
        option(pycurl.PROXY_SSL_VERIFYHOST, 2)
        if ca_file is not None:
            option(pycurl.CAINFO, ca_file)
            option(pycurl.PROXY_CAINFO, ca_file)
        # Set even without credentials: a proxy that chose Kerberos would make libcurl contact other servers.
        option(_SOCKS5_AUTH, pycurl.HTTPAUTH_BASIC)
        option(pycurl.CONNECTTIMEOUT_MS, _milliseconds(settings.connect_timeout.total_seconds()))
        option(pycurl.LOW_SPEED_LIMIT, settings.min_rate)
        option(pycurl.LOW_SPEED_TIME, max(round(settings.min_rate_time.total_seconds()), 1))
        # Lifetime of pinned addresses in libcurl's own cache. Never shorter than a request: a request that finds its connection dead
        # before it is sent opens another one and needs its pin.
        option(pycurl.DNS_CACHE_TIMEOUT, min(int(settings.timeout.total_seconds()), _DAY) + 60)
        option(pycurl.RESOLVER_START_FUNCTION, self._before_lookup)
        option(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        option(pycurl.SOCKOPTFUNCTION, _set_close_on_exec)
        option(pycurl.PREREQFUNCTION, self._before_request)
        option(pycurl.HEADERFUNCTION, self._on_header)
        option(pycurl.WRITEFUNCTION, self.body.write)

    def begin(self, spec: TransferSpec) -> None:
        """Configure the handle. Before: it is in no multi handle. After: ready to be added to one, without state of the last request."""
        option = self.handle.setopt
        request = spec.request
        option(pycurl.URL, spec.url)
        if spec.user_agent != self._user_agent:
            option(pycurl.USERAGENT, spec.user_agent)
            self._user_agent = spec.user_agent
        headers = spec.headers + spec.secret if spec.secret else spec.headers
        if headers != self._headers:
            option(pycurl.HTTPHEADER, headers)
            self._headers = headers
        if spec.pins:
            # "+": the entry expires, so libcurl's cache does not grow without limit
            option(pycurl.RESOLVE, ["+" + pin for pin in spec.pins])
            self._pinned = True
        elif self._pinned:
            option(pycurl.RESOLVE, [])
            self._pinned = False
        if spec.seconds != self._seconds:
            option(pycurl.TIMEOUT_MS, _milliseconds(spec.seconds))
            self._seconds = spec.seconds
        max_file = 0 if request.cut else spec.max_bytes  # 0: libcurl does not check Content-Length
        if max_file != self._max_file:
            option(pycurl.MAXFILESIZE_LARGE, max_file)
            self._max_file = max_file
        if request.route != self._route:
            self._set_proxy(request.route)
        if request.post is not None:
            self._enable_post(request.post)
        elif request.fresh != self._fresh:
            self._use_fresh_connection(request.fresh)
        self.body.begin(spec.max_bytes, cut=request.cut)
        self._lines.clear()
        self._may_send = request.may_send
        self._on_sent = request.on_sent
        self._on_answered = request.on_answered
        # With a proxy, only the proxy's address is checked here; the site's was checked by the client.
        self._allow_private = request.allow_private if request.route is None else request.route.allow_private
        self._any_type = request.any_type
        self._types = request.types
        self.head = None
        self.address = None
        self.sent = self.resend = False
        self.outcome = None
        self.detail = ""
        self.withheld = False

    def end(self) -> None:
        """After: the handle holds no reference to the request or its response."""
        self.body.begin(0, cut=False)
        self._lines.clear()
        self._may_send = None
        self._on_sent = None
        self._on_answered = None
        self.head = None
        if self._posting:
            self._disable_post()

    def _set_proxy(self, route: ProxyRoute | None) -> None:
        """After: the handle uses this proxy until the next call. libcurl reuses a connection only for the same proxy."""
        self._route = route
        option = self.handle.setopt
        if route is None:
            option(pycurl.PROXY, "")
            option(pycurl.NOPROXY, "*")
        else:
            server = route.server
            if route.resolves and server.protocol is Protocol.SOCKS5:  # the same proxy, which receives names
                server = replace(server, protocol=Protocol.SOCKS5H)
            option(pycurl.PROXY, str(server))
            option(pycurl.NOPROXY, "")
        for name, value in (
            (pycurl.PROXYUSERNAME, route.server.username if route else None),
            (pycurl.PROXYPASSWORD, route.password if route else None),
        ):
            if value is None:
                self.handle.unsetopt(name)
            else:
                option(name, value.encode())

    def _enable_post(self, data: bytes) -> None:
        """After: the handle sends *data* once, on a new connection: on a reused one that turns out to be dead it would be unknown
        whether the server has processed it."""
        self._posting = True
        option = self.handle.setopt
        option(pycurl.POSTFIELDS, data)
        option(pycurl.FRESH_CONNECT, 1)
        option(pycurl.FORBID_REUSE, 1)

    def _use_fresh_connection(self, fresh: bool) -> None:
        """After: with *fresh* the handle opens a connection for each request and keeps none; else connections are shared, the default.
        HTTP/1.1: over HTTP/2 a server can make libcurl resend a request on a new connection, too."""
        self._fresh = fresh
        option = self.handle.setopt
        option(pycurl.FRESH_CONNECT, fresh)
        option(pycurl.FORBID_REUSE, fresh)
        option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1 if fresh else pycurl.CURL_HTTP_VERSION_2TLS)

    def _disable_post(self) -> None:
        """After: the handle sends GET requests, the default."""
        option = self.handle.setopt
        option(pycurl.POSTFIELDS, b"")  # libcurl keeps the previous bytes alive until they are replaced
        option(pycurl.HTTPGET, 1)
        option(pycurl.FRESH_CONNECT, self._fresh)
        option(pycurl.FORBID_REUSE, self._fresh)
        self._posting = False

    def close(self) -> None:
        """Before: the handle is in no multi handle. After: it is closed."""
        self.end()
        self.handle.close()

    def _reject(self, outcome: Outcome, reason: str) -> None:
        self.outcome = outcome
        self.detail = reason

    def _before_lookup(self, *_: object) -> int:
        """Callback: libcurl has no address for the host. Numeric addresses are allowed; a DNS query is rejected."""
        if not self._pinned:
            return 0
        self._reject(Outcome.DNS_FAILURE, "the pinned address expired before the request was sent")
        return 1

    def _open_socket(self, _purpose: int, target: tuple[int, int, int, tuple[str, int]]) -> socket.socket | int:
        """Callback: libcurl is about to connect. Rejects private addresses and resends."""
        if self.sent:  # libcurl would resend the request on the new connection
            self._reject_resend()
            return int(pycurl.SOCKET_BAD)
        family, kind, protocol, (address, *_) = target
        if not self._allow_private and (reason := refusal_reason(address)):
            self._reject(Outcome.ADDRESS_REFUSED, f"{address} is {reason}")
            return int(pycurl.SOCKET_BAD)
        try:
            return _SelfClosingSocket(family, kind, protocol)
        except OSError as error:  # no descriptor left, or an address family that the machine does not support
            self._reject(Outcome.CONNECTION_FAILED, f"no socket: {error.strerror}")
            return int(pycurl.SOCKET_BAD)

    def _before_request(self, address: str, _local: str, _port: int, _local_port: int) -> int:
        """Callback: the connection is established; the request is sent now unless a check rejects it."""
        if not self._is_allowed(address):
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = True
        self.outcome = None  # another address of the host may have been refused; this one is accepted
        if self._on_sent is not None:
            self._on_sent()
        return int(pycurl.PREREQFUNC_OK)

    def _is_allowed(self, address: str) -> bool:
        """Run the last checks before the request is sent. After: the first check that fails has recorded its rejection."""
        if self.sent:
            self._reject_resend()
            return False
        self.address = address
        # A reused connection was checked for another request, which may have been allowed private addresses.
        if not self._allow_private and (reason := refusal_reason(address)):
            self._reject(Outcome.ADDRESS_REFUSED, f"{address} is {reason}")
            return False
        if self._may_send is not None and not self._may_send():
            self.withheld = True
            self._reject(Outcome.CONNECTION_FAILED, "withheld: the claim was not certain to outlast the request")
            return False
        return True

    def _reject_resend(self) -> None:
        """Reject libcurl's own resend: neither the rate limit nor the log would see it."""
        self.resend = True
        self._reject(Outcome.CONNECTION_FAILED, _RESEND)

    def _on_header(self, line: bytes) -> int | None:
        """Callback: a line of a response head. Lines after the complete head are trailers and ignored."""
        if self.head is not None:
            return None
        self._lines.append(line)
        return None if line not in (b"\r\n", b"\n") else self._on_head()

    def _on_head(self) -> int | None:
        if self.address is None:  # the request is not sent yet: this is a proxy's response to CONNECT
            self._lines.clear()
            return None
        if self._on_answered is not None:
            self._on_answered()
        # Parsed from the line: getinfo must not be called while callbacks run.
        code = parse_status(self._lines[0])
        if not code:
            self._reject(Outcome.BAD_RESPONSE, "no status line")
            return _ABORT
        if code < 200:  # informational; the final response follows
            self._lines.clear()
            return None
        head = self.head = parse_head(self._lines)
        if head.encodings > MAX_ENCODINGS:
            self._reject(Outcome.BAD_ENCODING, f"{head.encodings} content encodings, more than {MAX_ENCODINGS}")
            return _ABORT
        if head.encodings and head.length is not None:
            self.body.limit_by_ratio(head.length)
        if not 200 <= head.status < 300:
            self.body.truncate_at(MAX_ERROR_BODY_BYTES)
        elif (
            not self._any_type
            and head.content_type not in PARSEABLE_TYPES
            and not self._may_be_wanted(head.content_type)
        ):
            self._reject(Outcome.WRONG_TYPE, head.content_type)
            return _ABORT
        return None

    def _may_be_wanted(self, content_type: str) -> bool:
        """Whether the body is read, at least its beginning. After: if only the content can tell, the collector checks it."""
        wanted = is_wanted(content_type, self._types)
        if wanted is None:
            self.body.check_start(self._is_wanted, SNIFFED_BYTES)
        return wanted is not False

    def _is_wanted(self, start: bytes) -> bool:
        """Whether a body that begins with *start* is read. After: if not, the transfer has its outcome."""
        wanted = is_wanted_by_content(start, self._types)
        if not wanted:
            assert self.head is not None, "the body follows it"  # noqa: S101
            self._reject(Outcome.WRONG_TYPE, self.head.content_type)
        return wanted


def _set_close_on_exec(descriptor: int, _purpose: int) -> int:
    """Make PycURL's copy of a socket non-inheritable: child processes would keep it open after libcurl has closed it."""
    os.set_inheritable(descriptor, False)
    return int(pycurl.SOCKOPT_OK)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
