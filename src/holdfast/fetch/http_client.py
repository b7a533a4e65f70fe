"""HTTP client on libcurl: sends one request, one hop, and returns one `FetchResult`.

The rules: a failure of the network or the server is a value, never an exception; connections go only to addresses that the resolver
returned and the address filter accepted; a redirect is a result, which the caller follows after it has checked robots.txt, scope and
rate. A POST obeys the same rules.

HTTP/1.1 everywhere, HTTP/2 where TLS negotiates it. No HTTP/3: a server offers it by Alt-Svc, which may name another host, and PycURL
has no switch for libcurl's cache of those offers. Cookies and proxies are used only if the request names them.
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
from holdfast.fetch.curl_multi import CurlMulti
from holdfast.fetch.curl_transfer import ACCEPT_ENCODING, CurlTransfer, TransferSpec
from holdfast.fetch.dns import Resolved, Resolver, is_address_or_localhost
from holdfast.fetch.proxy_fault import ProxyAttempt, find_fault
from holdfast.fetch.response import BufferedBytes, strip_controls
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Protocol, ProxyFault, ProxyRoute
from holdfast.model.url import checked_host, origin_and_target, parse_url
from holdfast.settings import Fetch

_PAGE_HEADERS: Final = (b"Accept: text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.1",)
_ANY_HEADERS: Final = (b"Accept: */*",)
_ACCEPT_ENCODING: Final = f"Accept-Encoding: {ACCEPT_ENCODING}\r\n".encode()
_VERSIONS: Final = {
    pycurl.CURL_HTTP_VERSION_1_0: "1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "1.1",
    pycurl.CURL_HTTP_VERSION_2_0: "2",
}
_MAX_DETAIL_CHARACTERS: Final = 200
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADERS: Final = frozenset(
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
"""Headers that the client sets itself; the caller of a POST must not set them."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_DNS_TIMEOUT: Final = Resolved((), Outcome.TIMEOUT, "the name servers did not answer in time")


class HttpClient:
    """Sends requests and returns results. Bound to the event loop of its first request."""

    def __init__(self, settings: Fetch, resolver: Resolver, *, ca_file: str | None = None) -> None:
        """*ca_file*: CA certificates for TLS verification; None uses the system's."""
        self._settings = settings
        self._resolver = resolver
        self._timeout = settings.timeout.total_seconds()
        # Name the system's file explicitly: a PycURL wheel may have the path of another system compiled in. None falls back to that.
        self._ca_file = ca_file or ssl.get_default_verify_paths().cafile
        self._slots = asyncio.Semaphore(settings.connections)
        self._free: list[CurlTransfer] = []
        self._buffered = BufferedBytes()
        # `_slots` limits the requests in progress to this number, so no request ever queues inside libcurl.
        self._multi = CurlMulti(settings.connections)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of response bodies that are being received."""
        return self._buffered.size

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """After: no connection is open and requests in progress are cancelled. The caller closes the resolver."""
        self._multi.close()
        while self._free:
            self._free.pop().close()

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Send *request* and read the response. Cancelling ends the transfer and frees its connection."""
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
        allowed = seconds = self._timeout if request.timeout is None else request.timeout
        site, route = target.site, request.route
        pins: tuple[str, ...] = ()
        if route is None or not route.resolves or is_address_or_localhost(site.host):
            resolved, seconds = await self._resolve(site.host, request.allow_private, seconds)
            if resolved.outcome is not None:
                return FetchResult(request.url, resolved.outcome, resolved.detail)
            if route is None:
                pins = (f"{site.host}:{site.port}:{resolved.pin}",) if resolved.pin else ()
            elif route.server.protocol is Protocol.SOCKS5:
                # SOCKS5 receives addresses. All other protocols receive the name, which was checked to be public.
                pins = (f"{site.host}:{site.port}:{_socks_addresses(resolved) or site.host}",)
        if route is not None:
            resolved, seconds = await self._resolve(route.server.host, route.allow_private, seconds)
            if resolved.outcome is not None:
                return _proxy_unreachable(request.url, resolved)
            pins += (f"{route.server.host}:{route.server.port}:{resolved.pin or route.server.host}",)
        spec = TransferSpec(
            request,
            site.origin + target.path,
            _header_value(request.user_agent),
            _headers(request),
            pins,
            seconds,
            self._settings.max_bytes if request.max_bytes is None else request.max_bytes,
            () if request.secret is None else request.secret.lines,
        )
        transfer = self._free.pop() if self._free else CurlTransfer(self._settings, self._ca_file, self._buffered)
        try:
            transfer.begin(spec)
            code, message = await self._multi.start(transfer.handle)
        except pycurl.error as error:  # the transfer could not be started
            self._discard(transfer)
            message = str(error.args[-1])
            return FetchResult(
                request.url,
                classify.outcome_of_error(error.args[0], message),
                strip_controls(message)[:_MAX_DETAIL_CHARACTERS],
            )
        except BaseException:
            self._discard(transfer)
            raise
        result = _result(transfer, spec, target, code, message)
        if transfer.withheld:
            result = FetchResult(request.url, Outcome.CONNECTION_FAILED, transfer.detail, withheld=True)
        elif route is not None:
            result = _attribute_to_proxy(result, transfer, route, target, code, short_of_time=seconds * 2 < allowed)
        transfer.end()
        self._free.append(transfer)
        return result

    async def _resolve(self, host: str, allow_private: bool, seconds: float) -> tuple[Resolved, float]:
        """Resolve *host*; return the addresses and the seconds left (more than 0 if there are addresses)."""
        known = self._resolver.cached(host, allow_private=allow_private)
        if known is not None:
            return known, seconds
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                known = await self._resolver.resolve(host, allow_private=allow_private)
        except TimeoutError:
            return _DNS_TIMEOUT, 0.0
        left = seconds - (time.monotonic() - started)
        return (known, left) if left > 0 else (_DNS_TIMEOUT, 0.0)

    def _discard(self, transfer: CurlTransfer) -> None:
        """After: the transfer has ended and its handle is closed."""
        self._multi.cancel(transfer.handle)
        transfer.close()


class _Site(NamedTuple):
    """A server: origin, host, port and the value of the Host header."""

    origin: str
    host: str
    port: int
    authority: str


class _Target(NamedTuple):
    """What a request addresses: a server and a path with query."""

    site: _Site
    path: str


@lru_cache(maxsize=4096)
def _site(origin: str) -> _Site:
    """Parse an origin. Raises BadUrl if no server can have it."""
    url = parse_url(f"{origin}/")
    host = checked_host(url)
    authority = host if url.port is None else f"{host}:{url.port}"
    return _Site(f"{url.scheme}://{authority}", host, url.port or _DEFAULT_PORTS[url.scheme], authority)


@lru_cache(maxsize=256)
def _header_value(text: str) -> bytes:
    """Encode *text* as a header value: one line, no control characters."""
    return strip_controls(text).encode("latin-1", "replace")


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
    """Encode the headers of a POST. Raises ValueError for an invalid or reserved header: a programming error."""
    lines = [b"Expect:"]  # a name without a value: libcurl omits its own header
    if not any(name.lower() == "content-type" for name, _ in headers):
        lines.append(b"Content-Type:")
    for name, value in headers:
        line = strip_controls(value).encode("latin-1", "replace")
        if not _TOKEN.fullmatch(name) or name.lower() in _RESERVED_HEADERS or not line:
            raise ValueError(f"{name!a} is not a header that can be sent with a POST")
        lines.append(b"%b: %b" % (name.encode(), line))
    return tuple(lines)


def _request_head(spec: TransferSpec, target: _Target, version: str) -> bytes:
    """The request head as libcurl sends it over HTTP/1.1 (a test compares), or the text form of an HTTP/2 request."""
    post = spec.request.post
    method = "GET" if post is None else "POST"
    first = f"{method} {target.path} HTTP/{'2' if version == '2' else '1.1'}\r\nHost: {target.site.authority}\r\n"
    if post is None:
        secret = spec.request.secret
        headers = spec.headers if secret is None else spec.headers + secret.shown
        return first.encode() + _request_tail(spec.user_agent, headers)
    sent = tuple(line for line in spec.headers if b": " in line)
    return first.encode() + _request_tail(spec.user_agent, sent)[:-2] + b"Content-Length: %d\r\n\r\n" % len(post)


@lru_cache(maxsize=256)
def _request_tail(user_agent: bytes, headers: tuple[bytes, ...]) -> bytes:
    agent = b"User-Agent: %b\r\n" % user_agent if user_agent else b""
    return b"".join((agent, _ACCEPT_ENCODING, *(b"%b\r\n" % line for line in headers), b"\r\n"))


def _result(transfer: CurlTransfer, spec: TransferSpec, target: _Target, code: int, message: str) -> FetchResult:
    """Build the result of a finished transfer; *code* is libcurl's error, 0 for none."""
    handle, head, request = transfer.handle, transfer.head, spec.request
    result = FetchResult(request.url, Outcome.OK, address=transfer.address, resend=transfer.resend)
    if transfer.address is not None and transfer.outcome is not Outcome.ADDRESS_REFUSED:
        result.http_version = _VERSIONS.get(handle.getinfo(pycurl.INFO_HTTP_VERSION), "1.1")
        result.request_head = _request_head(spec, target, result.http_version)
    if head is None:
        _fail(result, transfer, code, message)
        return result
    result.status = head.status
    result.headers = head.headers
    result.response_head = head.raw
    result.wire_bytes = len(head.raw) + handle.getinfo(pycurl.SIZE_DOWNLOAD_T)
    outcome = classify.outcome_of_status(
        head.status,
        location=head.location is not None,
        conditional=bool(request.etag or request.last_modified),
    )
    body = transfer.body
    if not code:
        body.end_check()
    if outcome is Outcome.OK and (
        transfer.outcome or (code and not body.cut) or body.is_decompression_bomb(result.wire_bytes)
    ):
        _fail(result, transfer, code, message)
        return result
    # A response that is not a page is classified by its status, even if its body failed.
    result.outcome = outcome
    result.cut = body.cut
    result.body = body.take()
    if outcome is Outcome.OK:
        return result
    result.detail = f"HTTP {head.status}"
    if outcome is Outcome.REDIRECT:
        result.redirect = head.location
    if "retry-after" in head.headers:
        result.retry_after = classify.parse_retry_after(head.headers["retry-after"], datetime.now(UTC))
    return result


def _proxy_unreachable(url: str, resolved: Resolved) -> FetchResult:
    """The result of a request whose proxy cannot be connected to."""
    if resolved is _DNS_TIMEOUT:  # perhaps the lookup of the site used the time up
        return FetchResult(url, Outcome.TIMEOUT, resolved.detail, fault=ProxyFault.UNCLEAR)
    return FetchResult(
        url, Outcome.PROXY_FAILED, f"cannot connect to the proxy: {resolved.detail}", fault=ProxyFault.PROXY
    )


def _socks_addresses(resolved: Resolved) -> str:
    """The addresses sent to a SOCKS5 proxy. libcurl sends the first, so IPv4 is preferred: many proxies have no IPv6."""
    return ",".join(address for address in resolved.addresses if ":" not in address) or resolved.pin


def _attribute_to_proxy(
    result: FetchResult, transfer: CurlTransfer, route: ProxyRoute, target: _Target, code: int, *, short_of_time: bool
) -> FetchResult:
    """Attribute a failed request to the proxy or to the site. After: a response of the proxy is not reported as the site's."""
    if transfer.outcome is Outcome.ADDRESS_REFUSED:
        return _proxy_unreachable(result.url, Resolved((), transfer.outcome, transfer.detail))
    result.address = None
    if transfer.outcome is not None:  # a callback rejected the response, or there was none
        result.fault = ProxyFault.UNCLEAR if transfer.head is None else None
        return result
    handle, protocol = transfer.handle, route.server.protocol
    attempt = ProxyAttempt(
        protocol,
        result.outcome,
        code,
        result.status,
        tunnel=protocol in (Protocol.SOCKS5, Protocol.SOCKS5H) or target.site.origin.startswith("https:"),
        authenticated=route.server.username is not None,
        # CONNECT_TIME is 0 for a reused connection, which was established before.
        connected=transfer.address is not None or handle.getinfo(pycurl.CONNECT_TIME) > 0,
        sent=transfer.address is not None,
        connect_status=handle.getinfo(pycurl.HTTP_CONNECTCODE),
        proxy_error=handle.getinfo(pycurl.PROXY_ERROR),
        short_of_time=short_of_time,
    )
    result.fault = find_fault(attempt)
    result.no_tls = False  # unknown whether the proxy or the site refused the connection
    if result.fault is not ProxyFault.PROXY:
        return result
    detail = result.detail if result.status is None else f"the proxy answers with HTTP {result.status}"
    return FetchResult(result.url, Outcome.PROXY_FAILED, detail, wire_bytes=result.wire_bytes, fault=ProxyFault.PROXY)


def _fail(result: FetchResult, transfer: CurlTransfer, code: int, message: str) -> None:
    """After: *result* has the outcome and the detail of the failure."""
    if transfer.outcome is not None:
        result.outcome, detail = transfer.outcome, transfer.detail
    elif transfer.body.too_large or (transfer.head is not None and not code):
        result.outcome, detail = Outcome.TOO_LARGE, f"unpacks to {transfer.body.size} bytes or more"
    else:
        result.outcome, detail = (
            classify.outcome_of_error(code, message),
            message or "the response head is incomplete",
        )
        if result.url.startswith("https:") and not transfer.sent:
            result.no_tls = classify.is_not_tls(code, message, transfer.handle.getinfo(pycurl.OS_ERRNO))
        if code == pycurl.E_COULDNT_CONNECT and (number := transfer.handle.getinfo(pycurl.OS_ERRNO)):
            detail = f"{os.strerror(number)}: {detail}"
    result.detail = strip_controls(detail)[:_MAX_DETAIL_CHARACTERS]
