"""Requests about images and their files."""

from datetime import datetime

from holdfast.client.job_ref import JobRef, optional_job
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path
from holdfast.images.records import Image, ImageDetails


def images(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    format: str | None = None,  # noqa: A002 — as the API has it
    min_width: int | None = None,
    min_height: int | None = None,
    since: datetime | None = None,
    near: int | None = None,
    order: str = "newest",
) -> ListSpec[Image]:
    """Images that crawls stored; `near` those that look like an image. The order is `newest` or `oldest`, by when each was stored."""
    size = {"min_width": min_width, "min_height": min_height}
    filters = {"domain": domain, "job": optional_job(job), "format": format, **size, "since": since, "near": near}
    return ListSpec("/api/images", Image, {**filters, "order": order})


def image(image_id: int) -> RequestSpec[ImageDetails]:
    """An image, pages that have it, and near duplicates."""
    return RequestSpec("GET", format_path("/api/images/{}", image_id), decode_one(ImageDetails))


def image_file(image_id: int) -> RequestSpec[bytes]:
    """The bytes of an image."""
    path = format_path("/api/images/{}/file", image_id)
    return RequestSpec("GET", path, lambda answer: answer.content, headers={"Accept": "*/*"})


def image_thumbnail(image_id: int) -> RequestSpec[bytes]:
    """The thumbnail of an image, as WebP."""
    path = format_path("/api/images/{}/thumbnail", image_id)
    return RequestSpec("GET", path, lambda answer: answer.content, headers={"Accept": "*/*"})
