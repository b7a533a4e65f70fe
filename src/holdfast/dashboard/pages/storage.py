"""Storage: what the database and the folders of the server's machine take, how much room is left, and the last operations."""

from typing import Final

from fastapi import Response

from holdfast.api.app_services import Services
from holdfast.control import database_admin
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router

router = page_router()

_OPERATIONS: Final = 5
"""Operations on the page."""


@router.get("/storage")
def storage(context: Context, services: Services) -> Response:
    """The storage report, facts about the database, and a form that verifies the store."""
    revision, needed = database_admin.revisions(services.database)
    return context.page(
        "storage/page.html",
        report=services.storage.report(),
        revision=revision,
        needed=needed,
        is_bundled=services.settings.database_url is None,
        operations=services.operations.listing(limit=_OPERATIONS),
    )
