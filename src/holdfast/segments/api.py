"""The route of the machines that have the archive."""

from fastapi import APIRouter

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.segments.records import ArchiveMachine

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


@router.get("/api/archive/machines", summary="Machines whose archives go to an object store")
def machines(services: Services) -> list[ArchiveMachine]:
    """How many files of the archive each machine has written, and uploaded; what only it has, and why it cannot upload at present. Empty
    where no object store is set."""
    return services.segments.machines()
