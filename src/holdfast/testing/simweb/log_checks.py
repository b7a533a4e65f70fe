"""The judge: what an access log proves about a crawl.

The rule: pure functions of hits (and of the truth); they say what is wrong, so that an empty answer is the proof.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.simweb.log import Hit
from holdfast.simweb.site import MUST, NEVER, ExpectedPage, Kind, is_trap

_ROBOTS: Final = ("/robots.txt", "/robots-moved.txt")


class TooClose(NamedTuple):
    """Two requests to one host with less between them than there should be."""

    earlier: Hit
    later: Hit
    gap: float


def by_host(hits: Iterable[Hit]) -> dict[str, list[Hit]]:
    """The hits of each host, in the order in which they began."""
    hosts = defaultdict(list)
    for hit in sorted(hits, key=lambda hit: hit.at):
        hosts[hit.host].append(hit)
    return dict(hosts)


def gaps(hits: Iterable[Hit], host: str) -> list[float]:
    """Seconds from the beginning of a request to the host to that of the next."""
    return [later.at - earlier.at for earlier, later in pairwise(by_host(hits).get(host, []))]


def too_close(hits: Iterable[Hit], delay: float) -> list[TooClose]:
    """Pairs of requests to any host that began less than *delay* after each other."""
    found = []
    for mine in by_host(hits).values():
        for earlier, later in pairwise(mine):
            if later.at - earlier.at < delay:
                found.append(TooClose(earlier, later, later.at - earlier.at))
    return found


def most_at_once(hits: Iterable[Hit], host: str | None = None) -> int:
    """The most requests that were under way together; to *host*, or on the whole web."""
    changes = []
    for hit in hits:
        if host is None or hit.host == host:
            changes += [(hit.at, 1), (hit.ended_at, -1)]
    most = now = 0
    for _, change in sorted(changes):  # one that ends when another begins is no overlap: -1 comes first
        now += change
        most = max(most, now)
    return most


def asked(hits: Iterable[Hit]) -> Counter[str]:
    """How often each URL was asked for, however it ended; robots.txt apart."""
    return Counter(hit.url for hit in hits if hit.path not in _ROBOTS)


def refetched(hits: Iterable[Hit]) -> Counter[str]:
    """URLs that were got whole more than once, and how often too many; robots.txt apart."""
    got = Counter(hit.url for hit in hits if hit.method == "GET" and hit.status == 200 and hit.path not in _ROBOTS)
    return Counter({url: count - 1 for url, count in got.items() if count > 1})


def before_robots(hits: Iterable[Hit]) -> list[Hit]:
    """Requests to hosts that had not answered for robots.txt yet."""
    found = []
    for mine in by_host(hits).values():
        answered = min((hit.ended_at for hit in mine if hit.path == _ROBOTS[0]), default=float("inf"))
        found += [hit for hit in mine if hit.path not in _ROBOTS and hit.at < answered]
    return found


def robots_first(hits: Iterable[Hit]) -> bool:
    """Was robots.txt had (or found to be out of reach) before anything else, on every host?"""
    return not before_robots(hits)


def impatient(hits: Iterable[Hit]) -> list[TooClose]:
    """Requests that came before the time was over that an answer of the host told to wait (Retry-After)."""
    found = []
    for mine in by_host(hits).values():
        for place, refusal in enumerate(mine):
            if refusal.retry_after is None:
                continue
            until = refusal.ended_at + refusal.retry_after
            found += [
                TooClose(refusal, later, later.at - refusal.ended_at)
                for later in mine[place + 1 :]
                if refusal.ended_at <= later.at < until
            ]
    return found


def missing(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[ExpectedPage]:
    """What a complete crawl must have had, with the status in which it ends, and this one has not."""
    seen = defaultdict(set)
    for hit in hits:
        seen[hit.url].add(hit.status)
    return [
        page
        for page in expected
        if page.kind in MUST
        and (not seen.get(page.url) if page.status is None else page.status not in _seen(seen, page))
    ]


def _seen(seen: dict[str, set[int]], page: ExpectedPage) -> set[int]:
    statuses = seen.get(page.url, set())
    unchanged = page.status == 200 and 304 in statuses  # the client had it from before
    return statuses | {200} if unchanged else statuses


def unwanted(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[Hit]:
    """Requests for what robots.txt denies or no link may be followed to."""
    never = {page.url for page in expected if page.kind in NEVER}
    return [hit for hit in hits if hit.url in never]


def strange(expected: Iterable[ExpectedPage], hits: Iterable[Hit]) -> list[Hit]:
    """Requests for URLs that are neither expected nor robots.txt, pictures or in traps: somebody made them up."""
    known = {page.url for page in expected}
    return [
        hit
        for hit in hits
        if hit.url not in known
        and hit.path not in _ROBOTS
        and not hit.path.startswith("/img/")
        and not is_trap(hit.path)
    ]


def tally(expected: Sequence[ExpectedPage]) -> Counter[Kind]:
    """How many there are of each kind."""
    return Counter(page.kind for page in expected)
