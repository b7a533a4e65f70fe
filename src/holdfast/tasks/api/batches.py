"""Batches: tasks that belong together."""

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Body, Filter, ShortText, View
from holdfast.api.responses import accepted
from holdfast.control.list_filters import NameFilter
from holdfast.model.task import TaskStatus
from holdfast.operations.handlers import RESTART_BATCH
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["tasks"])

BatchName = Annotated[str, Path(max_length=255, description="The batch's name.", examples=["black friday"])]


class BatchView(View):
    """A batch."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[TaskStatus, int]
    """How many are in each status; those that none is in are left out."""
    counted_all: bool = True
    """False: it has more tasks than are counted for a list; look at it alone."""


class NewBatch(Body):
    """A batch to be made."""

    name: ShortText = Field(examples=["black friday"])


@router.get("/api/batches", summary="Batches")
def batches(
    services: Services,
    request: Request,
    response: Response,
    prefix: Annotated[Filter, Query(description="Only those whose names begin so.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[BatchView]:
    """With how many of their tasks are in each status."""
    after = decode_list_cursor("batches", order, cursor)
    found = services.listings.batches(NameFilter(prefix), order=order, after=after, limit=limit)
    return keyset_page(request, response, [BatchView.of(batch) for batch in found.rows], found.next)


# A name may have slashes in it.
@router.get("/api/batches/{name:path}", summary="A batch", responses=documented(404))
def batch(name: BatchName, services: Services) -> BatchView:
    """How many of its tasks are in each status."""
    return BatchView.of(services.tasks.batch(name))


@router.post("/api/admin/batches", summary="Make a batch", status_code=201)
def add(given: NewBatch, response: Response, services: Services, caller: Caller) -> BatchView:
    """Tasks are put into it when they are asked for. A name that another one has is a 409."""
    made = services.tasks.create_batch(given.name, actor=caller.name)
    response.headers["Location"] = f"/api/batches/{quote(made.name, safe='')}"
    return BatchView.of(made)


@router.post(
    "/api/admin/batches/{name:path}/restart",
    summary="Restart all tasks of a batch",
    status_code=202,
    responses=documented(404),
)
def restart(name: BatchName, response: Response, services: Services, caller: Caller) -> Operation:
    """Those that are completed, failed, cancelled or paused. There may be many of them: the operation says how far it is."""
    arguments = {"name": services.tasks.batch(name).name}
    return accepted(response, services.operations.ask(RESTART_BATCH, arguments, actor=caller.name))
