"""Responses: encoding of records, the response of a route that starts an operation, and work after a response.

The rule: a response stands whether or not the work after it succeeds, so a failure is logged and not raised.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Final, ParamSpec

from fastapi import Response
from pydantic import TypeAdapter

from holdfast.errors import HoldfastError
from holdfast.operations.records import Operation


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump_json(value: object, *, ensure_ascii: bool = False) -> str:
    """Encode a record or a model as responses are encoded."""
    kind: Any = type(value)
    return _adapter(kind).dump_json(value, ensure_ascii=ensure_ascii).decode()


def accepted(response: Response, operation: Operation) -> Operation:
    """The response of a route that starts an operation; the Location header names it."""
    response.headers["Location"] = f"/api/operations/{operation.id}"
    return operation


log: Final = logging.getLogger(__name__)

P = ParamSpec("P")


def log_failures(work: Callable[P, object]) -> Callable[P, None]:
    """The function, with errors logged instead of raised."""

    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            work(*arguments, **options)
        except HoldfastError as problem:
            log.warning("work after a response failed and is left to the next sweep: %s", problem)
        except Exception:
            log.exception("work after a response failed")

    return run
