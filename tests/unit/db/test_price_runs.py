"""The history of a price claims nothing that no fetch said, in whatever order and however often pages are parsed."""

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from holdfast.db.price_history import Price, Run, needs_others, observed, unobserved
from holdfast.model.parse_result import Availability

START = datetime(2026, 1, 1, tzinfo=UTC)
TEN = Price(Decimal(10), "EUR", Availability.IN_STOCK)
TWELVE = Price(Decimal(12), "EUR", Availability.IN_STOCK)
GONE = Price(Decimal(12), "EUR", Availability.SOLD_OUT)
UNSAID = Price(None, None, None)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def seen(*days: tuple[int, Price | None]) -> list[Run]:
    """The runs after these looks, in this order; None: the product was not there after all."""
    runs: list[Run] = []
    known: dict[int, Price] = {}
    for number, price in days:
        others: list[tuple[datetime, int | None]] = [(day(other), other) for other in known if other != number]
        if not needs_others(runs, day(number), price):
            others = []
        if price is None:
            known.pop(number, None)
            runs = unobserved(runs, day(number), others)
        else:
            known[number] = price
            runs = observed(runs, day(number), number, price, others)
    return runs


def told(runs: list[Run]) -> list[tuple[int, int, Price]]:
    found = [(run.since_task or 0, run.until_task or 0, run.price) for run in runs]
    assert [(day(since), day(until)) for since, until, _ in found] == [(run.since, run.until) for run in runs]
    return found


def test_a_price_that_stays_is_one_run() -> None:
    assert told(seen((1, TEN), (2, TEN), (3, TEN))) == [(1, 3, TEN)]


def test_any_of_the_three_that_changes_begins_another() -> None:
    assert told(seen((1, TEN), (2, TWELVE), (3, GONE), (4, UNSAID))) == [
        (1, 1, TEN),
        (2, 2, TWELVE),
        (3, 3, GONE),
        (4, 4, UNSAID),
    ]


def test_a_price_that_comes_back_is_a_run_of_its_own() -> None:
    assert told(seen((1, TEN), (2, TWELVE), (3, TEN))) == [(1, 1, TEN), (2, 2, TWELVE), (3, 3, TEN)]


def test_how_many_zeros_a_price_is_written_with_changes_nothing() -> None:
    assert len(seen((1, TEN), (2, Price(Decimal("10.00"), "EUR", Availability.IN_STOCK)))) == 1


def test_the_order_in_which_fetches_are_parsed_does_not_matter() -> None:
    assert told(seen((3, TWELVE), (1, TEN), (2, TEN))) == [(1, 2, TEN), (3, 3, TWELVE)]
    assert told(seen((3, TEN), (1, TEN), (2, TEN))) == [(1, 3, TEN)]


def test_a_late_look_into_a_run_cuts_it() -> None:
    assert told(seen((1, TEN), (5, TEN), (3, TWELVE))) == [(1, 1, TEN), (3, 3, TWELVE), (5, 5, TEN)]
    assert told(seen((1, TEN), (2, TEN), (4, TEN), (5, TEN), (3, TWELVE))) == [(1, 2, TEN), (3, 3, TWELVE), (4, 5, TEN)]


def test_where_the_other_fetches_are_forgotten_only_the_ends_are_certain() -> None:
    runs = observed(seen((1, TEN), (2, TEN), (4, TEN), (5, TEN)), day(3), 3, TWELVE)
    assert told(runs) == [(1, 1, TEN), (3, 3, TWELVE), (5, 5, TEN)]


def test_a_correction_of_one_fetch_says_nothing_about_the_next() -> None:
    assert told(seen((1, TEN), (2, TEN), (3, TEN), (1, TWELVE))) == [(1, 1, TWELVE), (2, 3, TEN)]


def test_when_all_fetches_are_corrected_the_run_is_whole_again() -> None:
    assert told(seen((1, TEN), (2, TEN), (3, TEN), (1, GONE), (2, GONE), (3, GONE))) == [(1, 3, GONE)]


def test_a_product_that_was_not_there_leaves_no_trace() -> None:
    assert seen((1, TEN), (1, None)) == []
    assert told(seen((1, TEN), (2, TWELVE), (3, TEN), (2, None))) == [(1, 3, TEN)]
    assert told(seen((1, TEN), (2, TEN), (3, TEN), (1, None))) == [(2, 3, TEN)]
    assert told(seen((1, TEN), (2, TEN), (3, TEN), (3, None))) == [(1, 2, TEN)]


LOOKS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([TEN, TWELVE, GONE, UNSAID, None])), min_size=1, max_size=30
)


@given(LOOKS)
def test_whatever_happens_it_is_what_the_fetches_said_in_their_order(looks: list[tuple[int, Price | None]]) -> None:
    said = [
        (number, price) for number, price in sorted(dict(looks).items(), key=lambda look: look[0]) if price is not None
    ]
    expected = []
    for price, those in itertools.groupby(said, key=lambda look: look[1]):
        numbers = [number for number, _ in those]
        expected.append((numbers[0], numbers[-1], price))
    assert told(seen(*looks)) == expected
    assert told(seen(*looks, *dict(looks).items())) == expected, "saying it again changes nothing"
