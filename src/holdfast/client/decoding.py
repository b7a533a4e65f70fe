"""Decoding of responses into typed values.

The rule: fields that only a newer server knows are ignored; a missing field is a HoldfastError that names it, not a
KeyError.
"""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from holdfast.errors import HoldfastError

T = TypeVar("T")


def read(kind: type[T], raw: object) -> T:
    """Decode a JSON value as this type: times become datetimes, durations timedeltas, prices Decimals."""
    known: Any = kind
    try:
        value: T = _adapter(known).validate_python(raw)
    except ValidationError as problem:
        found = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, found["loc"])) or "all of it"
        raise HoldfastError(
            f"The server's answer cannot be read ({kind.__name__}, {where}: {found['msg']}); it is of another version than this client."
        ) from problem
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
