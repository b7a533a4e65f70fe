"""Every page of the dashboard is among those that are judged in a browser and of which pictures are taken."""

import re

from holdfast.api.permissions import ROUTES
from tests.browser.furnished import PATHS

NOT_PAGES = {
    "/static/{}",
    "/live/{}",
    "/regions/{}",
    "/search",  # leads elsewhere
    "/proxies/pool",
}


def test_every_page_is_listed() -> None:
    routes = {_shape(path) for method, _, path in (route.partition(" ") for route in ROUTES) if method == "GET"}
    pages = (
        {path for path in routes if not path.startswith(("/api/", "/health", "/docs", "/metrics"))} - {"/"} - NOT_PAGES
    )
    listed = {_shape(path.partition("?")[0]) for path in PATHS}
    assert pages - listed == set()


def _shape(path: str) -> str:
    """A path whose names in braces are all the same."""
    return re.sub(r"\{[^}]*\}", "{}", path)
