"""The rate: the delay from when a request went out, back-off as a second clock, slow servers, bursts of links."""

import math
import random
from dataclasses import astuple
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.activity import DelaySource, Wait, WaitKind
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.politeness.request_rate import (
    ASSUMED_TRANSIT,
    BACK_OFF_JITTER,
    MAX_FLOOD_WAIT,
    SUCCESSES_PER_STEP,
    URL_BURST,
    WARM_UP_ANSWERS,
    RequestRate,
    RequestTiming,
)
from holdfast.settings import Crawl, Politeness

JITTER = 1 + BACK_OFF_JITTER


def make(
    clocks: PolitenessClocks | None = None,
    now: float = 0.0,
    *,
    delay: float = 1.0,
    crawl_delay: float | None = None,
    crawl: Crawl | None = None,
) -> RequestRate:
    rng = random.Random(1)
    return RequestRate(
        Politeness(), crawl or Crawl(), clocks or PolitenessClocks(), now, rng, delay=delay, crawl_delay=crawl_delay
    )


def fetch(
    rate: RequestRate, now: float, outcome: Outcome = Outcome.OK, *, took: float = 0.1, after: float | None = None
) -> None:
    flight = rate.started()
    rate.sent(flight, now)
    rate.ended(flight, now + took, took, outcome, None if after is None else timedelta(seconds=after))


def flying(rate: RequestRate, count: int, now: float = 0.0) -> list[RequestTiming]:
    flights = []
    for _ in range(count):
        flights.append(rate.started())
        rate.sent(flights[-1], now)
    return flights


def test_the_first_request_may_start_at_once_and_the_next_after_the_delay() -> None:
    rate = make()
    assert rate.wait(0) == 0
    fetch(rate, 0, took=0)
    assert rate.wait(0.25) == 0.75
    assert rate.wait(1) == 0


def test_the_delay_counts_from_when_the_server_has_the_request() -> None:
    rate = make()
    flight = rate.started()
    assert rate.wait(5) == math.inf, "it may go out any moment"
    rate.sent(flight, 5)
    assert rate.wait(5) == 1 + ASSUMED_TRANSIT, "it may be there any moment"
    rate.sent(flight, 5.5)  # the connection broke, and it went out once more
    assert rate.wait(5.5) == 1 + ASSUMED_TRANSIT
    rate.answered(flight, 5.75)
    assert rate.wait(5.75) == 1
    rate.ended(flight, 6.5, 6.5, Outcome.OK)
    assert rate.wait(6.5) == 0.25, "the end of an answer says nothing new"


def test_no_request_waits_for_the_answer_to_another() -> None:
    rate = make()
    slow, quick = flying(rate, 1)[0], rate.started()
    rate.sent(quick, 1 + ASSUMED_TRANSIT)
    rate.answered(slow, 1.75)
    assert rate.wait(1.75) == 1.25 + ASSUMED_TRANSIT - 0.5, "only the answer to the latest counts"
    rate.answered(quick, 1.75)
    assert rate.wait(1.75) == 1


def test_a_short_delay_supposes_a_short_way() -> None:
    rate = make(delay=0.01)
    flying(rate, 1)
    assert rate.wait(0) == 0.02


def test_a_request_given_up_may_still_arrive() -> None:
    rate = make()
    rate.ended(flying(rate, 1)[0], 0.1, None, None)
    assert rate.wait(0.5) == 0.5 + ASSUMED_TRANSIT


def test_a_request_that_never_went_out_counts_from_its_end() -> None:
    rate = make()
    other = flying(rate, 1)[0]
    flight = rate.started()
    rate.ended(other, 2, 2, Outcome.OK)
    assert rate.wait(2) == math.inf, "another one's end does not set it free"
    rate.ended(flight, 3, 3, Outcome.DNS_FAILURE)
    assert rate.wait(3) == 1


@pytest.mark.parametrize(
    ("delay", "crawl_delay", "holds"), [(1, None, 1), (1, 0.2, 1), (1, 5, 5), (0, None, 0), (0, 2, 2)]
)
def test_the_longer_delay_holds(delay: float, crawl_delay: float | None, holds: float) -> None:
    assert make(delay=delay, crawl_delay=crawl_delay).delay == holds


def test_a_crawl_delay_holds_from_the_request_that_brought_it() -> None:
    rate = make()
    fetch(rate, 0, took=0)
    rate.set_crawl_delay(10)
    assert rate.wait(1) == 9
    rate.set_crawl_delay(None)
    assert rate.wait(1) == 0


def test_a_crawl_delay_counts_from_the_answer_that_brought_it() -> None:
    """Also where there was no delay before, and so nothing to count."""
    rate = make(delay=0)
    flight = rate.started()
    rate.sent(flight, 0)
    rate.answered(flight, 0.25)
    rate.set_crawl_delay(10)
    assert rate.wait(0.25) == 10


def test_after_a_crash_one_full_delay_passes() -> None:
    rate = make(PolitenessClocks(next_request_in=0.1), now=50, delay=2)
    rate.assume_unrecorded_request(50)
    assert rate.wait(50) == 2


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_ends_a_request(outcome: Outcome) -> None:
    rate = make()
    fetch(rate, 0, outcome)
    backs_off = TREATMENT[outcome].back_off
    assert rate.back_off_level == backs_off
    assert rate.clocks(0).back_off_in == pytest.approx(1.1, rel=0.25) if backs_off else not rate.clocks(0).back_off_in


def test_one_incident_is_one_step() -> None:
    rate = make(delay=0)
    burst = flying(rate, 5)
    for i, flight in enumerate(burst):
        rate.ended(flight, 1 + i / 10, 1, Outcome.RATE_LIMITED)
    assert rate.back_off_level == 1
    assert 1 <= rate.wait(1) <= JITTER, "from the first of them"
    assert rate.clocks(1).next_request_in == 0, "the delay's clock is another"


def test_steps_double_up_to_the_longest() -> None:
    rate, now = make(delay=3), 0.0
    for level in range(60):
        now += rate.wait(now)
        fetch(rate, now, Outcome.UNAVAILABLE, took=0)
        step = min(3 * 2**level, 3600)
        assert step <= rate.wait(now) <= step * JITTER


@pytest.mark.parametrize(
    ("after", "least", "most"), [(None, 1, JITTER), (0, 1, JITTER), (0.5, 1, JITTER), (100, 100, 100)]
)
def test_retry_after_makes_a_step_longer_but_never_shorter(after: float | None, least: float, most: float) -> None:
    rate = make()
    fetch(rate, 0, Outcome.RATE_LIMITED, took=0, after=after)
    assert least <= rate.wait(0) <= most


def test_a_later_answer_of_the_same_incident_may_ask_for_longer() -> None:
    rate = make()
    first, second, third = flying(rate, 3)
    rate.ended(first, 1, 1, Outcome.RATE_LIMITED)
    rate.ended(second, 1, 1, Outcome.RATE_LIMITED, timedelta(seconds=60))
    rate.ended(third, 1, 1, Outcome.RATE_LIMITED, timedelta())
    assert rate.wait(1) == 60
    assert rate.back_off_level == 1


def test_successes_after_the_back_off_take_it_back_step_by_step() -> None:
    rate = make(PolitenessClocks(back_off_level=2))
    for second in range(SUCCESSES_PER_STEP):
        assert rate.back_off_level == 2
        fetch(rate, second * 2)
    assert rate.back_off_level == 1
    for second in range(SUCCESSES_PER_STEP + 3):
        fetch(rate, 100 + second * 2)
    assert rate.back_off_level == 0


def test_answers_from_before_the_incident_are_no_success_after_it() -> None:
    rate = make()
    refused, *others = flying(rate, SUCCESSES_PER_STEP + 1)
    rate.ended(refused, 1, 1, Outcome.RATE_LIMITED)
    for flight in others:
        rate.ended(flight, 1, 1, Outcome.OK)
    assert rate.back_off_level == 1


def test_a_request_that_we_gave_up_says_nothing_about_the_server() -> None:
    rate = make(PolitenessClocks(back_off_level=1))
    for second in range(2 * SUCCESSES_PER_STEP):
        flight = rate.started()
        rate.ended(flight, second, None, None)
    assert rate.back_off_level == 1
    assert rate.clocks(0).response_ms is None
    assert rate.wait(second) == 1


def steady(rate: RequestRate, count: int, took: float, now: float = 0.0) -> float:
    for _ in range(count):
        now += rate.wait(now)
        fetch(rate, now, took=took)
        now += took
    return now


def test_it_is_slower_while_the_server_is_and_recovers_with_it() -> None:
    rate = make()
    now = steady(rate, 20, took=0.1)
    assert rate.delay == 1
    now = steady(rate, 30, took=3, now=now)
    assert rate.delay == pytest.approx(1 + 2.9, abs=0.1)
    now = steady(rate, 30, took=0.1, now=now)
    assert rate.delay == 1


def test_small_changes_do_not_slow_it() -> None:
    rate = make()
    now = steady(rate, 20, took=0.01)
    now = steady(rate, 30, took=0.2, now=now)
    assert rate.delay == 1, "twenty times, but not much"
    other = make()
    now = steady(other, 20, took=2)
    steady(other, 30, took=3.5, now=now)
    assert other.delay == 1, "much, but not twice"


def test_a_first_quick_answer_is_no_measure() -> None:
    rate = make()
    now = steady(rate, 1, took=0.001)
    steady(rate, 30, took=0.5, now=now)
    assert rate.delay == 1


def test_the_slowdown_is_capped() -> None:
    rate = make(PolitenessClocks(response_ms=500_000, best_response_ms=10))
    assert rate.delay == 61


def test_what_was_never_sent_is_no_measure() -> None:
    rate = make()
    rate.ended(rate.started(), 30, 30, Outcome.TIMEOUT)
    assert rate.clocks(30).response_ms is None


def test_a_page_with_thousands_of_links_is_not_held_up() -> None:
    """As the index of a handbook at delay 0: an ordinary crawl is never slowed."""
    rate = make(delay=0)
    for second in range(30):
        rate.discovered(3_000, 3_000 * (second + 1), second)
        assert rate.wait(second) == 0
        assert rate.reason(second) is None


def test_above_the_mark_new_urls_beyond_the_average_hold_the_next_request_and_say_so() -> None:
    rate = make(delay=0, crawl=Crawl(flood_mark=10))
    rate.discovered(URL_BURST, 11, 0)
    assert rate.wait(0) == 0
    rate.discovered(500, 11, 0)
    assert rate.wait(0) == 5
    assert rate.reason(1) == Wait(WaitKind.FLOOD_GUARD, 4)
    rate.discovered(500, 11, 5)
    assert rate.wait(5) == 5
    rate.discovered(URL_BURST, 11, 1000)
    assert rate.wait(1000) == 0, "credit is saved up again, to a limit"
    rate.discovered(100, 11, 1000)
    assert rate.wait(1000) == 1


def test_the_flood_guard_asks_for_a_long_wait_in_pieces_and_ends_at_the_mark() -> None:
    rate = make(delay=0, crawl=Crawl(flood_mark=10))
    rate.discovered(URL_BURST + 32_000, 11, 0)
    assert rate.wait(0) == MAX_FLOOD_WAIT, "so that no visit ends by it"
    assert rate.reason(0) == Wait(WaitKind.FLOOD_GUARD, 320)
    assert rate.wait(MAX_FLOOD_WAIT) == MAX_FLOOD_WAIT
    rate.discovered(1, 10, 20)
    assert rate.wait(20) == 0, "no more URLs wait than the mark"


def test_the_reason_of_a_wait_is_the_one_that_ends_last() -> None:
    rate = make(delay=2)
    fetch(rate, 0, took=0)
    assert rate.reason(1) == Wait(WaitKind.DELAY, 1)
    fetch(rate, 2, Outcome.RATE_LIMITED, took=0, after=30)
    wait = rate.reason(2)
    assert wait is not None
    assert wait.kind is WaitKind.BACK_OFF
    assert wait.seconds >= 30
    assert rate.reason(2 + wait.seconds) is None


def test_without_a_limit_new_urls_cost_nothing() -> None:
    rate = make(delay=0, crawl=Crawl(discovered_per_second=0))
    rate.discovered(10**6, 10**6, 0)
    assert rate.wait(0) == 0


def test_the_clocks_go_on_in_the_next_visit() -> None:
    rate = make(delay=4)
    now = steady(rate, WARM_UP_ANSWERS, took=0.5)
    now += rate.wait(now)
    fetch(rate, now, Outcome.RATE_LIMITED, took=1, after=30)
    kept = rate.clocks(now + 2)
    assert kept.next_request_in == pytest.approx(4 + ASSUMED_TRANSIT - 2)
    assert kept.back_off_in == pytest.approx(29)
    assert kept.back_off_level == 1
    assert kept.response_ms == pytest.approx(600)
    assert kept.best_response_ms == pytest.approx(500)
    again = make(kept, now=5000, delay=4).clocks(5000)
    assert astuple(again) == pytest.approx(astuple(kept))


def test_a_request_under_way_counts_as_sent_when_the_clocks_are_kept() -> None:
    rate = make(delay=2)
    rate.started()
    assert rate.clocks(100).next_request_in == 2


@settings(max_examples=150)
@given(
    delay=st.sampled_from([0.0, 0.5, 2.0]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["start", "send", "answer", "end", "links"]),
            st.floats(0, 3),
            st.sampled_from([Outcome.OK, Outcome.RATE_LIMITED, Outcome.DNS_FAILURE, Outcome.TIMEOUT]),
            st.sampled_from([None, 0, 5]),
        ),
        max_size=60,
    ),
)
def test_whatever_happens_both_clocks_hold(delay: float, steps: list[tuple[str, float, Outcome, int | None]]) -> None:
    rate, now = make(delay=delay), 0.0
    unsent: list[RequestTiming] = []
    flights: list[RequestTiming] = []
    received = back_off_until = -math.inf
    for what, later, outcome, after in steps:
        now += later
        if what == "start" and rate.wait(now) == 0:
            assert not unsent
            assert now >= back_off_until
            assert now - received >= delay - 1e-9
            unsent.append(rate.started())
        elif what == "send" and unsent:
            assert now - received >= delay - 1e-9
            flights.append(unsent.pop())
            rate.sent(flights[-1], now)
            received = now + min(rate.delay, ASSUMED_TRANSIT)  # nobody can know better, until it is answered
        elif what == "answer" and flights:
            rate.answered(flights[-1], now)
            received = min(received, now)
        elif what == "end" and (flights or unsent):
            flight = (flights or unsent).pop(0)
            level = rate.back_off_level
            latest = flight.sent and not flights  # they end in the order of their sending
            rate.ended(flight, now, 0.1, outcome, None if after is None else timedelta(seconds=after))
            received = min(received, now) if latest else received
            if TREATMENT[outcome].back_off:
                least = 2**level if rate.back_off_level > level else 0
                back_off_until = max(back_off_until, now + max(least, after or 0))
        elif what == "links":
            rate.discovered(200, 10**6, now)
        kept = rate.clocks(now)
        assert kept.next_request_in >= 0
        assert kept.back_off_in >= back_off_until - now - 1e-9


def test_a_delay_that_a_person_changes_counts_from_the_last_request() -> None:
    rate = make(delay=1.0)
    fetch(rate, 0.0, took=0.0)
    rate.set_delay(10.0)
    assert rate.wait(1.0) == pytest.approx(9.0)
    rate.set_delay(0.5)
    assert rate.wait(0.2) == pytest.approx(0.3)
    assert rate.wait(1.0) == 0


@pytest.mark.parametrize(("delay", "wait"), [(1.0, 0.0), (80.0, 70.0), (100.0, 90.0)])
def test_the_next_visit_counts_its_own_delay_from_the_last_request_of_the_one_before(delay: float, wait: float) -> None:
    """It was 10 s ago, under a delay of 80 s."""
    rate = make(PolitenessClocks(70.0, delay=80.0, delay_source=DelaySource.DOMAIN), delay=delay)
    assert rate.wait(0.0) == pytest.approx(wait)
    kept = rate.clocks(0.0)
    assert kept.next_request_in == pytest.approx(wait)
    assert kept.delay == delay


def test_a_clock_of_an_earlier_release_holds_as_it_is() -> None:
    assert make(PolitenessClocks(70.0), delay=1.0).wait(0.0) == 70.0


def test_the_source_of_the_delay() -> None:
    rng = random.Random(1)
    job = RequestRate(Politeness(), Crawl(), PolitenessClocks(), 0.0, rng, delay=1.0, source=DelaySource.JOB)
    assert job.source is DelaySource.JOB
    job.set_crawl_delay(5.0)
    assert (job.source, job.delay) == (DelaySource.ROBOTS, 5.0)
    job.set_crawl_delay(0.5)
    assert job.source is DelaySource.JOB
    slow = make(PolitenessClocks(response_ms=2000.0, best_response_ms=100.0))
    assert slow.source is DelaySource.LEARNT


# Overdue: how long a request could have started -------------------------------------------------------------------------


def test_a_request_is_overdue_from_the_end_of_its_last_wait() -> None:
    rate = make(delay=2.0)
    assert rate.overdue(7.0) == 7.0
    flight = rate.started()
    assert rate.overdue(7.0) == 0.0, "one has started"
    rate.sent(flight, 7.0)
    rate.ended(flight, 7.1, 0.1, Outcome.OK)
    assert rate.overdue(8.0) == 0.0, "the delay"
    assert rate.overdue(13.1) == pytest.approx(4.0)
    fetch(rate, 20.0, Outcome.RATE_LIMITED, after=30.0)
    assert rate.overdue(40.0) == 0.0, "the server asked for a pause"
    assert rate.overdue(60.0) == pytest.approx(60.0 - 20.1 - 30.0)
