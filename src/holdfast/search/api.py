"""Routes of search: documents by their words, and how far the index is."""

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.request_types import Filter, Since, Until
from holdfast.search.index import MAX_QUERY_CHARACTERS
from holdfast.search.records import IndexStatus, SearchFilter, SearchResults
from holdfast.search.service import MAX_LIMIT, MAX_OFFSET

router = APIRouter(route_class=AuthorizedRoute, tags=["pages"])


@router.get("/api/search", summary="Search documents by their words", responses=documented(404))
def search(
    services: Services,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=MAX_QUERY_CHARACTERS,
            description='All words must be there; `"two words"` is a phrase; `OR`, `NOT` and parentheses combine; `title:word` looks '
            "in titles.",
            examples=['"annual report" 2025'],
        ),
    ],
    domain: Annotated[Filter, Query(description="Only of this domain.")] = None,
    job: Annotated[Filter, Query(description="Only of this job, by name or id.")] = None,
    language: Annotated[Filter, Query(description="Only in this language, as `en`.")] = None,
    kind: Annotated[Filter, Query(description="Only pages of this kind, as `article`.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 10,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> SearchResults:
    """The best first, each with the part of its text that has most of the words. Documents are those of jobs with `markdown`; `index` says
    how many of them are not in the index yet."""
    where = SearchFilter(domain, job, language or None, kind or None, since, until)
    return services.search.search(q, where, limit=limit, offset=offset)


@router.get("/api/search/status", summary="How far the search index is")
def status(services: Services) -> IndexStatus:
    """Of the index on the server's machine."""
    return services.search.status()
