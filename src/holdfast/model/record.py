"""Records: what queries fill, services return, the API answers with, the client reads and the command line prints."""

from dataclasses import dataclass
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
    return dataclass(frozen=True, slots=True)(cls)
