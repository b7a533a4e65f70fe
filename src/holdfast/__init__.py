"""Holdfast: a web crawler that never loses its place.

`Client` and `AsyncClient` ask a Holdfast server; what they raise is here, too. They are loaded when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .client import Unreachable as Unreachable
    from .errors import Changed as Changed
    from .errors import Denied as Denied
    from .errors import HoldfastError as HoldfastError
    from .errors import NotFound as NotFound
    from .errors import Refused as Refused
    from .errors import SchemaMismatch as SchemaMismatch
    from .errors import SearchUnavailable as SearchUnavailable
    from .errors import StoreError as StoreError
    from .errors import StoreUnavailable as StoreUnavailable
    from .errors import TooMany as TooMany
    from .errors import Unauthenticated as Unauthenticated
    from .errors import UnderWay as UnderWay
    from .errors import UsageError as UsageError

__version__ = "0.1.0"

_CLIENT = frozenset({"AsyncClient", "Client", "Unreachable"})
_ERRORS = frozenset(
    {
        "Changed",
        "Denied",
        "HoldfastError",
        "NotFound",
        "Refused",
        "SchemaMismatch",
        "SearchUnavailable",
        "StoreError",
        "StoreUnavailable",
        "TooMany",
        "Unauthenticated",
        "UnderWay",
        "UsageError",
    }
)


if not TYPE_CHECKING:  # for which there are the names above, and no others

    def __getattr__(name: str) -> object:
        """What is loaded when it is asked for."""
        module = "holdfast.client" if name in _CLIENT else "holdfast.errors" if name in _ERRORS else None
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLIENT, *_ERRORS})
