"""Records: what queries fill, services return, the API answers with, the client reads and the command line prints."""

import ast
import inspect
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar, dataclass_transform

T = TypeVar("T")

Int64 = Annotated[int, "int64"]
"""A field that may exceed 32 bits: exports have an int64 column for it, and an int32 column for every other int."""


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a record: a frozen dataclass. The docstrings of its attributes are the descriptions in the API's document."""
    described: Any = cls
    described.__pydantic_config__ = {
        "use_attribute_docstrings": True,
        "json_schema_serialization_defaults_required": True,  # an answer has every field
    }
    if cls.__base__ is not object:  # pydantic reads the docstrings of the class itself only
        described.__get_pydantic_json_schema__ = classmethod(_describe_inherited)
    return dataclass(frozen=True, slots=True)(cls)


def durations_in_seconds(cls: type[T]) -> type[T]:
    """Let the API write the durations of a record as numbers of seconds, not as ISO 8601."""
    described: Any = cls
    described.__pydantic_config__ = {**described.__pydantic_config__, "ser_json_timedelta": "float"}
    return cls


def _describe_inherited(cls: type, core_schema: Any, handler: Any) -> Any:
    """Add the docstrings of inherited attributes to the JSON schema of a record. Called only when the API's document is made."""
    schema = handler(core_schema)
    properties = handler.resolve_ref_schema(schema)["properties"]
    for base in cls.__mro__[1:-1]:
        for attribute, text in pairwise(ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body):  # type: ignore[attr-defined]
            if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr):
                described = inspect.cleandoc(ast.literal_eval(text.value))
                properties[ast.unparse(attribute.target)].setdefault("description", described)
    return schema
