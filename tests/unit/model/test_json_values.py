"""Values that JSON does not know."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from holdfast.model.json_values import json_default, utc_text


@dataclass(frozen=True, slots=True)
class Found:
    at: datetime
    price: Decimal


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (NOON, "2026-03-01T12:00:00Z"),
        (datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T12:00:00Z"),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (b"\x00\xff", "00ff"),
        (memoryview(b"\x01"), "01"),
        (frozenset({7}), [7]),
        (Decimal("9.90"), "9.90"),
        ([Found(NOON, Decimal("1.5"))], [{"at": "2026-03-01T12:00:00Z", "price": "1.5"}]),
        ({1: {"of": NOON}}, {"1": {"of": "2026-03-01T12:00:00Z"}}),
    ],
)
def test_written_as_json(value: Any, written: object) -> None:
    assert json.loads(json.dumps(value, default=json_default)) == written


def test_a_time_without_a_zone_is_utc() -> None:
    assert utc_text(datetime(2026, 3, 1, 12)) == "2026-03-01T12:00:00Z"  # noqa: DTZ001 — as a caller may pass it
