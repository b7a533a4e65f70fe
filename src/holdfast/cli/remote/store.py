"""Explanations and claims of a server."""

from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.control.explain import DomainStory, UrlStory


def explain(client: Client, what: str) -> UrlStory | DomainStory:
    """Explain a URL or a domain."""
    found = client.explain(what)
    return read(UrlStory, found.told) if found.kind == "url" else read(DomainStory, found.told)
