"""Records in the API's document: descriptions, also of inherited attributes, and durations."""

import json
from datetime import timedelta

from pydantic import TypeAdapter

from holdfast.model.record import durations_in_seconds, record


@record
class Small:
    """A record."""

    plain: int
    described: int
    """A description
    on two lines."""


@durations_in_seconds
@record
class Large(Small):
    """A record with more attributes."""

    waits: timedelta
    """A duration."""


def test_descriptions_are_inherited() -> None:
    properties = TypeAdapter(Large).json_schema(mode="serialization")["properties"]
    descriptions = {name: one.get("description") for name, one in properties.items()}
    assert descriptions == {"plain": None, "described": "A description\non two lines.", "waits": "A duration."}


def test_durations_are_written_in_seconds_and_read_again() -> None:
    adapter = TypeAdapter(Large)
    one = Large(1, 2, timedelta(minutes=1))
    written = json.loads(adapter.dump_json(one))
    assert written == {"plain": 1, "described": 2, "waits": 60.0}
    assert adapter.validate_python(written) == one
