"""The Python client of Holdfast's API: `Client`, and `AsyncClient` with the same methods.

The rule: it knows the API and nothing of the database; the types of its responses are in `values`, or in the `records` of a noun.
"""

from holdfast.client.async_client import AsyncClient
from holdfast.client.errors import Unreachable
from holdfast.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "Unreachable"]
