"""The route of the storage report."""

from fastapi import APIRouter

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.storage.records import StorageReport

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


@router.get("/api/storage", summary="What is stored, and how much room is left")
def storage(services: Services) -> StorageReport:
    """Sizes of the database and its tables; of the archive, the logs and the disks of the server's machine. At most a minute old."""
    return services.storage.report()
