"""Parts of responses that several routes share."""

from functools import cache
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter

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
