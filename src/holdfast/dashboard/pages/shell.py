"""What all pages need: static files, live streams, and the search box."""

import gzip
from contextlib import suppress
from functools import cache
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Path, Query, Request, Response
from fastapi.responses import JSONResponse

from holdfast.api.app_services import Services
from holdfast.dashboard import live
from holdfast.dashboard.live import view_key
from holdfast.dashboard.rendering import STATIC, Context, query
from holdfast.dashboard.route import page_router
from holdfast.errors import HoldfastError, NotFound, SearchUnavailable

router = page_router()

_MEDIA_TYPES: Final = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}
"""The static files, by name: a name from a request is looked up here, never in a folder."""
Name = Annotated[str, Path(max_length=100)]


@router.get("/static/{name}")
async def static_file(name: Name, request: Request) -> Response:
    """A static file. Its address has a hash of its content, so browsers keep it."""
    if name not in _MEDIA_TYPES:
        raise NotFound("There is no such file.")
    plain, gzipped = _file(name)
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(gzipped, media_type=_MEDIA_TYPES[name], headers={**headers, "Content-Encoding": "gzip"})
    return Response(plain, media_type=_MEDIA_TYPES[name], headers=headers)


@cache
def _file(name: str) -> tuple[bytes, bytes]:
    data = (STATIC / name).read_bytes()
    return data, gzip.compress(data, 9, mtime=0)


@router.get("/live/{view}")
def live_stream(view: Name, request: Request, services: Services, context: Context) -> Response:
    """Server-Sent Events: the regions of a page, whenever they change."""
    return live.stream(request, services, view_key(view, context.caller, dict(request.query_params)))


@router.get("/regions/{view}")
def regions(view: Name, request: Request, services: Services, context: Context) -> Response:
    """The regions of a page as JSON, once: for browsers that have no connection left for a stream."""
    key = view_key(view, context.caller, dict(request.query_params))
    try:
        return JSONResponse(live.regions_of(services).latest(key))
    except NotFound:
        return JSONResponse({}, 404)


@router.get("/search")
def search(context: Context, services: Services, q: Annotated[str, Query(max_length=2048)] = "") -> Response:
    """Go to the job, the domain or the page that was typed, or to the pages whose content or title has these words."""
    text = q.strip()
    if not text:
        return context.redirect("/pages")
    if "://" in text:
        return context.redirect(query("/pages/page", url=text))
    with suppress(HoldfastError):  # not the name of a job
        return context.redirect(f"/jobs/{quote(services.jobs(context.caller).show(text).name, safe='')}")
    with suppress(HoldfastError):  # nor of a domain
        return context.redirect(f"/domains/{quote(services.domains.info(text).domain, safe='')}")
    with suppress(SearchUnavailable):  # titles are in the database
        if services.search.status().documents:
            return context.redirect(query("/documents", q=text))
    return context.redirect(query("/pages", title=text), problem=f"There is no job or domain called “{text}”.")
