"""The client: one request, one hop, one `FetchResult`.

The rules: what the web does is a value, never an exception; nothing is connected to but addresses that the resolver gave and the
guard let through; redirects are answers, followed by whoever decides about robots, scope and pace. A POST obeys the same rules.

HTTP/1.1 everywhere, HTTP/2 where TLS agrees on it. No HTTP/3: a server offers it by Alt-Svc, which may name another host, and PycURL has
no switch for libcurl's cache of those offers. No cookies, no proxies.
"""

import asyncio
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
from holdfast.fetch.dns import Resolver
from holdfast.fetch.head import clean
from holdfast.fetch.multi import Multi
from holdfast.fetch.transfer import ACCEPT_ENCODING, Order, Transfer
from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchRequest, FetchResult
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
            result = await self._fetch(request, target, started)
            result.duration = time.monotonic() - started
            return result

    async def _fetch(self, request: FetchRequest, target: "_Target", started: float) -> FetchResult:
        seconds = self._timeout if request.timeout is None else request.timeout
        site = target.site
        resolved = self._resolver.known(site.host, allow_private=request.allow_private)
        if resolved is None:
            try:
                async with asyncio.timeout(seconds):
                    resolved = await self._resolver.resolve(site.host, allow_private=request.allow_private)
            except TimeoutError:
                return FetchResult(request.url, Outcome.TIMEOUT, "the name servers did not answer in time")
            seconds -= time.monotonic() - started
        if resolved.outcome is not None:
            return FetchResult(request.url, resolved.outcome, resolved.detail)
        order = Order(
            request,
            site.origin + target.path,
            _header_value(request.user_agent),
            _headers(request),
            f"{site.host}:{site.port}:{resolved.pin}" if resolved.pin else None,
            seconds,
            self._settings.max_bytes if request.max_bytes is None else request.max_bytes,
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
        transfer.end()
        self._free.append(transfer)
        return result

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
        return first.encode() + _request_tail(order.user_agent, order.headers)
    sent = tuple(line for line in order.headers if b": " in line)
    return first.encode() + _request_tail(order.user_agent, sent)[:-2] + b"Content-Length: %d\r\n\r\n" % len(post)


@lru_cache(maxsize=256)
def _request_tail(user_agent: bytes, headers: tuple[bytes, ...]) -> bytes:
    agent = b"User-Agent: %b\r\n" % user_agent if user_agent else b""
    return b"".join((agent, _ACCEPT_ENCODING, *(b"%b\r\n" % line for line in headers), b"\r\n"))


def _result(transfer: Transfer, order: Order, target: _Target, code: int, message: str) -> FetchResult:
    """What came of a transfer that ended with libcurl's error *code*; 0 is none."""
    handle, head, request = transfer.handle, transfer.head, order.request
    result = FetchResult(request.url, Outcome.OK, address=transfer.address)
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


def _fail(result: FetchResult, transfer: Transfer, code: int, message: str) -> None:
    """After: *result* says why there is no page."""
    if transfer.outcome is not None:
        result.outcome, detail = transfer.outcome, transfer.why
    elif transfer.body.too_large or (transfer.head is not None and not code):
        result.outcome, detail = Outcome.TOO_LARGE, f"unpacks to {transfer.body.size} bytes or more"
    else:
        result.outcome, detail = classify.error(code, message), message or "the answer has no end of its head"
    result.detail = clean(detail)[:_LONGEST_DETAIL]
