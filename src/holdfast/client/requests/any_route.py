"""Requests to any route, for what has no call of its own."""

from collections.abc import Mapping
from typing import Any

import httpx

from holdfast.client.request_spec import RequestSpec, document
from holdfast.errors import UsageError


def request(
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> RequestSpec[Any]:
    """Send a request to any path of the API. Returns the JSON of the response, or None without a body."""
    if not path.startswith("/") or path.startswith("//") or any(mark in path for mark in "?#\\"):
        raise UsageError(f"{path!r} is not a path of the API, such as /api/stats; parameters go into `query`.")

    def answer(response: httpx.Response) -> Any:
        return document(response) if response.content else None

    return RequestSpec(method.upper(), path, answer, query or {}, body, headers or {})
