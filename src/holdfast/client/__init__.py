"""The client of Holdfast's API: `Client`, and `AsyncClient` with the same methods.

The rule: it knows the API and nothing of the store; whatever it answers is in `values`, `crawled` and `wanted`.
"""

from holdfast.client.awaiting import AsyncClient
from holdfast.client.blocking import Client
from holdfast.client.problems import Unreachable

__all__ = ["AsyncClient", "Client", "Unreachable"]
