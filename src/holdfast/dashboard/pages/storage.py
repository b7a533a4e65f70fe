"""Storage: what the database and the folders of the server's machine take, how much room is left, how fast they grow, what is
kept how long, and the last operations."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from holdfast.api.app_services import AppServices, Services
from holdfast.archive import file_store
from holdfast.control import database_admin
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router

router = page_router()

_OPERATIONS: Final = 5
"""Operations on the page."""


def read(services: AppServices, _parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page show."""
    return {"report": services.storage.report(), "operations": services.operations.listing(limit=_OPERATIONS)}


VIEW: Final = live_view(
    "storage", read, {"storage-figures": "storage/_figures.html", "storage-operations": "storage/_operations.html"}
)


@router.get("/storage")
def storage(context: Context, services: Services) -> Response:
    """The storage report with its trend, backups, retention, machines of the archive, facts about the database; forms verify the store and
    run retention."""
    revision, needed = database_admin.revisions(services.database)
    retention = services.retention.status()
    own_folder = services.settings.data.absolute() / "retention"
    return context.page(
        "storage/page.html",
        **read(services, {}),
        revision=revision,
        needed=needed,
        backups=services.backups.report(),
        is_bundled=services.settings.database_url is None,
        retention=retention,
        archives_folder=str(own_folder) if retention.store == file_store.DEFAULT else retention.store,
        machines=services.segments.machines(),
        live=VIEW.address({}),
    )
