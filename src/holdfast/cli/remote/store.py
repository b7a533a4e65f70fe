"""What a server says of its store as a whole: who holds what, why something is where it is."""

from typing import Any

from holdfast.cli.remote import rows
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.control.explain import DomainStory, UrlStory
from holdfast.control.explain_text import Wait
from holdfast.workers.service import Overview as Claims


def claims(client: Client) -> Claims:
    """Who holds what, what has expired, what waits."""
    return read(Claims, rows.revived(client.request("GET", "/api/claims/summary")))


def explain(client: Client, what: str) -> UrlStory | DomainStory:
    """The story of a URL or a domain."""
    found = client.explain(what)
    told: dict[str, Any] = rows.revived(found.told)
    if found.kind == "url":
        return read(UrlStory, told)
    for work in told["work"]:
        work["waits"] = [read(Wait, wait) for wait in work["waits"]]
    return read(DomainStory, told)
