"""The server of a simulated web: one process, one thread, all sites.

The rule: the spec determines the responses (`site.page`); the server keeps only what changes with time: request counts, rate limits, the
generation, the pause. Its log has every request except control commands.
"""

import asyncio
import hmac
import json
import math
import re
from collections import Counter, deque
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from holdfast.testing.simweb import access_log as log
from holdfast.testing.simweb import image_bytes, render
from holdfast.testing.simweb.connection import Connection, Request
from holdfast.testing.simweb.render import Delivery, Response
from holdfast.testing.simweb.site import page
from holdfast.testing.simweb.spec import Address, ImageKind, SpecialUrl, Web
from holdfast.testing.simweb.stalls import Stalls
from holdfast.testing.simweb.url_names import chance

TOKEN_HEADER: Final = "X-Simweb-Token"  # noqa: S105
_TOKEN_NAME: Final = TOKEN_HEADER.lower().encode()
_CONTROL: Final = "/__control__/"
_FLUSH_EVERY: Final = 0.05
_CACHE_BYTES: Final = 16 << 20
_NAMED: Final = re.compile(r"s(\d{1,9})\.localhost(?::\d+)?")
_FIRST: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


class EncodedResponse:
    """A response encoded to bytes."""

    __slots__ = ("_head", "answer")

    def __init__(self, answer: Response) -> None:
        self.answer = answer
        headers = {"Server": "simweb", "Content-Type": answer.content_type, **answer.headers}
        if answer.etag:
            headers["ETag"] = answer.etag
        if answer.modified:
            headers["Last-Modified"] = answer.modified
        if answer.retry_after is not None:
            headers["Retry-After"] = str(answer.retry_after)
        if answer.delivery is Delivery.ENDLESS:
            if "Content-Length" not in headers:
                headers["Transfer-Encoding"] = "chunked"
        elif answer.status != 304:
            headers["Content-Length"] = str(len(answer.body))
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        first = f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Odd')}\r\n"
        self._head = (first + "".join(lines)).encode("latin-1")

    def encode(self, *, without_body: bool, close: bool) -> tuple[bytes, bytes]:
        """Head and body to send; *without_body*: no body, *close*: with `Connection: close`."""
        head = self._head + (b"Connection: close\r\n\r\n" if close else b"\r\n")
        return head, b"" if without_body else self.answer.body


class Server:
    """All sites of a web."""

    def __init__(self, web: Web, access_log: log.AccessLog, token: str) -> None:
        self.web, self.generation, self.paused_until = web, 0, 0.0
        self.address = Address((0,))
        self.connections: set[Connection] = set()
        self.stopped = asyncio.Event()
        self._log, self._token = access_log, token.encode()
        self._loop = asyncio.get_running_loop()
        self.stalls = Stalls(self._loop)
        self._listening: list[asyncio.Server] = []
        self._requests: Counter[str] = Counter()
        self._path_counts: dict[int, Counter[str]] = {}
        self._in_flight: Counter[str] = Counter()
        self._recent: dict[int, deque[float]] = {}
        self._numbers = 0
        cache_size = min(8192, max(64, _CACHE_BYTES // max(1, web.default.body_bytes)))
        self._cached = lru_cache(maxsize=cache_size)(self._make)
        self._site_of = lru_cache(maxsize=4096)(self._find_site)
        sites = (web.default, *web.special.values())
        if any(SpecialUrl.BOMB in site.odd or ImageKind.PACKED in site.image_kinds for site in sites):
            render.bomb()  # slow, so it is computed before the first request; likewise
        if any(ImageKind.VAST in site.image_kinds for site in sites):
            image_bytes.vast()

    async def listen(self, port: int = 0, host: str = "127.0.0.1") -> Address:
        """After: sites are served on *port* (and the following ones if every site has its own); 0 = any free port."""
        sites = range(self.web.sites) if self.web.by_port else [None]
        for offset, site in enumerate(sites):
            connect = partial(self._connect, site)
            made = await self._loop.create_server(connect, host, port + offset if port else 0, backlog=4096)
            self._listening.append(made)
        ports = tuple(item.sockets[0].getsockname()[1] for item in self._listening)
        self.address = Address(ports, self.web.by_port)
        return self.address

    def stop(self) -> None:
        """After: no connection is open, and the log is complete."""
        for item in self._listening:
            item.close()
        for connection in list(self.connections):
            connection.abandon()
        self._log.close()
        self.stalls.stop()
        self.stopped.set()

    def _connect(self, site: int | None) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers, site)

    # called by connections

    def begin_request(self, request: Request) -> int:
        """After: the request counts as in progress. Returns the number of requests in progress for its host, including it."""
        self._in_flight[request.host] += 1
        return self._in_flight[request.host]

    def end_request(self, request: Request) -> None:
        """After: the request does not count as in progress any more."""
        self._in_flight[request.host] -= 1
        if not self._in_flight[request.host]:
            del self._in_flight[request.host]

    def record(
        self,
        request: Request,
        status: int,
        connection: int,
        in_flight: int,
        retry_after: int | None = None,
        late: int = 0,
    ) -> None:
        """After: the request will be in the log within 50 ms."""
        agent = request.headers.get(b"user-agent", b"-").decode("latin-1")
        text = log.format_line(
            request.began, log.boot_ns(), request.wall, request.method, request.host, request.target, status, connection, in_flight,
            retry_after, agent, late,
        )  # fmt: skip
        if self._log.add(text):
            self._loop.call_later(_FLUSH_EVERY, self._log.flush)

    def answer(
        self, request: Request, site: int | None, connection: int, requests_on_connection: int
    ) -> EncodedResponse:
        """The response to a request; *requests_on_connection*: earlier requests on its connection. After: it is counted."""
        number = self._site_of(request.host) if site is None else site
        if number is None:
            return EncodedResponse(Response(421, b"no such site", "text/plain"))
        self._requests[request.host] += 1
        counts = self._path_counts.get(number) or self._path_counts.setdefault(number, Counter())
        previous_requests = counts[request.target]
        site_spec = self.web.site(number)
        if site_spec.reset_reused and requests_on_connection:
            dice = chance(self.web.seed, number, "reset", f"{connection}/{requests_on_connection}")
            if dice < site_spec.reset_reused:
                return EncodedResponse(Response(0, delivery=Delivery.RESET))
        limited = site_spec.rate_limit and not request.target.startswith("/robots")
        if limited and (wait := self._seconds_to_wait(number)) is not None:
            return EncodedResponse(Response(429, b"too quick", "text/plain", retry_after=wait))
        counts[request.target] = previous_requests + 1
        if site_spec.flaky and previous_requests < site_spec.flaky_times:
            answer = page(self.web, number, request.target, self.address, previous_requests=previous_requests)
            if answer.status != 200 or answer.delivery is not Delivery.PLAIN:
                return EncodedResponse(answer)
        encoded = self._cached(number, request.target, self.generation)
        if _is_not_modified(request, encoded.answer):
            current = encoded.answer
            return EncodedResponse(Response(304, delay=current.delay, etag=current.etag, modified=current.modified))
        return encoded

    def _make(self, number: int, target: str, generation: int) -> EncodedResponse:
        return EncodedResponse(page(self.web, number, target, self.address, generation=generation))

    def _find_site(self, host: str) -> int | None:
        named = _NAMED.fullmatch(host)
        if named is None:
            return 0 if _FIRST.fullmatch(host) else None
        return int(named[1]) if int(named[1]) < self.web.sites else None

    def _seconds_to_wait(self, number: int) -> int | None:
        """Whole seconds that the client must wait (rate limit); None: the request is allowed and counted."""
        site_spec, now = self.web.site(number), self._loop.time()
        recent = self._recent.setdefault(number, deque())
        while recent and recent[0] <= now - site_spec.rate_window:
            recent.popleft()
        if len(recent) >= site_spec.rate_limit:
            return max(1, math.ceil(recent[0] + site_spec.rate_window - now))
        recent.append(now)
        return None

    # control

    def control(self, request: Request) -> bytes | None:
        """The response to a control command; None if the request is none or its token is wrong."""
        if not request.target.startswith(_CONTROL):
            return None
        if not hmac.compare_digest(request.headers.get(_TOKEN_NAME, b""), self._token):
            return None
        action, _, query = request.target.removeprefix(_CONTROL).partition("?")
        done = self._run_command(action, dict(parse_qsl(query)))
        response = Response(200 if done is not None else 404, json.dumps(done).encode(), "application/json")
        return b"".join(EncodedResponse(response).encode(without_body=False, close=False))

    def _run_command(self, action: str, values: dict[str, str]) -> dict[str, object] | None:
        if action == "stats":
            paths = (
                {self.address.host(n): counts for n, counts in self._path_counts.items()} if "paths" in values else {}
            )
            return {
                "requests": self._requests,
                "in_flight": self._in_flight,
                "paths": paths,
                "generation": self.generation,
            }
        if action == "generation":
            self.generation += 1
            return {"generation": self.generation}
        if action == "pause":
            try:
                seconds = float(values["seconds"])
            except (KeyError, ValueError):
                return None
            self.paused_until = self._loop.time() + min(max(seconds, 0.0), 3600.0)
            return {"seconds": seconds}
        if action == "flush":
            self._log.flush()
            return {}
        if action == "quit":
            self._loop.call_later(0.01, self.stop)  # after the response is sent
            return {}
        return None


def _is_not_modified(request: Request, answer: Response) -> bool:
    """Whether a conditional request matches the current page. If-None-Match takes precedence."""
    if answer.status != 200 or not (answer.etag or answer.modified):
        return False
    if (tags := request.headers.get(b"if-none-match")) is not None:
        return answer.etag is not None and answer.etag.encode() in (tag.strip() for tag in tags.split(b","))
    since = request.headers.get(b"if-modified-since")
    return since is not None and answer.modified is not None and since == answer.modified.encode()
