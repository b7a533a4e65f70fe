"""When a domain with maintenance windows closes the next time: by a table, and so that it is open until then and closed from then on."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.maintenance_window import MaintenanceWindows

OFFICE = "mon-fri 09:00-17:30 Europe/Berlin; sat 22:00-02:00"
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "moment", "closes"),
    [
        ("", "2026-03-02T08:00+00:00", None),
        (OFFICE, "2026-03-02T07:59+00:00", "2026-03-02T08:00+00:00"),
        (OFFICE, "2026-03-02T08:00+00:00", "2026-03-02T08:00+00:00"),
        (OFFICE, "2026-03-02T16:30+00:00", "2026-03-03T08:00+00:00"),
        (OFFICE, "2026-03-06T16:30+00:00", "2026-03-07T22:00+00:00"),
        (OFFICE, "2026-03-08T02:00+00:00", "2026-03-09T08:00+00:00"),
        (
            "sun 02:30-02:45 Europe/Berlin",
            "2026-03-28T12:00+00:00",
            "2026-03-29T01:00+00:00",
        ),  # the clocks jump over it
        ("sun 02:30-03:30 Europe/Berlin", "2026-10-24T12:00+00:00", "2026-10-25T00:30+00:00"),  # they show it twice
        ("mon 10:00-11:00", "2026-03-02T11:00+00:00", "2026-03-09T10:00+00:00"),  # a week off
    ],
)
def test_the_next_time_by_a_table(text: str, moment: str, closes: str | None) -> None:
    found = MaintenanceWindows.parse(text).next_close(datetime.fromisoformat(moment))
    assert found == (None if closes is None else datetime.fromisoformat(closes))


MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2029, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 — they get a zone
TEXTS = st.sampled_from(
    [
        OFFICE,
        "22:00-06:00 Europe/Berlin",
        "mon 00:00-24:00 Pacific/Auckland; tue 01:00-02:00",
        "sun 01:30-02:30 America/New_York",
    ]
)


@given(TEXTS, MOMENTS)
def test_it_is_open_until_then_and_closed_from_then_on(text: str, moment: datetime) -> None:
    windows = MaintenanceWindows.parse(text)
    begin = windows.closed_until(moment) or moment  # when it opens, if it is closed
    closes = windows.next_close(begin)
    assert closes is not None
    assert windows.closed_until(closes) is not None
    if closes > begin:
        assert windows.closed_until(closes - SECOND) is None
        assert windows.closed_until(begin + (closes - begin) / 2) is None
