"""The server of a simulated web: one process, one thread, all sites.

The rule: the plan decides what is answered (`site.page`); the server keeps only what changes with time or count: how often a URL was
asked for, who was too quick, the generation, the pause. The judge is its log, which tells of every request but those for control.
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

from holdfast.simweb import log, render
from holdfast.simweb.answer import Answer, Manner
from holdfast.simweb.connection import Connection, Request
from holdfast.simweb.names import chance
from holdfast.simweb.plan import Address, Odd, Web
from holdfast.simweb.site import page

TOKEN_HEADER: Final = "X-Simweb-Token"  # noqa: S105
_TOKEN_NAME: Final = TOKEN_HEADER.lower().encode()
_CONTROL: Final = "/__control__/"
_FLUSH_EVERY: Final = 0.05
_CACHE_BYTES: Final = 16 << 20
_NAMED: Final = re.compile(r"s(\d{1,9})\.localhost(?::\d+)?")
_FIRST: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


class Ready:
    """An answer as bytes."""

    __slots__ = ("_head", "answer")

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        headers = {"Server": "simweb", "Content-Type": answer.kind, **answer.headers}
        if answer.etag:
            headers["ETag"] = answer.etag
        if answer.modified:
            headers["Last-Modified"] = answer.modified
        if answer.retry_after is not None:
            headers["Retry-After"] = str(answer.retry_after)
        if answer.manner is Manner.ENDLESS:
            if "Content-Length" not in headers:
                headers["Transfer-Encoding"] = "chunked"
        elif answer.status != 304:
            headers["Content-Length"] = str(len(answer.body))
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        first = f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Odd')}\r\n"
        self._head = (first + "".join(lines)).encode("latin-1")

    def wire(self, *, bare: bool, close: bool) -> tuple[bytes, bytes]:
        """Head and body as they go out: no body if *bare*, an announcement if the connection is to *close*."""
        head = self._head + (b"Connection: close\r\n\r\n" if close else b"\r\n")
        return head, b"" if bare else self.answer.body


class Server:
    """All sites of a web."""

    def __init__(self, web: Web, access_log: log.AccessLog, token: str) -> None:
        self.web, self.generation, self.paused_until = web, 0, 0.0
        self.address = Address((0,))
        self.connections: set[Connection] = set()
        self.stopped = asyncio.Event()
        self._log, self._token = access_log, token.encode()
        self._loop = asyncio.get_running_loop()
        self._listening: list[asyncio.Server] = []
        self._requests: Counter[str] = Counter()
        self._asked: dict[int, Counter[str]] = {}
        self._in_flight: Counter[str] = Counter()
        self._recent: dict[int, deque[float]] = {}
        self._numbers = 0
        most = min(8192, max(64, _CACHE_BYTES // max(1, web.default.body_bytes)))
        self._ready = lru_cache(maxsize=most)(self._make)
        self._site_of = lru_cache(maxsize=4096)(self._look_up)
        if any(Odd.BOMB in site.odd for site in (web.default, *web.special.values())):
            render.bomb()  # takes a moment, which no request should have to wait

    async def listen(self, port: int = 0, host: str = "127.0.0.1") -> Address:
        """After: sites are served, on *port* (and those that follow if every site has its own); 0 = on whatever is free."""
        sites = range(self.web.sites) if self.web.by_port else [None]
        for place, site in enumerate(sites):
            connect = partial(self._connect, site)
            made = await self._loop.create_server(connect, host, port + place if port else 0, backlog=4096)
            self._listening.append(made)
        ports = tuple(each.sockets[0].getsockname()[1] for each in self._listening)
        self.address = Address(ports, self.web.by_port)
        return self.address

    def stop(self) -> None:
        """After: nobody is served any more, and the log is complete."""
        for each in self._listening:
            each.close()
        for connection in list(self.connections):
            connection.abandon()
        self._log.close()
        self.stopped.set()

    def _connect(self, site: int | None) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers, site)

    # what a connection asks

    def enter(self, request: Request) -> int:
        """After: the request counts as under way. How many of its host are, with it."""
        self._in_flight[request.host] += 1
        return self._in_flight[request.host]

    def leave(self, request: Request) -> None:
        """After: it does no longer."""
        self._in_flight[request.host] -= 1
        if not self._in_flight[request.host]:
            del self._in_flight[request.host]

    def record(
        self, request: Request, status: int, connection: int, in_flight: int, retry_after: int | None = None
    ) -> None:
        """After: the request will be in the log within 50 ms."""
        agent = request.headers.get(b"user-agent", b"-").decode("latin-1")
        text = log.line(
            request.began, log.boot_ns(), request.wall, request.method, request.host, request.target, status, connection, in_flight,
            retry_after, agent,
        )  # fmt: skip
        if self._log.add(text):
            self._loop.call_later(_FLUSH_EVERY, self._log.flush)

    def answer(self, request: Request, site: int | None, connection: int, earlier_requests: int) -> Ready:
        """The answer to the request, by the number of requests on its connection before it. After: it is counted."""
        number = self._site_of(request.host) if site is None else site
        if number is None:
            return Ready(Answer(421, b"no such site", "text/plain"))
        self._requests[request.host] += 1
        asked = self._asked.get(number) or self._asked.setdefault(number, Counter())
        earlier = asked[request.target]
        plan = self.web.site(number)
        if plan.reset_reused and earlier_requests:
            dice = chance(self.web.seed, number, "reset", f"{connection}/{earlier_requests}")
            if dice < plan.reset_reused:
                return Ready(Answer(0, manner=Manner.RESET))
        limited = plan.rate_limit and not request.target.startswith("/robots")
        if limited and (wait := self._too_quick(number)) is not None:
            return Ready(Answer(429, b"too quick", "text/plain", retry_after=wait))
        asked[request.target] = earlier + 1
        if plan.flaky and earlier < plan.flaky_times:
            answer = page(self.web, number, request.target, self.address, earlier=earlier)
            if answer.status != 200 or answer.manner is not Manner.PLAIN:
                return Ready(answer)
        ready = self._ready(number, request.target, self.generation)
        if _is_known(request, ready.answer):
            known = ready.answer
            return Ready(Answer(304, delay=known.delay, etag=known.etag, modified=known.modified))
        return ready

    def _make(self, number: int, target: str, generation: int) -> Ready:
        return Ready(page(self.web, number, target, self.address, generation=generation))

    def _look_up(self, host: str) -> int | None:
        named = _NAMED.fullmatch(host)
        if named is None:
            return 0 if _FIRST.fullmatch(host) else None
        return int(named[1]) if int(named[1]) < self.web.sites else None

    def _too_quick(self, number: int) -> int | None:
        """Whole seconds that the client must wait; None: it may go on, and this request counts."""
        plan, now = self.web.site(number), self._loop.time()
        recent = self._recent.setdefault(number, deque())
        while recent and recent[0] <= now - plan.rate_window:
            recent.popleft()
        if len(recent) >= plan.rate_limit:
            return max(1, math.ceil(recent[0] + plan.rate_window - now))
        recent.append(now)
        return None

    # control

    def control(self, request: Request) -> bytes | None:
        """The answer to a request for control; None if it is none, or does not know the token."""
        if not request.target.startswith(_CONTROL):
            return None
        if not hmac.compare_digest(request.headers.get(_TOKEN_NAME, b""), self._token):
            return None
        action, _, query = request.target.removeprefix(_CONTROL).partition("?")
        done = self._act(action, dict(parse_qsl(query)))
        told = Answer(200 if done is not None else 404, json.dumps(done).encode(), "application/json")
        return b"".join(Ready(told).wire(bare=False, close=False))

    def _act(self, action: str, values: dict[str, str]) -> dict[str, object] | None:
        if action == "stats":
            paths = {self.address.host(n): asked for n, asked in self._asked.items()} if "paths" in values else {}
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
            self._loop.call_later(0.01, self.stop)  # so that the answer goes out before
            return {}
        return None


def _is_known(request: Request, answer: Answer) -> bool:
    """Has the client the page as it is? An ETag decides if it sent one."""
    if answer.status != 200 or not (answer.etag or answer.modified):
        return False
    if (tags := request.headers.get(b"if-none-match")) is not None:
        return answer.etag is not None and answer.etag.encode() in (tag.strip() for tag in tags.split(b","))
    since = request.headers.get(b"if-modified-since")
    return since is not None and answer.modified is not None and since == answer.modified.encode()
