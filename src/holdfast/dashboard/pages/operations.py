"""Operations: long work in the background, its progress and its result; and the forms that start a verification and retention."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request, Response

from holdfast.api.app_services import AppServices, Services
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import decode_id_cursor
from holdfast.api.request_types import Id
from holdfast.dashboard.lists import ROWS, id_page, list_at
from holdfast.dashboard.live import Parameters, id_of, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.operations.handlers import RETENTION, VERIFY
from holdfast.operations.records import Operation
from holdfast.operations.service import STATES

router = page_router()


def read_operation(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return one operation. Raises NotFound."""
    return {"operation": services.operations.show(id_of(parameters))}


def read_operations(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return the list of operations."""

    def read(form: Form) -> Page[Operation]:
        state, before = form.text("state"), decode_id_cursor(form.text("cursor"))
        return id_page(services.operations.listing(state=state, before=before, limit=ROWS))

    return {"shown": list_at("/operations", parameters, read)}


LIST: Final = live_view("operations", read_operations, {"operations-list": "operations/_list.html"})
VIEW: Final = live_view("operation", read_operation, {"operation": "operations/_operation.html"})


@router.get("/operations")
def operations(context: Context, services: Services) -> Response:
    """Operations, the newest first."""
    parameters = context.request.query_params
    shown = read_operations(services, parameters)["shown"]
    return context.page(
        "operations/list.html",
        notice=shown.notice,
        shown=shown,
        states=STATES,
        live=LIST.address(parameters) if shown.moves else "",
    )


@router.post("/operations/verify")
def verify(context: Context, request: Request, services: Services) -> Response:
    """Start a verification of the store."""
    arguments = {"archive": read_form(request).flag("archive")}
    asked = services.operations.ask(VERIFY, arguments, actor=context.caller.name)
    return context.redirect(f"/operations/{asked.id}", f"The verification is operation {asked.id}.")


@router.post("/operations/retention")
def run_retention(context: Context, request: Request, services: Services) -> Response:
    """Start a run of retention."""
    arguments = {"dry_run": read_form(request).flag("dry_run")}
    asked = services.operations.ask(RETENTION, arguments, actor=context.caller.name)
    return context.redirect(f"/operations/{asked.id}", f"The run of retention is operation {asked.id}.")


@router.get("/operations/{id}")
def operation(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """One operation: its progress, and its result when it has ended."""
    parameters = {"id": str(id)}
    return context.page("operations/page.html", **read_operation(services, parameters), live=VIEW.address(parameters))
