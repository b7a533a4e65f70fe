"""A small HTTP/1.1 client for load: keep-alive connections on asyncio streams, and figures of what came back.

The rule: a request is due at its moment, whatever became of those before it, and its latency is counted from then. A server that stalls
is seen to stall, for as long as it does.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TIMEOUT = 30.0
NOBODY = 0
"""The status of a request that nobody answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    head: bytes
    body: bytes

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """A header by its name in small letters."""
        begin = self.head.lower().find(b"\r\n" + name.encode() + b": ")
        if begin < 0:
            return None
        end = self.head.find(b"\r\n", begin + 2)
        return self.head[begin + len(name) + 4 : end if end > 0 else None].decode("latin-1")

    @property
    def sentence(self) -> str:
        """What a problem says."""
        try:
            return str(self.json().get("detail", ""))
        except (ValueError, AttributeError):
            return self.body[:200].decode("utf-8", "replace")


@dataclass(slots=True)
class Line:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: int = 0

    async def ask(self, request: bytes) -> Answer:
        """Send a request and read its answer."""
        self.used += 1
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, lower = int(head[9:12]), head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            body = b"".join([piece async for piece in self.chunks()])
        else:
            begin = lower.find(b"\r\ncontent-length:")
            length = int(lower[begin + 17 : lower.find(b"\r\n", begin + 2)]) if begin >= 0 else 0
            body = await self.reader.readexactly(length) if length else b""
        return Answer(status, head, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of a body that comes in chunks."""
        while length := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await self.reader.readexactly(length + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    @property
    def is_over(self) -> bool:
        """The server has hung up."""
        return self.reader.at_eof() or self.writer.is_closing()

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


class Api:
    """A server, and whoever asks it over connections that are kept."""

    def __init__(self, port: int, token: str | None, *, most: int = 200, address: str = "127.0.0.1") -> None:
        """At most so many connections, from this address of ours."""
        self._port, self._address = port, address
        self._who = f"Authorization: Bearer {token}\r\n" if token else ""
        self._free: list[Line] = []
        self._places = asyncio.Semaphore(most)
        self.opened = self.repeated = 0

    def request(
        self, method: str, path: str, body: object | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """As it goes over the line."""
        data = b"" if body is None else json.dumps(body).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if body is not None else ""
        empty = "Content-Length: 0\r\n" if body is None and method != "GET" else ""
        first = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        return f"{first}{self._who}{more}{kind}{empty}\r\n".encode() + data

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request. OSError, EOFError, TimeoutError: there was none."""
        async with self._places, asyncio.timeout(TIMEOUT):
            while True:
                line = await self._line()
                try:
                    answer = await line.ask(request)
                except (OSError, EOFError):
                    line.close()
                    if line.used == 1:
                        raise
                    self.repeated += 1  # the server hung up on an idle line while we were sending
                    continue
                except BaseException:
                    line.close()
                    raise
                if b"\r\nconnection: close" in answer.head.lower():
                    line.close()
                else:
                    self._free.append(line)
                return answer

    async def call(self, method: str, path: str, body: object | None = None, **headers: str) -> Answer:
        """The same, from its parts; for what is not measured. Ends the program if it is refused."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.ask(self.request(method, path, body, named))
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.sentence}")
        return answer

    async def line(self) -> Line:
        """A connection of one's own."""
        self.opened += 1
        local = (self._address, 0) if self._address != "127.0.0.1" else None
        return Line(*await asyncio.open_connection("127.0.0.1", self._port, limit=2**20, local_addr=local))

    async def _line(self) -> Line:
        while self._free:
            line = self._free.pop()
            if not line.is_over:
                return line
            line.close()
        return await self.line()

    def close(self) -> None:
        """Hang up all lines."""
        for line in self._free:
            line.close()
        self._free.clear()


async def until(moment: float) -> None:
    """Wait for a moment of the monotonic clock; one that is over is not waited for."""
    left = moment - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)


@dataclass
class Tally:
    """What came of requests to one route."""

    times: list[float] = field(default_factory=list)
    """Seconds from the moment when each was due."""
    statuses: Counter[int] = field(default_factory=Counter)

    def add(self, status: int, seconds: float) -> None:
        """Count one."""
        self.times.append(seconds)
        self.statuses[status] += 1

    def of(self, first: int) -> int:
        """Answers whose status begins with this digit."""
        return sum(count for status, count in self.statuses.items() if status // 100 == first)

    def figures(self) -> dict[str, float]:
        """All of it, times in milliseconds."""
        return {
            "requests": len(self.times),
            "2xx": self.of(2),
            "4xx": self.of(4),
            "5xx": self.of(5),
            "none": self.statuses[NOBODY],
            **quantiles(self.times),
        }


def quantiles(times: list[float]) -> dict[str, float]:
    """Milliseconds of times in seconds."""
    ordered = sorted(times)
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    if not ordered:
        return dict.fromkeys([*parts, "max"], 0.0)
    found = {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for name, part in parts.items()}
    return {name: round(value * 1000, 1) for name, value in {**found, "max": ordered[-1]}.items()}
