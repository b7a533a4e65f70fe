"""Routes of images: list, one with its pages, its file and its thumbnail."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import INTEGER, Filter, Since
from holdfast.images.records import Image, ImageDetails, ImageFilter

router = APIRouter(route_class=AuthorizedRoute, tags=["images"])

FILE_HEADERS: Final = {
    # Nothing of the web is run: no script in an SVG, no type that is guessed.
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=86400",
}
_BYTES: Final = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_Id = Annotated[int, Path(ge=1, le=2**63 - 1, description="The id of an image.")]
_Pixels = Annotated[int | None, Query(ge=1, le=INTEGER, description="At least this many pixels.")]


@router.get("/api/images", summary="Images", responses=documented(404))
def images(
    services: Services,
    request: Request,
    response: Response,
    domain: Annotated[Filter, Query(description="Only on pages of this domain.")] = None,
    job: Annotated[Filter, Query(description="Only what this job saw first, by name or id.")] = None,
    format: Annotated[Filter, Query(description="Only of this format, such as jpeg.")] = None,  # noqa: A002 — of the query
    min_width: _Pixels = None,
    min_height: _Pixels = None,
    since: Annotated[Since, Query(description="Only what was first seen at this time or later.")] = None,
    near: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only near duplicates of this image.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Image]:
    """By the time when they were first stored."""
    where = ImageFilter(domain, job, format, min_width, min_height, since, near)
    after = decode_list_cursor("images", order, cursor)
    found = services.images.page(where, order=order, after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/images/{image_id}", summary="An image and the pages that have it", responses=documented(404))
def image(image_id: _Id, services: Services) -> ImageDetails:
    """With the ids of near duplicates."""
    return services.images.show(image_id)


@router.get(
    "/api/images/{image_id}/file",
    summary="The file of an image",
    response_class=Response,
    responses={
        200: {**_BYTES, "description": "The bytes."},
        304: {"description": "The client has it."},
        **documented(404),
    },
)
def file(image_id: _Id, services: Services, request: Request) -> Response:
    """With the type of its content. An SVG comes as plain text to save: it may contain scripts."""
    sha256 = services.images.sha256(image_id)
    headers = {**FILE_HEADERS, "ETag": f'"{sha256}"'}
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    found = services.images.file(image_id)
    if found.format == "svg":
        headers["Content-Disposition"] = f'attachment; filename="{sha256}.svg"'
        return Response(found.body, media_type="text/plain; charset=utf-8", headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)


@router.get(
    "/api/images/{image_id}/thumbnail",
    summary="The thumbnail of an image",
    response_class=Response,
    responses={
        200: {
            "content": {"image/webp": {"schema": {"type": "string", "format": "binary"}}},
            "description": "WebP of 256 pixels.",
        },
        304: {"description": "The client has it."},
        **documented(404),
    },
)
def thumbnail(image_id: _Id, services: Services, request: Request) -> Response:
    """Made now, unless it is in memory. 404 for an SVG, which is not rendered."""
    headers = {**FILE_HEADERS, "ETag": f'"thumbnail-{services.images.sha256(image_id)}"'}
    if is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(services.images.thumbnail(image_id), media_type="image/webp", headers=headers)


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has what this ETag names."""
    return etag in (one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(","))
