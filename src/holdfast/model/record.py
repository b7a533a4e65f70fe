"""Records: what queries fill, services return, the API answers with, the client reads and the command line prints."""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a record: a frozen dataclass. The docstrings of its attributes are the descriptions in the API's document."""
    described: Any = cls
    described.__pydantic_config__ = {
        "use_attribute_docstrings": True,
        "json_schema_serialization_defaults_required": True,  # an answer has every field
    }
    return dataclass(frozen=True, slots=True)(cls)


def durations_in_seconds(cls: type[T]) -> type[T]:
    """Let the API write the durations of a record as numbers of seconds, not as ISO 8601."""
    described: Any = cls
    described.__pydantic_config__ = {**described.__pydantic_config__, "ser_json_timedelta": "float"}
    return cls
