"""Images in the walk: those of a page, and what the URL of one led to.

The rule: an image is a URL of the frontier of its own host, claimed, allowed by robots.txt and fetched in its turn; it is in scope because
its page is. What it is its bytes say, and they are on disk before the row.
"""

from collections.abc import Callable

from holdfast.archive.image_store import ImageFile
from holdfast.crawler.link_filter import LinkFilter
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem
from holdfast.model.fetch_types import FetchResult, ParsedPage
from holdfast.model.image import FetchedImage, ImageLink
from holdfast.model.outcome import Outcome
from holdfast.parse.image_check import ImageChecker


class ImageBudget:
    """How many images of one host a job may still store. An image is reserved when its URL is chosen, so that the limit is exact."""

    def __init__(self, limit: int, stored: int) -> None:
        """`stored`: those of visits before."""
        self._limit = limit
        self._stored = stored
        self._reserved: set[bytes] = set()

    def reserve(self, key: bytes) -> bool:
        """Whether the image with this key may be fetched. After: if so, it counts until `give_back`."""
        if key not in self._reserved and self._stored + len(self._reserved) >= self._limit:
            return False
        self._reserved.add(key)
        return True

    def give_back(self, key: bytes) -> None:
        """Count a URL no more: it led to no image that is stored."""
        self._reserved.discard(key)

    @property
    def reason(self) -> str:
        """Why an image is left out."""
        return f"{Outcome.IMAGE_LIMIT}: {self._limit:,} images of this host (images.max_per_host)"


def images_of(
    item: FrontierItem, parsed: ParsedPage, links: LinkFilter, *, domain_id: int, job_id: int
) -> tuple[list[DiscoveredUrl], tuple[ImageLink, ...]]:
    """Return the images of a page as rows of the frontier, and where on the page they are."""
    found: list[DiscoveredUrl] = []
    places: list[ImageLink] = []
    for image in parsed.found_images:
        row = links.image(item, image.href, base=parsed.base)
        if row is None:
            continue
        found.append(row)
        places.append(
            ImageLink(
                *(domain_id, job_id, item.url_key, item.url, row.url_key, row.url),
                alt=image.alt,
                found_in=image.found_in,
                discovery_type="refresh" if item.refresh else "discovery",
            )
        )
    return found, tuple(places)


async def check_image(
    item: FrontierItem, result: FetchResult, outcome: Outcome, checker: ImageChecker, before_waiting: Callable[[], None]
) -> tuple[Outcome, FetchedImage, ImageFile | None]:
    """Check what the URL of an image led to; return its outcome, its row, and the file to store if it is an image."""
    key, url = item.url_key, item.url
    if outcome is not Outcome.OK:
        return outcome, FetchedImage(key, url, problem=str(outcome), detail=result.detail), None
    facts = await checker.check(result.body, before_waiting=before_waiting)
    if facts.problem is not None or facts.extension is None:
        return Outcome.BAD_IMAGE, FetchedImage(key, url, problem=str(facts.problem), detail=facts.detail), None
    return Outcome.IMAGE, FetchedImage(key, url, facts), ImageFile(facts.sha256, facts.extension, result.body)
