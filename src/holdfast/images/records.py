"""Images that crawls stored, the pages that have them, and the filter of the list."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.errors import UsageError
from holdfast.model.image import FORMATS
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import record


@record
class Image:
    """An image by its content: the same bytes are one image, however many URLs lead to it."""

    id: int
    sha256: str
    """Of its bytes, in hexadecimal digits."""
    format: str
    """By its content: jpeg, png, gif, webp, avif, bmp, tiff, ico or svg."""
    media_type: str
    width: int | None
    """In pixels, as it is displayed; none where an SVG does not say it. Likewise the height."""
    height: int | None
    size: int
    """Bytes."""
    frames: int
    animated: bool
    near_duplicate_of: int | None
    """The earlier image that it looks like."""
    first_seen_at: datetime
    last_seen_at: datetime
    url: str | None
    """A URL that led to it."""
    domain: str | None
    """A domain that has it on its pages."""
    alt: str | None
    """What a page says of it."""


@record
class ImagePlace:
    """A page that has an image."""

    page_url: str
    domain: str
    job: str | None
    """That saw it first."""
    image_url: str | None
    alt: str
    found_in: str | None
    """Where in the page: img, srcset, picture, lazy, svg, og:image, link or json-ld."""
    discovery_type: str
    first_seen_at: datetime
    last_seen_at: datetime


@record
class ImageDetails:
    """An image, pages that have it, and images that look like it."""

    image: Image
    file: str
    """The key of its file in the store of images."""
    places: list[ImagePlace]
    """The first hundred."""
    near: list[int]
    """Ids of near duplicates, a hundred at most."""


@record
class UrlImage:
    """What the URL of an image led to, when it was last fetched as one by any job."""

    id: int | None
    """Of the image; null: none is stored. The five that follow are null then, too."""
    format: str | None
    width: int | None
    height: int | None
    size: int | None
    """Bytes."""
    fetched_at: datetime | None
    """Null: it was not fetched yet."""
    problem: str | None
    """Why what it led to was not stored the last time: an outcome, `not_an_image`, `image_too_large`, `image_damaged` or
    `image_too_costly`."""
    detail: str | None
    """The problem as a clause."""


@record
class ExportedImage:
    """A row of the metadata of exported images: an image on a page."""

    file: str
    sha256: str
    format: str
    width: int | None
    height: int | None
    size: int
    frames: int
    near_duplicate_of: str | None
    """The hash of the image that it looks like."""
    image_url: str | None
    page_url: str | None
    domain: str | None
    alt: str | None
    found_in: str | None
    first_seen_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True, slots=True)
class Garbage:
    """What `holdfast gc` deleted, or would delete."""

    images: int
    """Images that no page has."""
    files: int
    """Files to which no image points."""
    bytes: int
    """Of these files."""
    leftovers: int
    """Unfinished files that killed processes left."""
    dry_run: bool
    for_backups: int = 0
    """Files to which no image points, and which a kept backup may name that has no copy of them: they stay until it is deleted."""


@record
class ImageFilter(ListFilter):
    """Which images to list; None: all."""

    domain: str | None = None
    """On pages of this domain."""
    job: str | int | None = None
    """Seen first by this job, by name or id."""
    format: str | None = None
    min_width: int | None = None
    """In pixels. Likewise the height."""
    min_height: int | None = None
    since: datetime | None = None
    """First seen at this time or later."""
    near: int | None = None
    """Near duplicates of the image with this id, with itself."""

    def given(self) -> dict[str, object]:
        """Return the filters that are present, by the names of the query. Raises UsageError."""
        if self.format is not None and self.format not in FORMATS:
            raise UsageError(f"There is no format {self.format!r}; there are {', '.join(FORMATS)}.")
        return ListFilter.given(self)
