"""What the API has, as tests of documents look it up."""

from holdfast.api.permissions import ROUTES


def is_route(path: str) -> bool:
    """Whether the API answers there, perhaps with something behind it."""
    return any(route.split()[1] == path or route.split()[1].startswith(f"{path}/{{") for route in ROUTES)
