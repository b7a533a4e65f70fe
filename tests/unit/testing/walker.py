"""A crawler of thirty lines that the truth of the simulated web is compared with. It knows nothing but HTML, links and redirects."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urljoin

_LINK = re.compile(rb'<a href="([^"]+)"( rel="nofollow")?>')
_NOFOLLOW = b'content="nofollow"'
RETRIES = 2


class Got(NamedTuple):
    """How a request ended; status 0: without an answer."""

    status: int
    body: bytes = b""
    location: str | None = None


def walk(start: str, ask: Callable[[str], Got], *, denied: str = "/private/", max_redirects: int = 5) -> dict[str, int]:
    """Every URL of the host that was asked for, with the status of the last answer."""
    origin = start.removesuffix("/")
    ends: dict[str, int] = {}
    waiting = [(start, 0)]
    while waiting:
        url, hops = waiting.pop()
        if url in ends or not url.startswith(f"{origin}/") or url.startswith(origin + denied):
            continue
        for _ in range(1 + RETRIES):
            got = ask(url)
            if got.status and got.status < 500:
                break
        ends[url] = got.status
        if got.location is not None and hops < max_redirects:
            waiting.append((urljoin(url, got.location), hops + 1))
        if got.status == 200 and _NOFOLLOW not in got.body:
            waiting += [(urljoin(url, link.decode()), 0) for link, nofollow in _LINK.findall(got.body) if not nofollow]
    return ends
