"""Values that several threads share, steps of a series, classes of answers, quantiles of buckets."""

import threading
from datetime import timedelta

import pytest

from holdfast.db.stats import Count
from holdfast.errors import UsageError
from holdfast.model.histograms import COMMIT_MS, FETCH_MS, bucket_index, quantile
from holdfast.stats.service import SHARE, Cached, Counters, by_class, parse_step, success_rate


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_value_serves_everybody_for_a_second() -> None:
    clock, made = Clock(), []

    def make() -> int:
        made.append(clock.now)
        return len(made)

    cached = Cached(make, clock=clock)
    assert [cached.get(), cached.get()] == [1, 1]
    clock.now += 0.99
    assert cached.get() == 1
    clock.now += 0.02
    assert cached.get() == 2
    assert made == [100.0, pytest.approx(101.01)]


def test_a_value_that_takes_long_to_make_serves_longer() -> None:
    clock, made = Clock(), []

    def make() -> int:
        clock.now += 2
        made.append(clock.now)
        return len(made)

    cached = Cached(make, clock=clock)
    assert cached.get() == 1
    clock.now += 2 * SHARE - 0.1
    assert cached.get() == 1
    clock.now += 0.2
    assert cached.get() == 2


def test_what_goes_wrong_is_raised_and_tried_again() -> None:
    away = [True]

    def make() -> int:
        if away:
            away.clear()
            raise ValueError("away")
        return 7

    cached = Cached(make)
    with pytest.raises(ValueError, match="away"):
        cached.get()
    assert cached.get() == 7


def test_of_many_who_ask_at_once_one_makes_it() -> None:
    begun, go = threading.Event(), threading.Event()
    made: list[int] = []
    got: list[int] = []

    def make() -> int:
        made.append(1)
        begun.set()
        assert go.wait(30)
        return 42

    cached = Cached(make)
    threads = [threading.Thread(target=lambda: got.append(cached.get())) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    go.set()
    for thread in threads:
        thread.join()
    assert (len(made), got) == (1, [42] * 20)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("minute", 1), ("hour", 60), ("day", 1440), ("1m", 1), ("90m", 90), ("2h", 120), ("7d", 10_080)],
)
def test_a_step_is_whole_minutes(text: str, minutes: int) -> None:
    assert parse_step(text) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "text", ["", "0", "59s", "90s", "-1m", "month", "1.5m", "367d", "99999999d", "1m\0", "x" * 5000]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="A step is minute, hour, day, or whole minutes such as 5m"):
        parse_step(text)


def test_answers_have_classes() -> None:
    assert by_class({}) == {"1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}
    found = by_class({"200": 2, "204": 1, "404": 3, "599": 1, "999": 4, "7": 1, "": 2, "2": 5})
    assert found == {"1xx": 0, "2xx": 8, "3xx": 0, "4xx": 3, "5xx": 1, "other": 7}


def test_the_share_of_successes() -> None:
    assert success_rate(0, 0) is None
    assert success_rate(4, 1) == 0.75


def test_counters_are_added_by_name_and_outcome() -> None:
    counters = Counters({("outcome", "ok"): Count(5, 2), ("outcome", "timeout"): Count(3), ("bytes", ""): Count(9, 4)})
    assert (counters.total("bytes"), counters.total("nothing"), counters.lately("bytes")) == (9, 0, 4)
    assert counters.labelled("outcome") == {"ok": 5, "timeout": 3}
    assert counters.of({"ok", "not_modified"}) == Count(5, 2)


def test_buckets_hold_what_is_not_above_their_bound() -> None:
    assert [bucket_index(FETCH_MS, ms) for ms in (0, 5, 5.1, 6, 30_000, 30_001)] == [0, 0, 1, 1, 11, 12]
    assert list(FETCH_MS) == sorted(set(FETCH_MS))
    assert list(COMMIT_MS) == sorted(set(COMMIT_MS))


def test_quantiles_of_buckets() -> None:
    bounds = (10, 20, 40)
    assert quantile(bounds, [], 0.5) is None
    assert quantile(bounds, [0, 0, 0, 0], 0.5) is None
    assert quantile(bounds, [0, 10, 0, 0], 0.5) == 15.0
    assert quantile(bounds, [5, 5], 0.5) == 10.0
    assert quantile(bounds, [1, 0, 1, 0], 1.0) == 40.0
    assert quantile(bounds, [0, 0, 0, 3], 0.5) == 40.0, "of the last one only the lower bound is known"
    assert quantile(bounds, [4, 0, 0, 0], 0.0) == 0.0
