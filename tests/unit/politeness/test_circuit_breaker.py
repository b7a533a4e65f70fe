"""The circuit breaker: closed, open, half-open, and back; over a restart; in any order of events."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.outcome import Circuit
from holdfast.politeness.circuit_breaker import CircuitBreaker
from holdfast.settings import Politeness

RULES = Politeness()
S, F, N = Circuit.SUCCESS, Circuit.FAILURE, Circuit.NOTHING


def fresh(clocks: PolitenessClocks | None = None, now: float = 0.0) -> CircuitBreaker:
    return CircuitBreaker(RULES, clocks or PolitenessClocks(), now)


def run(breaker: CircuitBreaker, verdicts: list[Circuit], now: float = 0.0) -> None:
    for verdict in verdicts:
        breaker.record(breaker.started(), verdict, now)


def is_stuck(breaker: CircuitBreaker) -> bool:
    return breaker.stuck


def is_closed(breaker: CircuitBreaker) -> bool:
    return breaker.closed


def opened(now: float = 0.0) -> CircuitBreaker:
    breaker = fresh()
    run(breaker, [F] * 5, now)
    return breaker


def test_another_thread_may_ask_while_it_closes() -> None:
    class Closing(CircuitBreaker):
        """Closes as soon as somebody has looked."""

        looks = iter([5.0, None, None])

        def __getattribute__(self, name: str) -> object:
            return next(Closing.looks) if name == "_open_until" else super().__getattribute__(name)

    assert Closing(RULES, PolitenessClocks(), 0.0).wait(1.0) == 4.0


def test_it_opens_after_five_failures_in_a_row() -> None:
    breaker = fresh()
    run(breaker, [F, F, F, F, S, F, F, N, F, F])
    assert is_closed(breaker)
    assert breaker.wait(0) == 0
    run(breaker, [F], now=7.0)
    assert not is_closed(breaker)
    assert breaker.wait(7.0) == 60
    assert breaker.wait(66.0) == 1
    assert breaker.wait(67.0) == 0


def test_half_open_lets_one_probe_run_at_a_time() -> None:
    breaker = opened()
    probe = breaker.started()
    assert breaker.wait(61.0) == math.inf
    breaker.record(probe, N, 61.0)
    assert breaker.wait(61.0) == 0


def test_two_successes_close_it() -> None:
    breaker = opened()
    run(breaker, [S], 61.0)
    assert not is_closed(breaker)
    run(breaker, [S], 62.0)
    assert is_closed(breaker)
    run(breaker, [F] * 4, 63.0)
    assert is_closed(breaker), "failures are counted anew"


def test_a_failed_probe_opens_it_again() -> None:
    breaker = opened()
    run(breaker, [S, F], 61.0)
    assert breaker.wait(61.0) == 60
    run(breaker, [S], 200.0)
    assert not is_closed(breaker), "successes are counted anew"


def test_requests_from_before_it_opened_say_nothing() -> None:
    breaker = fresh()
    early = [breaker.started() for _ in range(8)]
    for flight in early[:5]:
        breaker.record(flight, F, 1.0)
    breaker.record(early[5], F, 30.0)
    assert breaker.wait(30.0) == 31
    probe = breaker.started()
    breaker.record(early[6], S, 62.0)
    breaker.record(early[7], F, 62.0)
    assert breaker.wait(62.0) == math.inf, "the probe still runs"
    breaker.record(probe, S, 63.0)
    assert breaker.wait(63.0) == 0


def test_it_survives_a_restart() -> None:
    def again(breaker: CircuitBreaker, now: float) -> CircuitBreaker:
        clocks = PolitenessClocks()
        breaker.write(clocks, now)
        return fresh(clocks, now=1000.0)

    failing = fresh()
    run(failing, [F] * 4)
    failing = again(failing, 1.0)
    run(failing, [F], 1000.0)
    assert not is_closed(failing)
    still_open = again(opened(), 20.0)
    assert still_open.wait(1000.0) == 40
    half_open = opened()
    run(half_open, [S], 70.0)
    half_open = again(half_open, 80.0)
    assert half_open.wait(1000.0) == 0
    assert not is_closed(half_open)
    run(half_open, [S], 1000.0)
    assert is_closed(half_open)


def test_three_openings_without_a_success_are_a_stuck_host() -> None:
    breaker = opened()
    assert not is_stuck(breaker)
    run(breaker, [F], 61.0)
    assert not is_stuck(breaker)
    run(breaker, [F], 122.0)
    assert is_stuck(breaker)


def test_a_success_between_them_begins_anew() -> None:
    breaker = opened()
    for at in (61.0, 122.0, 183.0, 244.0):
        run(breaker, [S, F], at)
        assert not is_stuck(breaker)
    run(breaker, [F], 305.0)
    assert is_stuck(breaker)


def test_openings_are_counted_over_visits_and_one_failed_probe_is_enough_after_that() -> None:
    breaker = opened()
    run(breaker, [F], 61.0)
    clocks = PolitenessClocks()
    breaker.write(clocks, 61.0)
    later = fresh(clocks, now=1000.0)
    assert not is_stuck(later)
    run(later, [F], 1061.0)
    assert is_stuck(later)
    later.write(clocks, 1061.0)
    much_later = fresh(clocks, now=5000.0)
    assert not is_stuck(much_later), "the next visit may try"
    run(much_later, [F], 5061.0)
    assert is_stuck(much_later)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(Circuit), st.integers(0, 40)), max_size=60))
def test_one_at_a_time_it_does_what_a_plain_count_says(events: list[tuple[Circuit, int]]) -> None:
    breaker, now = fresh(), 0.0
    failures = successes = 0
    half_open = False
    for verdict, later in events:
        now += later + breaker.wait(now + later)
        flight = breaker.started()
        breaker.record(flight, verdict, now)
        if verdict is F:
            failures, successes = failures + 1, 0
            if half_open or failures >= 5:
                half_open = True
                assert breaker.wait(now) == 60
        elif verdict is S:
            failures = 0
            successes += 1
            if half_open and successes >= 2:
                half_open = False
        if not half_open:
            successes = 0
        assert is_closed(breaker) is not half_open
