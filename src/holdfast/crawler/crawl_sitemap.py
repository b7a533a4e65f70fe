"""Sitemaps in the walk: which ones an origin has, and the reading of one, in pieces.

The rule: a sitemap is a URL of the frontier like any other: claimed, allowed by robots.txt, in its turn. It waits until its last piece is
in the batch; if the worker dies before, it is read again from the beginning, and what it listed is in the frontier once.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from holdfast import failpoints
from holdfast.crawler.link_filter import LinkFilter
from holdfast.crawler.visit_results import VisitResults
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, Resource, SitemapRow, UrlOutcome
from holdfast.model.job import Sitemaps
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.sitemap import EntryKind, SitemapEntry, SitemapLimits
from holdfast.parse.sitemap import SitemapParser
from holdfast.politeness.robots_txt import ALLOW_ALL, Robots
from holdfast.politeness.sitemap_discovery import DEFAULT_PATH, sitemap_urls

PIECE: Final = 5000
"""URLs that are committed together."""
MAX_LEVEL: Final = 2
"""Indexes in a row that lead to a sitemap. The protocol has one."""
MAX_SITEMAPS_IN_MEMORY: Final = 4
"""Of a worker process; each may have `MAX_BYTES`."""
MAX_BYTES: Final = SitemapLimits().decoded_bytes
FIRST_DEPTH: Final = 1
"""Of the sitemaps of robots.txt, as if the home page linked to them; what an index lists is one deeper."""


class SitemapFinder:
    """The sitemaps of the origins that a visit crawls, each announced once a visit."""

    def __init__(self, links: LinkFilter, *, wanted: bool) -> None:
        """`wanted`: whether the job reads sitemaps."""
        self._links = links
        self._wanted = wanted
        self._origins: set[str] = set()
        self._waiting: list[DiscoveredUrl] = []

    def announce(self, item: FrontierItem, robots: Robots | None) -> None:
        """Add the sitemaps of a URL's origin. `robots`: its robots.txt; None: it is not read. After: `take` returns them."""
        if not self._wanted or item.resource is not Resource.PAGE:
            return
        origin = item.url[: item.url.index("/", 8)]
        if origin in self._origins:
            return
        self._origins.add(origin)
        for address in sitemap_urls(robots or ALLOW_ALL, origin):
            if (found := self._links.sitemap(item, address, depth=FIRST_DEPTH)) is not None:
                self._waiting.append(found)

    def linked(self, item: FrontierItem, base: str | None, hrefs: Iterable[str]) -> list[DiscoveredUrl]:
        """The sitemaps and feeds that a page links to."""
        if not self._wanted:
            return []
        return [
            found
            for href in hrefs
            if (found := self._links.sitemap(item, href, depth=FIRST_DEPTH, base=base)) is not None
        ]

    def take(self) -> list[DiscoveredUrl]:
        """Return the sitemaps that were announced since the last call."""
        found, self._waiting = self._waiting, []
        return found


def is_guessed(url: str) -> bool:
    """Whether a sitemap's URL is where sitemaps are by custom: it is requested whether or not anything names it."""
    return url[url.index("/", 8) :] == DEFAULT_PATH


def are_wanted(sitemaps: Sitemaps, *, follow: bool, max_depth: int) -> bool:
    """Whether a job reads sitemaps. One that follows no links does not, nor one that crawls its seeds only."""
    return sitemaps is not Sitemaps.NO and follow and max_depth > 0


async def read_sitemap(
    item: FrontierItem, body: bytes, *, job_id: int, links: LinkFilter, results: VisitResults
) -> tuple[SitemapRow, list[DiscoveredUrl]]:
    """Put what a sitemap lists into the batch, in pieces; return its row and the last piece, which goes with its outcome.

    After: all pieces but the last are in the batch. Memory is bounded: a piece waits until the batch has room.
    """
    parser = SitemapParser()
    found: list[DiscoveredUrl] = []
    listed = 0
    for entries in parser.read(body):
        for entry in entries:
            listed += 1
            found += _urls_of(item, entry, links)
        while len(found) >= PIECE:
            piece, found = found[:PIECE], found[PIECE:]
            row = UrlOutcome(
                *(job_id, item.url_key, item.url, item.depth, Outcome.SITEMAP, UrlState.WAITING),
                reason=f"{Outcome.SITEMAP}: is being read, {listed:,} entries so far",
                attempts=item.attempts,
                fetched=False,
                partial=True,
            )
            await results.add_piece(item, row, piece)
        await asyncio.sleep(0)  # other visits go on between two slices
    failpoints.reach("sitemap_read")
    summary = parser.summary
    return SitemapRow(
        format=None if summary.format is None else str(summary.format),
        entries=summary.entries,
        skipped=summary.skipped.total(),
        bytes=len(body),
        problem=summary.problem,
    ), found


def _urls_of(item: FrontierItem, entry: SitemapEntry, links: LinkFilter) -> list[DiscoveredUrl]:
    if entry.kind is EntryKind.SITEMAP:
        deeper = item.depth + 1
        if deeper > FIRST_DEPTH + MAX_LEVEL:
            return []
        inner = links.sitemap(item, entry.url, depth=deeper)
        return [] if inner is None else [inner]
    addresses = [entry.url, *(address for _, address in entry.alternates)]
    return links.listed(item, addresses, lastmod=entry.lastmod, priority=entry.priority)
