"""Routes of documents: the main content of a page as Markdown."""

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.request_types import Filter
from holdfast.documents.records import Document

router = APIRouter(route_class=AuthorizedRoute, tags=["pages"])


@router.get("/api/pages/markdown", summary="The main content of a page as Markdown", responses=documented(404))
def markdown(
    url: Annotated[
        str, Query(min_length=1, max_length=4096, description="The URL.", examples=["https://example.com/"])
    ],
    services: Services,
    job: Annotated[Filter, Query(description="As this job crawled it, by name or id.")] = None,
) -> Document:
    """Without menus and footers, with title, author, date and headings. A page whose job does not store it (`markdown`) is read from the
    archive on the server's machine."""
    return services.documents.show(url, job)
