"""Maintenance windows: against tables, against a model that looks at the clock, and on days with odd clocks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.model.maintenance_window import MAX_CLOSED, MAX_WINDOWS, MaintenanceWindow, MaintenanceWindows

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = "mon-fri 09:00-17:30 Europe/Berlin; sat 22:00-02:00"


def closed(text: str, moment: str) -> str | None:
    """Until when, in the time zone that *moment* is written in."""
    at = datetime.fromisoformat(moment)
    until = MaintenanceWindows.parse(text).closed_until(at)
    return None if until is None else until.astimezone(at.tzinfo).isoformat(timespec="minutes")


@pytest.mark.parametrize(
    ("moment", "until"),
    [
        ("2026-03-02T08:59:59+01:00", None),
        ("2026-03-02T09:00:00+01:00", "2026-03-02T17:30+01:00"),
        ("2026-03-06T17:29:59+01:00", "2026-03-06T17:30+01:00"),
        ("2026-03-06T17:30:00+01:00", None),
        ("2026-03-07T12:00:00+01:00", None),
        ("2026-03-07T21:59:59+00:00", None),
        ("2026-03-07T22:00:00+00:00", "2026-03-08T02:00+00:00"),
        ("2026-03-08T01:59:00+00:00", "2026-03-08T02:00+00:00"),
        ("2026-03-08T02:00:00+00:00", None),
        ("2026-03-08T22:30:00+00:00", None),
        # The office keeps its hours in summer, too.
        ("2026-07-01T07:00:00+00:00", "2026-07-01T15:30+00:00"),
        ("2026-07-01T16:00:00+00:00", None),
    ],
)
def test_office_hours_and_saturday_nights(moment: str, until: str | None) -> None:
    assert closed(OFFICE, moment) == until


@pytest.mark.parametrize(
    ("text", "moment", "until"),
    [
        ("", "2026-03-02T12:00+00:00", None),
        ("22:00-06:00", "2026-03-02T05:00+00:00", "2026-03-02T06:00+00:00"),
        ("22:00-06:00 Asia/Tokyo", "2026-03-02T05:00+09:00", "2026-03-02T06:00+09:00"),
        ("sun 00:00-24:00", "2026-03-08T05:00+00:00", "2026-03-09T00:00+00:00"),
        ("sat-mon 00:00-24:00", "2026-03-07T05:00+00:00", "2026-03-10T00:00+00:00"),
        ("sun 20:00-00:00", "2026-03-08T23:00+00:00", "2026-03-09T00:00+00:00"),
        # Windows without a gap are one.
        ("09:00-10:00; 10:00-11:00; 10:30-12:00; 13:00-14:00", "2026-03-02T09:30+00:00", "2026-03-02T12:00+00:00"),
        ("09:00-10:00 UTC; 11:00-12:00 Europe/Berlin", "2026-03-02T09:30+00:00", "2026-03-02T11:00+00:00"),
        # Berlin has no 02:30 on 29 March …
        ("02:00-03:00 Europe/Berlin", "2026-03-29T00:59+00:00", None),
        ("02:00-03:00 Europe/Berlin", "2026-03-29T01:00+00:00", None),
        ("01:00-02:30 Europe/Berlin", "2026-03-29T00:30+00:00", "2026-03-29T01:00+00:00"),
        ("02:30-04:00 Europe/Berlin", "2026-03-29T01:00+00:00", "2026-03-29T02:00+00:00"),
        # … and two on 25 October: closed from the first of a beginning to the last of an end.
        ("01:00-02:30 Europe/Berlin", "2026-10-25T00:45+00:00", "2026-10-25T01:30+00:00"),
        ("02:30-04:00 Europe/Berlin", "2026-10-25T00:29+00:00", None),
        ("02:30-04:00 Europe/Berlin", "2026-10-25T01:10+00:00", "2026-10-25T03:00+00:00"),
        # Sunday had begun in St. John's when it became Saturday again.
        ("sun 00:00-01:00 America/St_Johns", "2010-11-07T03:00+00:00", "2010-11-07T04:30+00:00"),
        ("sat 23:00-03:00 Europe/Berlin", "2026-10-24T21:00+00:00", "2026-10-25T02:00+00:00"),
    ],
)
def test_windows(text: str, moment: str, until: str | None) -> None:
    assert closed(text, moment) == until


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("  ", ""),
        (OFFICE, "mon-fri 09:00-17:30 Europe/Berlin; sat 22:00-02:00 UTC"),
        ("9:00 - 10:00", "09:00-10:00 UTC"),
        ("SUN,Mon,tue,thu  1:00-2:00", "mon-tue,thu,sun 01:00-02:00 UTC"),
        ("sat-mon 01:00-02:00", "mon,sat-sun 01:00-02:00 UTC"),
        ("mon-sun 01:00-24:00", "01:00-24:00 UTC"),
        ("mon-mon 01:00-00:00", "mon 01:00-00:00 UTC"),
    ],
)
def test_they_are_written_as_they_are_read(text: str, written: str) -> None:
    windows = MaintenanceWindows.parse(text)
    assert str(windows) == written
    assert MaintenanceWindows.parse(written) == windows


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mon", "not a maintenance window"),
        ("09:00", "not a maintenance window"),
        ("mon 09:00-10:00;", "not a maintenance window"),
        ("mon 09:00-10:00 UTC UTC", "not a maintenance window"),
        ("mon 09:0-10:00", "not a maintenance window"),
        ("09:00-10:00\0", "not a maintenance window"),
        ("mo 09:00-10:00", "'mo' is not a day"),
        ("mon- 09:00-10:00", "'mon-' is not a day"),
        ("mon,,tue 09:00-10:00", "'' is not a day"),
        ("25:00-10:00", "25:00 is not a time of day"),
        ("09:00-24:01", "24:01 is not a time of day"),
        ("09:60-10:00", "09:60 is not a time of day"),
        ("09:00-09:00", "has no length"),
        ("24:00-09:00", "has no length"),
        ("09:00-10:00 Berlin", "not a time zone"),
        ("09:00-10:00 ../UTC", "not a time zone"),
        (";".join(["09:00-10:00"] * (MAX_WINDOWS + 1)), "at most 50"),
        ("09:00-10:00 " + "x" * 5000, "at most 50"),
        ("00:00-24:00", "no time to crawl"),
        ("00:00-12:00; 12:00-00:00", "no time to crawl"),
        (
            "mon-thu 00:00-24:00; fri-sun 00:00-24:00 Europe/Berlin; thu 20:00-04:00; sun 20:00-04:00",
            "no time to crawl",
        ),
    ],
)
def test_nonsense_is_a_sentence(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        MaintenanceWindows.parse(text)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 200


@given(st.text() | st.text("montueswdfri:;-, 0123456789UTC"))
def test_any_text_is_windows_or_a_usage_error(text: str) -> None:
    try:
        windows = MaintenanceWindows.parse(text)
    except UsageError:
        return
    assert MaintenanceWindows.parse(str(windows)) == windows


WINDOWS = st.builds(
    MaintenanceWindow,
    st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
    st.integers(0, 1439),
    st.integers(0, 1440),
    st.sampled_from([ZoneInfo("UTC"), BERLIN, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("America/St_Johns")]),
).filter(lambda window: window.begin != window.end)
DAYS = [(2026, 3, 28), (2026, 10, 24), (2018, 11, 3), (2018, 2, 17), (2026, 10, 3), (2026, 4, 4), (2010, 11, 6)]


def shows(window: MaintenanceWindow, moment: datetime) -> bool:
    """The model: whether the clock on the wall shows a time of the window."""
    wall = moment.astimezone(window.zone)
    minute, day = wall.hour * 60 + wall.minute, wall.weekday()
    if window.begin < window.end:
        return day in window.days and window.begin <= minute < window.end
    began_today, began_yesterday = day in window.days, (day - 1) % 7 in window.days
    return (began_today and minute >= window.begin) or (began_yesterday and minute < window.end)


@settings(deadline=None, max_examples=200)
@given(st.lists(WINDOWS, min_size=1, max_size=3), st.sampled_from(DAYS), st.integers(0, 3 * 1440))
def test_what_the_clock_shows_is_closed(made: list[MaintenanceWindow], day: tuple[int, int, int], minutes: int) -> None:
    windows, moment = MaintenanceWindows(tuple(made)), datetime(*day, tzinfo=UTC) + timedelta(minutes=minutes)
    until = windows.closed_until(moment)
    if any(shows(window, moment) for window in made):
        assert until is not None
    if until is None:
        return
    assert until > moment
    if until - moment < MAX_CLOSED:
        assert windows.closed_until(until) is None
        assert not any(shows(window, until) for window in made)
    # Where no clock is put back in between, it is closed by the clock all the time.
    offsets = {(at.astimezone(w.zone).utcoffset(), w.zone.key) for w in made for at in (moment - timedelta(1), until)}
    if len(offsets) == len({window.zone.key for window in made}):
        assert any(shows(window, moment) for window in made)
        assert any(shows(window, until - timedelta(minutes=1)) for window in made)


def test_windows_that_leave_a_gap_in_most_weeks_only() -> None:
    """For three weeks of spring it is an hour later in New York than usual: closed for so long, but every answer has an end."""
    windows = MaintenanceWindows.parse("23:00-12:00 Europe/Berlin; 07:00-18:00 America/New_York")
    moment = datetime(2026, 3, 9, tzinfo=UTC)
    answers = []
    while (until := windows.closed_until(moment)) is not None:
        answers.append(until - moment)
        moment = until
    assert all(answer <= MAX_CLOSED + timedelta(days=1) for answer in answers)
    assert moment == datetime(2026, 3, 29, 10, tzinfo=UTC)
