"""Clients whose server is a function: for what a real one does only when it or the line fails."""

from collections.abc import Callable
from typing import Any

import httpx

from holdfast import Client

Handler = Callable[[httpx.Request], httpx.Response]


def asking(handler: Handler, **how: Any) -> Client:
    """A client of a server that is a function."""
    client = Client("http://server.example", key="hfk_x", **how)
    client._http.close()
    client._http = httpx.Client(base_url="http://server.example", transport=httpx.MockTransport(handler))
    return client


def problem(status: int, name: str = "x", headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"type": f"urn:holdfast:problem:{name}", "title": "T", "status": status, "detail": "The server's sentence."}
    return httpx.Response(status, json=body, headers=headers)
