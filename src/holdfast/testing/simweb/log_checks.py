"""Checks of a crawl by the access log of the simulated sites.

The rule: pure functions of hits (and of the expected pages) that return violations; an empty result is the proof.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.testing.simweb import sitemaps
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.site import MUST_FETCH, MUST_NOT_FETCH, ExpectedPage, UrlKind, is_trap

_ROBOTS: Final = ("/robots.txt", "/robots-moved.txt")
_BY_CUSTOM: Final = frozenset((*_ROBOTS, sitemaps.DEFAULT_PATH))
"""Paths that a crawler may request though nothing names them."""


class TooClose(NamedTuple):
    """Two requests to one host with too short a gap between them (seconds)."""

    earlier: Hit
    later: Hit
    gap: float


def by_host(hits: Iterable[Hit]) -> dict[str, list[Hit]]:
    """Group hits by host, in the order of their start."""
    hosts = defaultdict(list)
    for hit in sorted(hits, key=lambda hit: hit.at):
        hosts[hit.host].append(hit)
    return dict(hosts)


def gaps(hits: Iterable[Hit], host: str) -> list[float]:
    """Seconds between the starts of consecutive requests to a host."""
    return [later.at - earlier.at for earlier, later in pairwise(by_host(hits).get(host, []))]


def too_close(hits: Iterable[Hit], delay: float) -> list[TooClose]:
    """Pairs of consecutive requests to a host that started less than *delay* seconds apart.

    A server that stood still reads a request late: the earlier one may have arrived before its time in the log, by `late` at most.
    """
    found = []
    for requests in by_host(hits).values():
        for earlier, later in pairwise(requests):
            if later.at - (earlier.at - earlier.late) < delay:
                found.append(TooClose(earlier, later, later.at - earlier.at))
    return found


def max_concurrent(hits: Iterable[Hit], host: str | None = None) -> int:
    """The maximum number of concurrent requests to *host*, or to all hosts."""
    changes = []
    for hit in hits:
        if host is None or hit.host == host:
            changes += [(hit.at, 1), (hit.ended_at, -1)]
    maximum = current = 0
    for _, change in sorted(changes):  # a request that ends when another begins does not overlap: -1 sorts first
        current += change
        maximum = max(maximum, current)
    return maximum


def count_requests(hits: Iterable[Hit]) -> Counter[str]:
    """Requests by URL, whatever their status; without robots.txt."""
    return Counter(hit.url for hit in hits if hit.path not in _ROBOTS)


def count_refetches(hits: Iterable[Hit]) -> Counter[str]:
    """URLs fetched with status 200 more than once, with the number of extra fetches; without robots.txt."""
    got = Counter(hit.url for hit in hits if hit.method == "GET" and hit.status == 200 and hit.path not in _ROBOTS)
    return Counter({url: count - 1 for url, count in got.items() if count > 1})


def before_robots(hits: Iterable[Hit]) -> list[Hit]:
    """Requests to a host before its first response to robots.txt."""
    found = []
    for requests in by_host(hits).values():
        answered = min((hit.ended_at for hit in requests if hit.path == _ROBOTS[0]), default=float("inf"))
        found += [hit for hit in requests if hit.path not in _ROBOTS and hit.at < answered]
    return found


def robots_first(hits: Iterable[Hit]) -> bool:
    """Whether robots.txt was fetched (or failed) before anything else, on every host."""
    return not before_robots(hits)


def before_retry_after(hits: Iterable[Hit]) -> list[TooClose]:
    """Requests to a host before the end of a Retry-After."""
    found = []
    for requests in by_host(hits).values():
        for index, refusal in enumerate(requests):
            if refusal.retry_after is None:
                continue
            until = refusal.ended_at + refusal.retry_after
            found += [
                TooClose(refusal, later, later.at - refusal.ended_at)
                for later in requests[index + 1 :]
                if refusal.ended_at <= later.at < until
            ]
    return found


def missing_pages(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[ExpectedPage]:
    """Expected pages that were not fetched with their final status."""
    seen = defaultdict(set)
    for hit in hits:
        seen[hit.url].add(hit.status)
    return [
        page
        for page in expected
        if page.kind in MUST_FETCH
        and (not seen.get(page.url) if page.status is None else page.status not in _seen(seen, page))
    ]


def _seen(seen: dict[str, set[int]], page: ExpectedPage) -> set[int]:
    statuses = seen.get(page.url, set())
    unchanged = page.status == 200 and 304 in statuses  # the client had it from an earlier crawl
    return statuses | {200} if unchanged else statuses


def forbidden_requests(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[Hit]:
    """Requests for URLs that robots.txt disallows or that only nofollow links lead to."""
    never = {page.url for page in expected if page.kind in MUST_NOT_FETCH}
    return [hit for hit in hits if hit.url in never]


def unknown_urls(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[Hit]:
    """Requests for URLs that nothing asks for: neither expected nor robots.txt, a sitemap at the usual address or traps. The images of
    pages are expected only of crawls that store them (`expected_images`)."""
    known = {page.url for page in expected}
    return [hit for hit in hits if hit.url not in known and hit.path not in _BY_CUSTOM and not is_trap(hit.path)]


def count_kinds(expected: Sequence[ExpectedPage]) -> Counter[UrlKind]:
    """The number of expected pages of each kind."""
    return Counter(page.kind for page in expected)
