"""Waiting URLs of the frontier, as a visit reads them.

The rule: taking writes nothing. The claim on the domain is the ownership; a URL stays waiting until its outcome is committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import psycopg

from holdfast.db import array_params
from holdfast.model.commit_batch import IMAGE_PRIORITY, FrontierItem, Resource
from holdfast.model.outcome import PAGES

_MINE: Final = (
    "f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.state = 'waiting' AND f.url_key <> ALL(%(besides)s::bytea[])"
)

_RESOURCES: Final = {str(resource): resource for resource in Resource}

# Not a join: it would be made for every URL, and most are none that is refreshed.
# Only of pages: after "not modified", what was not read before (of another type, too large) would be a page without content, and of a job
# that records links one whose links are not known.
_PAGE: Final = f"""
FROM crawled_pages p WHERE p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key
  AND p.outcome IN ({", ".join(f"'{outcome}'" for outcome in sorted(PAGES))})
  AND (NOT %(links)s OR EXISTS (SELECT FROM page_links l WHERE l.domain_id = f.domain_id AND l.job_id = f.job_id AND l.url_key = f.url_key))
"""

# In the order of the index url_frontier_waiting, so that nothing is sorted and nothing behind the last row is looked at.
_TAKE: Final = f"""
SELECT f.url_key, f.url, f.depth, f.attempts, f.hops, f.parent_key, f.kind = 'refresh',
       CASE WHEN f.kind = 'refresh' THEN (SELECT etag {_PAGE}) END, CASE WHEN f.kind = 'refresh' THEN (SELECT last_modified {_PAGE}) END,
       f.steps, f.barren, COALESCE(f.resource, 'page')
FROM url_frontier f WHERE {_MINE} AND (f.not_before IS NULL OR f.not_before <= clock_timestamp()){{lane}}
ORDER BY f.priority DESC, f.depth, f.url_key LIMIT %(count)s
"""  # noqa: S608 — composed of the constants above only
_ALL_LANES: Final = _TAKE.format(lane="")
_PAGES: Final = _TAKE.format(lane=f" AND f.priority > {IMAGE_PRIORITY}")
_IMAGES: Final = _TAKE.format(lane=f" AND f.priority = {IMAGE_PRIORITY}")
IMAGE_SHARE: Final = 4
"""One URL in this many is an image, if both wait."""
_NEXT: Final = f"""
SELECT extract(epoch FROM min(f.not_before) - clock_timestamp())::float8 FROM url_frontier f WHERE {_MINE} AND f.not_before IS NOT NULL
"""  # noqa: S608 — composed of the constant above only


@dataclass(frozen=True, slots=True)
class FrontierBatch:
    """URLs read from the frontier."""

    urls: list[FrontierItem]
    next_in: float | None
    """Seconds until the first delayed URL is due; None: there is none, or `count` URLs were found without it."""


def take(
    connection: psycopg.Connection,
    *,
    domain_id: int,
    job_id: int,
    count: int,
    exclude: Sequence[bytes],
    images: bool = False,
    links: bool = False,
) -> FrontierBatch:
    """Up to `count` due URLs, best first, without the keys in `exclude`, which the visit has in memory. `images`: every fourth is an image,
    as long as both wait. `links`: pages whose links are not recorded are fetched whole.

    Before: the caller holds the domain. After: nothing is changed.
    """
    parameters = {
        "domain": domain_id,
        "job": job_id,
        "count": count,
        "besides": array_params.keys(exclude),
        "links": links,
    }
    if images:
        of_images = _read(connection, _IMAGES, parameters | {"count": max(1, count // IMAGE_SHARE)})
        urls = _interleaved(_read(connection, _PAGES, parameters | {"count": count - len(of_images)}), of_images)
    else:
        urls = _read(connection, _ALL_LANES, parameters)
    if len(urls) >= count:
        return FrontierBatch(urls, None)
    parameters["besides"] = array_params.keys([*exclude, *{waiting.url_key for waiting in urls}])
    row = connection.execute(_NEXT, parameters, prepare=False).fetchone()
    return FrontierBatch(urls, None if row is None or row[0] is None else max(0.0, float(row[0])))


def _read(connection: psycopg.Connection, query: str, parameters: dict[str, object]) -> list[FrontierItem]:
    # Not prepared: without the values of `exclude` each row would be compared with them one by one, which took six times as long.
    rows = connection.execute(query.encode(), parameters, prepare=False)
    return [FrontierItem._make((*row[:-1], _RESOURCES[row[-1]], ())) for row in rows]


def _interleaved(pages: list[FrontierItem], images: list[FrontierItem]) -> list[FrontierItem]:
    """Both lanes, each in its order: an image after every three pages, and the rest of the longer one."""
    mixed: list[FrontierItem] = []
    waiting = iter(images)
    for number, page in enumerate(pages, 1):
        mixed.append(page)
        if number % (IMAGE_SHARE - 1) == 0:
            mixed += islice(waiting, 1)
    return mixed + list(waiting)
