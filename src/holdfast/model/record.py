"""Records: what queries fill, services return, the API answers with, the client reads and the command line prints."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, TypeVar, dataclass_transform

T = TypeVar("T")

Int64 = Annotated[int, "int64"]
"""A field that may exceed 32 bits: exports have an int64 column for it, and an int32 column for every other int."""


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a record: a frozen dataclass. The docstrings of its attributes are the descriptions in the API's document."""
    described: Any = cls
    described.__pydantic_config__ = {"json_schema_serialization_defaults_required": True}  # an answer has every field
    described.__get_pydantic_json_schema__ = classmethod(describe_attributes)
    return dataclass(frozen=True, slots=True)(cls)


def durations_in_seconds(cls: type[T]) -> type[T]:
    """Let the API write the durations of a record as numbers of seconds, not as ISO 8601."""
    described: Any = cls
    described.__pydantic_config__ = {**described.__pydantic_config__, "ser_json_timedelta": "float"}
    return cls


def describe_attributes(cls: type, core_schema: Any, handler: Any) -> Any:
    """Add the docstrings of attributes, also of inherited ones, to the JSON schema of a class.

    Called only when the API's document is made. Pydantic's `use_attribute_docstrings` would read the sources whenever a server or a
    client starts, which is a third of a server's start.
    """
    schema = handler(core_schema)
    properties = handler.resolve_ref_schema(schema).get("properties", {})
    fields = getattr(cls, "model_fields", {})
    for base in filter(_is_described, cls.__mro__):
        for attribute, text in _attribute_docstrings(base.__module__).get(base.__qualname__, {}).items():
            name = fields[attribute].alias or attribute if attribute in fields else attribute
            if name in properties:
                properties[name].setdefault("description", text)
    return schema


def _is_described(cls: type) -> bool:
    hook = getattr(cls, "__get_pydantic_json_schema__", None)
    return getattr(hook, "__func__", None) is describe_attributes


@cache
def _attribute_docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of attributes by the qualified name of the class; none if the source is not there."""
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    return dict(_classes(ast.parse(source), ""))


def _classes(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            name = f"{prefix}{node.name}"
            yield (
                name,
                {
                    ast.unparse(attribute.target): inspect.cleandoc(text.value.value)
                    for attribute, text in pairwise(node.body)
                    if isinstance(attribute, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                    and isinstance(text.value.value, str)
                },
            )
            yield from _classes(node, f"{name}.")
