"""The route of backups."""

from fastapi import APIRouter

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.backups.records import BackupReport

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


@router.get("/api/backups", summary="Backups that are kept, and which seconds can be restored")
def backups(services: Services) -> BackupReport:
    """The newest first, with the schedule. Commands make, verify and restore them, on the machine where they are."""
    return services.backups.report()
