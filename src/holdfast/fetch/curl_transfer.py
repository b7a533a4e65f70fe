"""One easy handle of libcurl, with the options that never change and the callbacks that watch a transfer.

The rules: the guard sits in the callbacks. Every socket that is opened and every connection that is used again is judged by the address
at its other end, and a verdict is recorded where it is reached: libcurl itself only says "could not connect" or "aborted". A transfer
sends one request: where libcurl would send it again by itself (a kept-alive connection broke, an HTTP/2 stream was refused), it ends.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import pycurl

from holdfast.fetch.body import Body, Tally
from holdfast.fetch.guard import refusal
from holdfast.fetch.head import READABLE, Head, status
from holdfast.fetch.head import read as read_head
from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchRequest
from holdfast.model.proxy import Protocol, Route
from holdfast.settings import Fetch

MAX_ENCODINGS: Final = 2
OTHER_BYTES: Final = 64 * 1024
"""Of the body of a redirect or an error: enough to read to the end of most of them, so that the connection can be used again."""
BUFFER: Final = 64 * 1024
"""Bytes read from a socket at once; libcurl's own measure is 16 KiB. Larger ones were cheaper for large pages."""
ACCEPT_ENCODING: Final = "gzip, deflate, br"
_STOP: Final = 0
_DAY: Final = 86_400
_SOCKS5_AUTH: Final = 267
"""CURLOPT_SOCKS5_AUTH. PycURL has no name for it."""
_RESEND: Final = "a reused connection broke before the answer; the URL is requested again in its turn"


class _Lent(socket.socket):
    """A socket of which PycURL makes a copy for libcurl; the original is closed as soon as nobody looks at it."""

    __slots__ = ()

    def __del__(self) -> None:
        self.close()


class Order(NamedTuple):
    """What a transfer is to do, in libcurl's terms."""

    request: FetchRequest
    url: str
    user_agent: bytes
    headers: tuple[bytes, ...]
    pins: tuple[str, ...]
    """HOST:PORT:ADDRESS… of whatever libcurl needs an address of: the server, a proxy, or both; none for a server that is an address."""
    seconds: float
    max_bytes: int
    secret: tuple[bytes, ...] = ()
    """Headers that are sent and not kept."""


class Transfer:
    """A handle and what is known of its transfer. It serves one request after the other."""

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
        "_user_agent",
        "address",
        "body",
        "handle",
        "head",
        "outcome",
        "resend",
        "sent",
        "why",
        "withheld",
    )

    def __init__(self, settings: Fetch, ca_file: str | None, tally: Tally) -> None:
        self.handle = pycurl.Curl()
        self.body = Body(tally)
        self._lines: list[bytes] = []
        self._user_agent: bytes | None = None
        self._headers: tuple[bytes, ...] | None = None
        self._pinned = False
        self._posting = False
        self._fresh = False
        self._route: Route | None = None
        self._seconds = -1.0
        self._max_file = -1
        self._may_send: Callable[[], bool] | None = None
        self._on_sent: Callable[[], None] | None = None
        self._on_answered: Callable[[], None] | None = None
        self._allow_private = False
        self._any_type = False
        self.head: Head | None = None
        self.address: str | None = None
        self.sent = False
        """The request went out, on any connection."""
        self.resend = False
        """libcurl was about to send the request a second time, and the transfer ended instead."""
        self.outcome: Outcome | None = None
        """What a callback found out, with `why`; it counts for more than libcurl's error."""
        self.why = ""
        self.withheld = False
        self._set_up(settings, ca_file)

    def _set_up(self, settings: Fetch, ca_file: str | None) -> None:
        option = self.handle.setopt
        option(pycurl.NOSIGNAL, 1)
        option(pycurl.BUFFERSIZE, BUFFER)
        option(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        # Also when no proxy is wanted: libcurl would read http_proxy from the environment, and the guard would see the proxy only.
        option(pycurl.PROXY, "")
        option(pycurl.NOPROXY, "*")
        option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        option(pycurl.HTTP09_ALLOWED, 0)
        option(pycurl.FOLLOWLOCATION, 0)
        # Headers for the site, which may be secrets, are not for a proxy that is asked for a tunnel. It is libcurl's default, too.
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
        # Also when there is nothing to say who we are: a proxy that chose Kerberos would have it look for servers of its own.
        option(_SOCKS5_AUTH, pycurl.HTTPAUTH_BASIC)
        option(pycurl.CONNECTTIMEOUT_MS, _milliseconds(settings.connect_timeout.total_seconds()))
        option(pycurl.LOW_SPEED_LIMIT, settings.min_rate)
        option(pycurl.LOW_SPEED_TIME, max(round(settings.min_rate_time.total_seconds()), 1))
        # Pinned addresses live in libcurl's own cache for so long. Never shorter than a request: one that finds its connection dead
        # before it is sent opens another, and must not find its pin gone.
        option(pycurl.DNS_CACHE_TIMEOUT, min(int(settings.timeout.total_seconds()), _DAY) + 60)
        option(pycurl.RESOLVER_START_FUNCTION, self._before_lookup)
        option(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        option(pycurl.SOCKOPTFUNCTION, _keep_to_ourselves)
        option(pycurl.PREREQFUNCTION, self._before_request)
        option(pycurl.HEADERFUNCTION, self._on_header)
        option(pycurl.WRITEFUNCTION, self.body.write)

    def begin(self, order: Order) -> None:
        """Before: the handle is in no multi. After: it is ready to be added to one, and knows nothing of the request before."""
        option = self.handle.setopt
        request = order.request
        option(pycurl.URL, order.url)
        if order.user_agent != self._user_agent:
            option(pycurl.USERAGENT, order.user_agent)
            self._user_agent = order.user_agent
        headers = order.headers + order.secret if order.secret else order.headers
        if headers != self._headers:
            option(pycurl.HTTPHEADER, headers)
            self._headers = headers
        if order.pins:
            # "+": it grows old, so libcurl's cache does not grow for ever
            option(pycurl.RESOLVE, ["+" + pin for pin in order.pins])
            self._pinned = True
        elif self._pinned:
            option(pycurl.RESOLVE, [])
            self._pinned = False
        if order.seconds != self._seconds:
            option(pycurl.TIMEOUT_MS, _milliseconds(order.seconds))
            self._seconds = order.seconds
        max_file = 0 if request.cut else order.max_bytes  # 0: libcurl does not judge by Content-Length
        if max_file != self._max_file:
            option(pycurl.MAXFILESIZE_LARGE, max_file)
            self._max_file = max_file
        if request.route != self._route:
            self._go_through(request.route)
        if request.post is not None:
            self._post(request.post)
        elif request.fresh != self._fresh:
            self._use_fresh_connection(request.fresh)
        self.body.begin(order.max_bytes, cut=request.cut)
        self._lines.clear()
        self._may_send = request.may_send
        self._on_sent = request.on_sent
        self._on_answered = request.on_answered
        # What we connect to is the proxy, if there is one; where that may go was decided before.
        self._allow_private = request.allow_private if request.route is None else request.route.allow_private
        self._any_type = request.any_type
        self.head = None
        self.address = None
        self.sent = self.resend = False
        self.outcome = None
        self.why = ""
        self.withheld = False

    def end(self) -> None:
        """After: nothing of the request or its answer is kept alive by the handle."""
        self.body.begin(0, cut=False)
        self._lines.clear()
        self._may_send = None
        self._on_sent = None
        self._on_answered = None
        self.head = None
        if self._posting:
            self._post_no_more()

    def _go_through(self, route: Route | None) -> None:
        """After: the handle goes this way, until it is told another one. Connections are used again only by the same way."""
        self._route = route
        option = self.handle.setopt
        if route is None:
            option(pycurl.PROXY, "")
            option(pycurl.NOPROXY, "*")
        else:
            server = route.server
            if route.resolves and server.protocol is Protocol.SOCKS5:  # the same proxy, told names
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

    def _post(self, data: bytes) -> None:
        """After: the handle sends *data*, once, on a connection of its own: one that was used before may turn out to be dead, and then
        it is unknown whether the server has acted on it."""
        self._posting = True
        option = self.handle.setopt
        option(pycurl.POSTFIELDS, data)
        option(pycurl.FRESH_CONNECT, 1)
        option(pycurl.FORBID_REUSE, 1)

    def _use_fresh_connection(self, fresh: bool) -> None:
        """After: the handle opens a connection for each request and keeps none, or shares connections as it was made to. HTTP/1.1: over
        HTTP/2 a server can make libcurl send a request again on a new connection, too."""
        self._fresh = fresh
        option = self.handle.setopt
        option(pycurl.FRESH_CONNECT, fresh)
        option(pycurl.FORBID_REUSE, fresh)
        option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1 if fresh else pycurl.CURL_HTTP_VERSION_2TLS)

    def _post_no_more(self) -> None:
        """After: the handle gets, as it was made to."""
        option = self.handle.setopt
        option(pycurl.POSTFIELDS, b"")  # the bytes are kept alive until there are others
        option(pycurl.HTTPGET, 1)
        option(pycurl.FRESH_CONNECT, self._fresh)
        option(pycurl.FORBID_REUSE, self._fresh)
        self._posting = False

    def close(self) -> None:
        """After: the handle is gone. Before: it is in no multi."""
        self.end()
        self.handle.close()

    def _refuse(self, outcome: Outcome, why: str) -> None:
        self.outcome = outcome
        self.why = why

    def _before_lookup(self, *_: object) -> int:
        """libcurl has no address for the host. Reading a numeric one is its business; asking name servers is not."""
        if not self._pinned:
            return 0
        self._refuse(Outcome.DNS_FAILURE, "the address was forgotten on the way")
        return 1

    def _open_socket(self, _purpose: int, target: tuple[int, int, int, tuple[str, int]]) -> socket.socket | int:
        """libcurl is about to connect."""
        if self.sent:  # to send the request again: no connection needs to be opened for that
            self._refuse_resend()
            return int(pycurl.SOCKET_BAD)
        family, kind, protocol, (address, *_) = target
        if not self._allow_private and (why := refusal(address)):
            self._refuse(Outcome.ADDRESS_REFUSED, f"{address} is {why}")
            return int(pycurl.SOCKET_BAD)
        try:
            return _Lent(family, kind, protocol)
        except OSError as error:  # no descriptor left, or a family that this machine does not have
            self._refuse(Outcome.CONNECTION_FAILED, f"no socket: {error.strerror}")
            return int(pycurl.SOCKET_BAD)

    def _before_request(self, address: str, _local: str, _port: int, _local_port: int) -> int:
        """The connection stands; the request goes out now, unless there is a reason against it."""
        if not self._is_allowed(address):
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = True
        self.outcome = None  # another address of the host was refused; this one was not
        if self._on_sent is not None:
            self._on_sent()
        return int(pycurl.PREREQFUNC_OK)

    def _is_allowed(self, address: str) -> bool:
        """Every check of the last moment before a request goes out, one after the other. After: the first that fails has refused it."""
        if self.sent:
            self._refuse_resend()
            return False
        self.address = address
        # A connection that is used again was let through for another request, which may go where this one may not.
        if not self._allow_private and (why := refusal(address)):
            self._refuse(Outcome.ADDRESS_REFUSED, f"{address} is {why}")
            return False
        if self._may_send is not None and not self._may_send():
            self.withheld = True
            self._refuse(Outcome.CONNECTION_FAILED, "withheld: the claim was not certain to outlast the request")
            return False
        return True

    def _refuse_resend(self) -> None:
        """libcurl is about to send the request again. Neither pace nor log would know of it."""
        self.resend = True
        self._refuse(Outcome.CONNECTION_FAILED, _RESEND)

    def _on_header(self, line: bytes) -> int | None:
        """A line of a head. Lines after the head was complete are a trailer's, and left out."""
        if self.head is not None:
            return None
        self._lines.append(line)
        return None if line not in (b"\r\n", b"\n") else self._on_head()

    def _on_head(self) -> int | None:
        if self.address is None:  # the request is not even sent: this is what a proxy answers to CONNECT
            self._lines.clear()
            return None
        if self._on_answered is not None:
            self._on_answered()
        # Read from the line: a handle answers no questions while its callbacks run.
        code = status(self._lines[0])
        if not code:
            self._refuse(Outcome.BAD_RESPONSE, "no status line")
            return _STOP
        if code < 200:  # the answer is still to come
            self._lines.clear()
            return None
        head = self.head = read_head(self._lines)
        if head.encodings > MAX_ENCODINGS:
            self._refuse(Outcome.BAD_ENCODING, f"packed {head.encodings} times over")
            return _STOP
        if head.encodings and head.length is not None:
            self.body.expect(head.length)
        if not 200 <= head.status < 300:
            self.body.shorten(OTHER_BYTES)
        elif not self._any_type and head.content_type not in READABLE:
            self._refuse(Outcome.WRONG_TYPE, head.content_type)
            return _STOP
        return None


def _keep_to_ourselves(descriptor: int, _purpose: int) -> int:
    """PycURL's copy of a socket would be inherited by the processes that we start, and stay open there when libcurl has closed it."""
    os.set_inheritable(descriptor, False)
    return int(pycurl.SOCKOPT_OK)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
