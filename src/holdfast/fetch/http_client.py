"""The client: one request, one hop, one `FetchResult`.

The rules: what the web does is a value, never an exception; nothing is connected to but addresses that the resolver gave and the
guard let through; redirects are answers, followed by whoever decides about robots, scope and pace. A POST obeys the same rules.

HTTP/1.1 everywhere, HTTP/2 where TLS agrees on it. No HTTP/3: a server offers it by Alt-Svc, which may name another host, and PycURL has
no switch for libcurl's cache of those offers. No cookies but those that a request names. Proxies only if a request names one.
"""

import asyncio
import os
import re
import ssl
import time
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, NamedTuple, Self

import pycurl

from holdfast.errors import BadUrl
from holdfast.fetch import classify
from holdfast.fetch.body import Tally
from holdfast.fetch.dns import Resolved, Resolver, needs_no_lookup
from holdfast.fetch.head import clean
from holdfast.fetch.multi import Multi
from holdfast.fetch.passage import Passage, fault
from holdfast.fetch.transfer import ACCEPT_ENCODING, Order, Transfer
from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchRequest, FetchResult
from holdfast.model.proxy import Fault, Protocol, Route
from holdfast.model.url import origin_and_target, parse, visitable
from holdfast.settings import Fetch

_PAGE_HEADERS: Final = (b"Accept: text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.1",)
_ANY_HEADERS: Final = (b"Accept: */*",)
_ACCEPT_ENCODING: Final = f"Accept-Encoding: {ACCEPT_ENCODING}\r\n".encode()
_VERSIONS: Final = {
    pycurl.CURL_HTTP_VERSION_1_0: "1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "1.1",
    pycurl.CURL_HTTP_VERSION_2_0: "2",
}
_LONGEST_DETAIL: Final = 200
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS: Final = frozenset(
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    )
)
"""Headers that say how a request is to be read. Whoever asks for a POST does not write these."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LATE: Final = Resolved((), Outcome.TIMEOUT, "the name servers did not answer in time")


class Client:
    """Fetches. It is bound to the event loop of its first request."""

    def __init__(self, settings: Fetch, resolver: Resolver, *, ca_file: str | None = None) -> None:
        """*ca_file*: certificates that TLS is verified with, instead of the system's."""
        self._settings = settings
        self._resolver = resolver
        self._timeout = settings.timeout.total_seconds()
        # The system's by name: what a wheel of PycURL was built with may be another system's. None leaves it to that.
        self._ca_file = ca_file or ssl.get_default_verify_paths().cafile
        self._slots = asyncio.Semaphore(settings.connections)
        self._free: list[Transfer] = []
        self._tally = Tally()
        # No more requests than this are under way (`_slots`), so none ever waits in libcurl.
        self._multi = Multi(settings.connections)

    @property
    def held_bytes(self) -> int:
        """Of bodies that are on their way."""
        return self._tally.held

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """After: no connection is open. Requests still under way are cancelled. The resolver is its maker's to close."""
        self._multi.close()
        while self._free:
            self._free.pop().close()

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Send *request* and read the answer. Cancelling it ends the transfer and frees its connection."""
        try:
            origin, path = origin_and_target(request.url)
            target = _Target(_site(origin), path)
        except BadUrl as error:
            return FetchResult(request.url, Outcome.URL_REFUSED, str(error))
        async with self._slots:
            started = time.monotonic()
            result = await self._fetch(request, target)
            result.duration = time.monotonic() - started
            return result

    async def _fetch(self, request: FetchRequest, target: "_Target") -> FetchResult:
        given = seconds = self._timeout if request.timeout is None else request.timeout
        site, route = target.site, request.route
        pins: tuple[str, ...] = ()
        if route is None or not route.resolves or needs_no_lookup(site.host):
            resolved, seconds = await self._resolve(site.host, request.allow_private, seconds)
            if resolved.outcome is not None:
                return FetchResult(request.url, resolved.outcome, resolved.detail)
            if route is None:
                pins = (f"{site.host}:{site.port}:{resolved.pin}",) if resolved.pin else ()
            elif route.server.protocol is Protocol.SOCKS5:
                # It is told addresses. All others are told the name, which we have seen to be public.
                pins = (f"{site.host}:{site.port}:{_reachable(resolved) or site.host}",)
        if route is not None:
            resolved, seconds = await self._resolve(route.server.host, route.allow_private, seconds)
            if resolved.outcome is not None:
                return _no_way(request.url, resolved)
            pins += (f"{route.server.host}:{route.server.port}:{resolved.pin or route.server.host}",)
        order = Order(
            request,
            site.origin + target.path,
            _header_value(request.user_agent),
            _headers(request),
            pins,
            seconds,
            self._settings.max_bytes if request.max_bytes is None else request.max_bytes,
            () if request.secret is None else request.secret.lines,
        )
        transfer = self._free.pop() if self._free else Transfer(self._settings, self._ca_file, self._tally)
        try:
            transfer.begin(order)
            code, message = await self._multi.start(transfer.handle)
        except pycurl.error as error:  # it could not even begin
            self._abandon(transfer)
            message = str(error.args[-1])
            return FetchResult(request.url, classify.error(error.args[0], message), clean(message)[:_LONGEST_DETAIL])
        except BaseException:
            self._abandon(transfer)
            raise
        result = _result(transfer, order, target, code, message)
        if transfer.withheld:
            result = FetchResult(request.url, Outcome.CONNECTION_FAILED, transfer.why, withheld=True)
        elif route is not None:
            result = _judge_the_way(result, transfer, route, target, code, hurried=seconds * 2 < given)
        transfer.end()
        self._free.append(transfer)
        return result

    async def _resolve(self, host: str, allow_private: bool, seconds: float) -> tuple[Resolved, float]:
        """The addresses of a host, and how many of the seconds are left: more than none, if there are addresses."""
        known = self._resolver.known(host, allow_private=allow_private)
        if known is not None:
            return known, seconds
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                known = await self._resolver.resolve(host, allow_private=allow_private)
        except TimeoutError:
            return _LATE, 0.0
        left = seconds - (time.monotonic() - started)
        return (known, left) if left > 0 else (_LATE, 0.0)

    def _abandon(self, transfer: Transfer) -> None:
        """After: the transfer has ended and its handle is gone."""
        self._multi.give_up(transfer.handle)
        transfer.close()


class _Site(NamedTuple):
    """A server, as requests name it."""

    origin: str
    host: str
    port: int
    authority: str


class _Target(NamedTuple):
    """What a request asks for."""

    site: _Site
    path: str


@lru_cache(maxsize=4096)
def _site(origin: str) -> _Site:
    """Raises BadUrl where nobody could listen."""
    url = parse(f"{origin}/")
    host = visitable(url)
    authority = host if url.port is None else f"{host}:{url.port}"
    return _Site(f"{url.scheme}://{authority}", host, url.port or _DEFAULT_PORTS[url.scheme], authority)


@lru_cache(maxsize=256)
def _header_value(text: str) -> bytes:
    """*text* as it may stand in a header: one line."""
    return clean(text).encode("latin-1", "replace")


def _headers(request: FetchRequest) -> tuple[bytes, ...]:
    headers: tuple[bytes, ...] = _ANY_HEADERS if request.any_type else _PAGE_HEADERS
    if request.secret is not None and request.secret.has_accept:
        headers = ()
    if request.post is not None:
        return headers + _post_headers(request.headers)
    if request.etag:
        headers = (*headers, b"If-None-Match: " + _header_value(request.etag))
    if request.last_modified:
        headers = (*headers, b"If-Modified-Since: " + _header_value(request.last_modified))
    return headers


def _post_headers(headers: tuple[tuple[str, str], ...]) -> tuple[bytes, ...]:
    """Raises ValueError for a header that is not the caller's to write: a fault of ours, not of the web."""
    lines = [b"Expect:"]  # a name alone: libcurl is not to send one of its own
    if not any(name.lower() == "content-type" for name, _ in headers):
        lines.append(b"Content-Type:")
    for name, value in headers:
        line = clean(value).encode("latin-1", "replace")
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS or not line:
            raise ValueError(f"{name!a} is not a header that can be sent with a POST")
        lines.append(b"%b: %b" % (name.encode(), line))
    return tuple(lines)


def _request_head(order: Order, target: _Target, version: str) -> bytes:
    """The request as libcurl writes it over HTTP/1.1 (a test compares), and as HTTP/2 would be written out."""
    post = order.request.post
    method = "GET" if post is None else "POST"
    first = f"{method} {target.path} HTTP/{'2' if version == '2' else '1.1'}\r\nHost: {target.site.authority}\r\n"
    if post is None:
        secret = order.request.secret
        headers = order.headers if secret is None else order.headers + secret.shown
        return first.encode() + _request_tail(order.user_agent, headers)
    sent = tuple(line for line in order.headers if b": " in line)
    return first.encode() + _request_tail(order.user_agent, sent)[:-2] + b"Content-Length: %d\r\n\r\n" % len(post)


@lru_cache(maxsize=256)
def _request_tail(user_agent: bytes, headers: tuple[bytes, ...]) -> bytes:
    agent = b"User-Agent: %b\r\n" % user_agent if user_agent else b""
    return b"".join((agent, _ACCEPT_ENCODING, *(b"%b\r\n" % line for line in headers), b"\r\n"))


def _result(transfer: Transfer, order: Order, target: _Target, code: int, message: str) -> FetchResult:
    """What came of a transfer that ended with libcurl's error *code*; 0 is none."""
    handle, head, request = transfer.handle, transfer.head, order.request
    result = FetchResult(request.url, Outcome.OK, address=transfer.address, resend=transfer.resend)
    if transfer.address is not None and transfer.outcome is not Outcome.ADDRESS_REFUSED:
        result.http_version = _VERSIONS.get(handle.getinfo(pycurl.INFO_HTTP_VERSION), "1.1")
        result.request_head = _request_head(order, target, result.http_version)
    if head is None:
        _fail(result, transfer, code, message)
        return result
    result.status = head.status
    result.headers = head.headers
    result.response_head = head.raw
    result.wire_bytes = len(head.raw) + handle.getinfo(pycurl.SIZE_DOWNLOAD_T)
    outcome = classify.status(
        head.status,
        location=head.location is not None,
        conditional=bool(request.etag or request.last_modified),
    )
    body = transfer.body
    if outcome is Outcome.OK and (transfer.outcome or (code and not body.cut) or body.is_bomb(result.wire_bytes)):
        _fail(result, transfer, code, message)
        return result
    # An answer that is no page is what its status says, whatever became of its body.
    result.outcome = outcome
    result.cut = body.cut
    result.body = body.take()
    if outcome is Outcome.OK:
        return result
    result.detail = f"HTTP {head.status}"
    if outcome is Outcome.REDIRECT:
        result.redirect = head.location
    if "retry-after" in head.headers:
        result.retry_after = classify.retry_after(head.headers["retry-after"], datetime.now(UTC))
    return result


def _no_way(url: str, resolved: Resolved) -> FetchResult:
    """The end of a request whose proxy cannot be connected to."""
    if resolved is _LATE:  # by what was asked for before, perhaps
        return FetchResult(url, Outcome.TIMEOUT, resolved.detail, fault=Fault.UNCLEAR)
    return FetchResult(url, Outcome.PROXY_FAILED, f"no way to the proxy: {resolved.detail}", fault=Fault.PROXY)


def _reachable(resolved: Resolved) -> str:
    """The addresses that a proxy is told, of which libcurl takes the first: hardly any proxy is without IPv4, and many are without IPv6."""
    return ",".join(address for address in resolved.addresses if ":" not in address) or resolved.pin


def _judge_the_way(
    result: FetchResult, transfer: Transfer, route: Route, target: _Target, code: int, *, hurried: bool
) -> FetchResult:
    """The result with what it says of the proxy, and with nothing of the proxy's as if it were the site's."""
    if transfer.outcome is Outcome.ADDRESS_REFUSED:
        return _no_way(result.url, Resolved((), transfer.outcome, transfer.why))
    result.address = None
    if transfer.outcome is not None:  # our own decision: of an answer, or because there could be none
        result.fault = Fault.UNCLEAR if transfer.head is None else None
        return result
    handle, protocol = transfer.handle, route.server.protocol
    way = Passage(
        protocol,
        result.outcome,
        code,
        result.status,
        tunnel=protocol in (Protocol.SOCKS5, Protocol.SOCKS5H) or target.site.origin.startswith("https:"),
        login=route.server.username is not None,
        # The time is that of a new connection; one that is used again stood before.
        connected=transfer.address is not None or handle.getinfo(pycurl.CONNECT_TIME) > 0,
        sent=transfer.address is not None,
        connect_status=handle.getinfo(pycurl.HTTP_CONNECTCODE),
        proxy_error=handle.getinfo(pycurl.PROXY_ERROR),
        hurried=hurried,
    )
    result.fault = fault(way)
    result.no_tls = False  # whose the refusal is cannot be told
    if result.fault is not Fault.PROXY:
        return result
    detail = result.detail if result.status is None else f"the proxy answers with HTTP {result.status}"
    return FetchResult(result.url, Outcome.PROXY_FAILED, detail, wire_bytes=result.wire_bytes, fault=Fault.PROXY)


def _fail(result: FetchResult, transfer: Transfer, code: int, message: str) -> None:
    """After: *result* says why there is no page."""
    if transfer.outcome is not None:
        result.outcome, detail = transfer.outcome, transfer.why
    elif transfer.body.too_large or (transfer.head is not None and not code):
        result.outcome, detail = Outcome.TOO_LARGE, f"unpacks to {transfer.body.size} bytes or more"
    else:
        result.outcome, detail = classify.error(code, message), message or "the answer has no end of its head"
        if result.url.startswith("https:") and not transfer.sent:
            result.no_tls = classify.speaks_no_tls(code, message, transfer.handle.getinfo(pycurl.OS_ERRNO))
        if code == pycurl.E_COULDNT_CONNECT and (number := transfer.handle.getinfo(pycurl.OS_ERRNO)):
            detail = f"{os.strerror(number)}: {detail}"
    result.detail = clean(detail)[:_LONGEST_DETAIL]
