"""When things that recur run: against tables, against a model that watches the clock minute by minute, and on odd days."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.model import duration
from holdfast.model.local_time import first_moment, last_moment, time_zone
from holdfast.model.schedule import MAX_INTERVAL, Cron, Interval, next_run, parse

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)  # a Sunday
PLACES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "America/St_Johns",
]
JUMPS = [
    datetime(2026, 3, 29, 1, tzinfo=UTC),  # Berlin: 02:00 is 03:00
    datetime(2026, 10, 25, 1, tzinfo=UTC),  # Berlin: 03:00 is 02:00
    datetime(2026, 3, 8, 7, tzinfo=UTC),  # New York: 02:00 is 03:00
    datetime(2026, 11, 1, 6, tzinfo=UTC),  # New York: 02:00 is 01:00
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),  # Lord Howe: half an hour
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2018, 11, 4, 3, tzinfo=UTC),  # São Paulo: a day without a midnight
    datetime(2018, 2, 18, 2, tzinfo=UTC),  # São Paulo: an hour before midnight twice
    datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia: a day that there was not
]


def runs(text: str, start: str, count: int) -> list[str]:
    """The next runs after a wall time of the place, by its clocks."""
    schedule = parse(text)
    assert isinstance(schedule, Cron)
    moment = datetime.fromisoformat(start).replace(tzinfo=schedule.zone)
    found = []
    for _ in range(count):
        moment = schedule.next_after(moment)
        found.append(moment.astimezone(schedule.zone).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("text", "every", "written"),
    [
        ("6h", timedelta(hours=6), "6h"),
        ("90s", timedelta(seconds=90), "1m30s"),
        ("1d", timedelta(days=1), "1d"),
        (" 1 Day  12 hours ", timedelta(hours=36), "1d12h"),
        ("1 day 2 hours 3 minutes", timedelta(days=1, hours=2, minutes=3), "1d2h3m"),
        ("2w1d", timedelta(days=15), "15d"),
        ("45 min", timedelta(minutes=45), "45m"),
        ("1.5h", timedelta(minutes=90), "1h30m"),
        ("36500d", MAX_INTERVAL, "36500d"),
    ],
)
def test_intervals(text: str, every: timedelta, written: str) -> None:
    schedule = parse(text)
    assert schedule == Interval(every)
    assert str(schedule) == written
    assert schedule.next_after(NOW) == NOW + every


@given(st.integers(1, MAX_INTERVAL // timedelta(seconds=1)))
def test_intervals_are_written_as_all_durations_are(seconds: int) -> None:
    interval = Interval(timedelta(seconds=seconds))
    assert str(interval) == duration.render(interval.every)
    assert parse(str(interval)) == interval


@pytest.mark.parametrize(
    ("text", "after", "then"),
    [
        ("30 2 * * *", "2026-03-01 12:00", ["2026-03-02T02:30+00:00", "2026-03-03T02:30+00:00"]),
        ("*/15 * * * *", "2026-03-01 12:00", ["2026-03-01T12:15+00:00", "2026-03-01T12:30+00:00"]),
        ("5/20 12 * * *", "2026-03-01 12:00", ["2026-03-01T12:05+00:00", "2026-03-01T12:25+00:00"]),
        ("0 9-17/4 * * mon-fri", "2026-03-06 10:00", ["2026-03-06T13:00+00:00", "2026-03-06T17:00+00:00", "2026-03-09T09:00+00:00"]),
        ("0 0 * * 7", "2026-03-02 00:00", ["2026-03-08T00:00+00:00"]),
        ("0 0 * * SUN", "2026-03-02 00:00", ["2026-03-08T00:00+00:00"]),
        ("0 0 31 * *", "2026-03-31 00:00", ["2026-05-31T00:00+00:00", "2026-07-31T00:00+00:00", "2026-08-31T00:00+00:00"]),
        ("0 0 30 feb,apr *", "2026-01-01 00:00", ["2026-04-30T00:00+00:00", "2027-04-30T00:00+00:00"]),
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        ("0 0 29 2 *", "2096-03-01 00:00", ["2104-02-29T00:00+00:00"]),
        # One kind of day is enough where both are named; where one begins with a star, both must hold.
        ("0 0 13 * fri", "2026-03-01 00:00", ["2026-03-06T00:00+00:00", "2026-03-13T00:00+00:00", "2026-03-20T00:00+00:00"]),
        ("0 0 31 2 mon", "2026-01-01 00:00", ["2026-02-02T00:00+00:00"]),
        ("0 0 */2 * mon", "2026-03-01 00:00", ["2026-03-09T00:00+00:00", "2026-03-23T00:00+00:00"]),
        ("0 0 1 1 *", "2026-12-31 23:59", ["2027-01-01T00:00+00:00"]),
        # Berlin has no 02:30 on 29 March and two on 25 October.
        ("30 2 * * * Europe/Berlin", "2026-03-28 12:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        ("30 2 * * * Europe/Berlin", "2026-10-24 12:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        ("*/20 2 * * * Europe/Berlin", "2026-03-28 12:00", ["2026-03-30T02:00+02:00", "2026-03-30T02:20+02:00"]),
        ("0 1-3 * * * Europe/Berlin", "2026-03-29 00:00", ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-30T01:00+02:00"]),
        ("30 * * * * Europe/Berlin", "2026-03-29 00:45", ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"]),
        ("30 * * * * Europe/Berlin", "2026-10-25 01:45", ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"]),
        ("0 0 * * * America/Sao_Paulo", "2018-11-03 12:00", ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"]),
        # Where clocks skip midnight or change by half an hour, a step counts elapsed time from what they show.
        ("* 0 * * 0 America/Sao_Paulo", "2018-11-03 12:00", ["2018-11-11T00:00-02:00", "2018-11-11T00:01-02:00"]),
        ("* * * * 0 America/Sao_Paulo", "2018-11-03 12:00", ["2018-11-04T01:00-02:00", "2018-11-04T01:01-02:00"]),
        ("30 * * * * Australia/Lord_Howe", "2026-10-04 01:00", ["2026-10-04T01:30+10:30", "2026-10-04T02:30+11:00"]),
        ("0 3 * * * Australia/Lord_Howe", "2026-10-04 01:00", ["2026-10-04T03:00+11:00"]),
        ("*/15 1 * * * Australia/Lord_Howe", "2026-04-05 01:35", ["2026-04-05T01:45+11:00", "2026-04-05T01:30+10:30"]),
        ("* 1 25 10 * Europe/London", "2026-10-25 01:58", ["2026-10-25T01:59+01:00", "2026-10-25T01:00+00:00"]),
        ("0 12 30 12 * Pacific/Apia", "2011-12-01 00:00", ["2011-12-31T00:00+14:00", "2012-12-30T12:00+14:00"]),
    ],
)  # fmt: skip
def test_cron(text: str, after: str, then: list[str]) -> None:
    assert runs(text, after, len(then)) == then


def test_a_first_time_that_is_over_is_over() -> None:
    """It is 02:15 for the second time; 02:30 was, and is tomorrow."""
    berlin = ZoneInfo("Europe/Berlin")
    second = datetime(2026, 10, 25, 2, 15, tzinfo=berlin, fold=1)
    assert parse("30 2 * * * Europe/Berlin").next_after(second) == datetime(2026, 10, 26, 2, 30, tzinfo=berlin)


@pytest.mark.parametrize("text", ["30 4-4/1 * * *", "30-30/5 4 * * *", "30 4 * * mon-mon/2,*/1"])
def test_a_step_in_a_range_of_one_value_changes_nothing(text: str) -> None:
    at = datetime(2026, 2, 2, 4, 30, tzinfo=UTC)  # a Monday
    assert parse(text).next_after(at - MINUTE) == at
    assert parse(text).next_after(at) == at + timedelta(days=1)
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    "text",
    ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 feb */2", "0 0 30-31 2 * Europe/Berlin"],
)
def test_what_never_happens_cannot_be_made(text: str) -> None:
    with pytest.raises(UsageError, match="no such month has that day"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a schedule"),
        ("6", "is not a schedule"),
        ("6x", "is not a schedule"),
        ("-6h", "is not a schedule"),
        ("* * * *", "is not a schedule"),
        ("* * * * * UTC UTC", "is not a schedule"),
        ("1s" * 1000, "is not a schedule"),
        ("0 " * 1000, "is not a schedule"),
        ("@daily", "is not a schedule"),
        ("0s", "at least 1s"),
        ("9999999999w", "at most 36500d"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * mai *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-3 * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("*/100 * * * *", "bad minute"),
        ("0 0 L * *", "bad day-of-month"),
        ("0 0 lw * *", "bad day-of-month"),
        ("0 0 * * mon#2", "bad day-of-week"),
        ("0 0 * * 5L", "bad day-of-week"),
        ("\u0661 * * * *", "bad minute"),
        ("* * * * * Europe/Nowhere", "not a time zone"),
        ("* * * * * Europe", "not a time zone"),
        ("* * * * * localtime", "not a time zone"),
        ("* * * * * ../../etc/passwd", "not a time zone"),
        ("* * * * * Europe/../UTC", "not a time zone"),
        ("* * * * * A\0B", "not a time zone"),
    ],
)
def test_nonsense_is_a_sentence(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse(text)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 300


FIELD = st.text("0123456789*/,-", min_size=1, max_size=4)


@settings(deadline=None)
@given(
    st.text() | st.text("0123456789*/,- hdmsUTC", max_size=30) | st.lists(FIELD, min_size=5, max_size=5).map(" ".join)
)
def test_any_text_is_a_schedule_or_a_usage_error(text: str) -> None:
    try:
        schedule = parse(text)
    except UsageError:
        return
    assert parse(str(schedule)) == schedule
    assert schedule.next_after(NOW) > NOW


def field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    numbers = st.integers(lowest, highest)
    pairs = st.tuples(numbers, numbers).map(sorted)
    item = st.one_of(
        numbers.map(str), pairs.map(lambda pair: f"{pair[0]}-{pair[1]}"), st.integers(1, 30).map(lambda n: f"*/{n}")
    )
    return st.just("*") | st.lists(item, min_size=1, max_size=3).map(",".join)


def numbers(text: str, lowest: int, highest: int) -> set[int]:
    """What a field means: *, a, a-b, */n, and lists of them."""
    found: set[int] = set()
    for item in text.split(","):
        bounds, _, step = item.partition("/")
        first, _, last = (f"{lowest}-{highest}" if bounds == "*" else bounds).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def watched(schedule: Cron, start: datetime, minutes: int) -> list[datetime]:
    """The model: look at the clock every minute, and do what its hands have come to or jumped over."""
    days: dict[date, bool] = {}
    minute_field, hour_field, day_field, _, weekday_field = schedule.expression.split()
    in_hour, in_day = numbers(minute_field, 0, 59), numbers(hour_field, 0, 23)
    month_days, weekdays = numbers(day_field, 1, 31), {day % 7 for day in numbers(weekday_field, 0, 7)}

    def meant(wall: datetime) -> bool:
        if wall.date() not in days:
            in_month, in_week = wall.day in month_days, wall.isoweekday() % 7 in weekdays
            either = "*" not in day_field[0] + weekday_field[0]
            days[wall.date()] = (in_month or in_week) if either else (in_month and in_week)
        return days[wall.date()] and wall.hour in in_day and wall.minute in in_hour

    real_time = "*" in minute_field[0] + hour_field[0]
    found, latest = [], start.astimezone(schedule.zone).replace(tzinfo=None) - timedelta(days=1)
    for minute in range(minutes):
        at = start + minute * MINUTE
        wall = at.astimezone(schedule.zone).replace(tzinfo=None)
        if real_time:
            due = meant(wall)
        else:
            passed = (wall - latest) // MINUTE if minute else 1
            due = any(meant(wall - back * MINUTE) for back in range(passed))
            latest = max(latest, wall)
        if due:
            found.append(at)
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(field(0, 59), field(0, 23) | st.just("*"), field(1, 31), st.just("*"), field(0, 7)),
    st.sampled_from(PLACES),
    st.sampled_from(JUMPS),
    st.integers(0, 2000),
)
def test_the_watched_clock_says_the_same(
    fields: tuple[str, str, str, str, str], place: str, jump: datetime, before: int
) -> None:
    schedule = Cron.parse(f"{' '.join(fields)} {place}")
    start = jump - timedelta(days=1, hours=12)
    expected = watched(schedule, start, 4 * 1440)
    moment = start + before * MINUTE
    until = start + timedelta(days=4)
    left = [at for at in expected if at > moment][:50]
    got: list[datetime] = []
    while len(got) < 50 and (moment := schedule.next_after(moment)) < until:
        got.append(moment)
    assert got == left


def test_of_all_that_was_missed_one_run_is_made_up_for() -> None:
    hourly = Interval(timedelta(hours=1))
    late = NOW + timedelta(days=4, minutes=20)
    assert next_run(hourly, NOW, late) == NOW + timedelta(days=4, hours=1)
    assert next_run(hourly, NOW, NOW) == next_run(hourly, NOW, NOW - MINUTE) == NOW + timedelta(hours=1)
    assert next_run(hourly, NOW, NOW + timedelta(hours=1)) == NOW + timedelta(hours=2)
    cron = parse("0 * * * *")
    assert next_run(cron, NOW, late) == NOW + timedelta(days=4, hours=1)
    assert next_run(cron, NOW, NOW - MINUTE) == NOW + timedelta(hours=1)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("place", PLACES)
def test_every_wall_time_means_a_moment(jump: datetime, place: str) -> None:
    """It is shown then for the first and last time, or the clocks jump over it then."""
    zone = time_zone(place)
    walls = [(jump + hours * timedelta(minutes=30)).astimezone(zone).replace(tzinfo=None) for hours in range(-60, 60)]
    for wall in {datetime.combine(wall.date(), time(hour, 15)) for wall in walls for hour in range(24)}:
        first, last = first_moment(wall, zone), last_moment(wall, zone)
        assert first <= last
        if first == last and first.astimezone(zone).replace(tzinfo=None) != wall:
            before = (first - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
            assert before < wall < first.astimezone(zone).replace(tzinfo=None)
        else:
            assert {at.astimezone(zone).replace(tzinfo=None) for at in (first, last)} == {wall}
