"""Images that crawls stored: a wall of thumbnails, and one image with the pages that have it."""

from typing import Annotated, Final

from fastapi import Path, Response

from holdfast.api.app_services import Services
from holdfast.api.forms import Form
from holdfast.api.pagination import decode_list_cursor
from holdfast.dashboard.lists import ROWS, read_list
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.images.records import Image, ImageFilter
from holdfast.model.image import FORMATS

router = page_router()

_ORDER: Final = "newest"


@router.get("/images")
def images(context: Context, services: Services) -> Response:
    """The wall, those that were stored last first."""

    def read(form: Form) -> Page[Image]:
        where = ImageFilter(
            form.text("domain"),
            form.text("job"),
            form.text("format"),
            form.integer("min_width", "Width"),
            form.integer("min_height", "Height"),
            None,
            form.integer("near", "Like image"),
        )
        after = decode_list_cursor("images", _ORDER, form.text("cursor"))
        return services.images.page(where, order=_ORDER, after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("images/list.html", notice=shown.notice, shown=shown, formats=sorted(FORMATS))


@router.get("/images/{image_id}")
def image(image_id: Annotated[int, Path(ge=1, le=2**63 - 1)], context: Context, services: Services) -> Response:
    """One image: what it is, and the pages that have it."""
    found = services.images.show(image_id)
    return context.page("images/image.html", found=found, image=found.image)
