"""What may happen to a domain: `next_status` against the matrix."""

from itertools import product

import pytest

from holdfast.model.domain import (
    ALLOWED_TRANSITIONS,
    BLOCKING_EVENTS,
    STOPPING_EVENTS,
    UNREACHABLE_EVENTS,
    Event,
    Status,
    next_status,
    status_reason,
)

PENDING, ACTIVE, EXHAUSTED, BLOCKED, UNREACHABLE = Status


@pytest.mark.parametrize(("status", "event"), list(product(Status, Event)))
def test_every_status_meets_every_event_and_the_answer_is_allowed(status: Status, event: Event) -> None:
    after = next_status(status, event)
    assert after is status or event is Event.RESET or after in ALLOWED_TRANSITIONS[status]


@pytest.mark.parametrize("event", Event)
def test_an_event_leads_to_one_status_only(event: Event) -> None:
    """The store relies on it: two changes in a row never have the same reason."""
    reached = {next_status(status, event) for status in Status if next_status(status, event) is not status}
    assert len(reached) == 1


@pytest.mark.parametrize(
    ("status", "event", "after"),
    [
        # The first outcome, of whatever kind, says that a domain is under way.
        (PENDING, Event.OUTCOME, ACTIVE),
        (ACTIVE, Event.OUTCOME, ACTIVE),
        # A page that still arrives does not overwrite what was decided.
        (EXHAUSTED, Event.OUTCOME, EXHAUSTED),
        (BLOCKED, Event.OUTCOME, BLOCKED),
        (UNREACHABLE, Event.OUTCOME, UNREACHABLE),
        # Only what was crawled can be exhausted.
        (ACTIVE, Event.FRONTIER_EMPTY, EXHAUSTED),
        (PENDING, Event.FRONTIER_EMPTY, PENDING),
        (EXHAUSTED, Event.FRONTIER_EMPTY, EXHAUSTED),
        (BLOCKED, Event.FRONTIER_EMPTY, BLOCKED),
        # robots.txt may deny everything before the first page; a name may not exist at all.
        (PENDING, Event.ROBOTS_DENIED, BLOCKED),
        (PENDING, Event.DNS_FAILURE, UNREACHABLE),
        (ACTIVE, Event.LOGIN_REQUIRED, BLOCKED),
        (ACTIVE, Event.RATE_LIMITED, BLOCKED),
        (ACTIVE, Event.FORBIDDEN, BLOCKED),
        (ACTIVE, Event.UNAVAILABLE, BLOCKED),
        (ACTIVE, Event.CONNECTION_FAILED, UNREACHABLE),
        (ACTIVE, Event.TIMEOUT, UNREACHABLE),
        (ACTIVE, Event.TLS_FAILURE, UNREACHABLE),
        # A stop of one kind is not turned into the other, and what is exhausted stays so.
        (BLOCKED, Event.DNS_FAILURE, BLOCKED),
        (UNREACHABLE, Event.FORBIDDEN, UNREACHABLE),
        (EXHAUSTED, Event.FORBIDDEN, EXHAUSTED),
        # What time and other domains bring about concerns the states that wait for it.
        (BLOCKED, Event.COOLDOWN_ENDED, PENDING),
        (UNREACHABLE, Event.COOLDOWN_ENDED, PENDING),
        (EXHAUSTED, Event.COOLDOWN_ENDED, EXHAUSTED),
        (ACTIVE, Event.COOLDOWN_ENDED, ACTIVE),
        (EXHAUSTED, Event.REFRESH_DUE, PENDING),
        (BLOCKED, Event.REFRESH_DUE, BLOCKED),
        (EXHAUSTED, Event.WOKEN, PENDING),
        (BLOCKED, Event.WOKEN, BLOCKED),
        (ACTIVE, Event.WOKEN, ACTIVE),
    ],
)
def test_what_an_event_does(status: Status, event: Event, after: Status) -> None:
    assert next_status(status, event) is after


@pytest.mark.parametrize("status", Status)
def test_a_person_may_reset_a_domain_from_every_status(status: Status) -> None:
    assert next_status(status, Event.RESET) is PENDING


def test_the_matrix_is_that_of_the_seed_and_pending_to_blocked() -> None:
    assert {(old, new) for old, allowed in ALLOWED_TRANSITIONS.items() for new in allowed} == {
        (PENDING, ACTIVE),
        (PENDING, UNREACHABLE),
        (ACTIVE, ACTIVE),
        (ACTIVE, EXHAUSTED),
        (ACTIVE, BLOCKED),
        (ACTIVE, UNREACHABLE),
        (EXHAUSTED, PENDING),
        (EXHAUSTED, ACTIVE),
        (BLOCKED, PENDING),
        (BLOCKED, ACTIVE),
        (UNREACHABLE, PENDING),
        (UNREACHABLE, ACTIVE),
        (PENDING, BLOCKED),  # D3: robots.txt denies everything before the first page
    }


def test_stopping_events_are_those_that_lead_to_a_stop() -> None:
    assert {e for e in Event if next_status(ACTIVE, e) in {BLOCKED, UNREACHABLE}} == STOPPING_EVENTS
    assert not BLOCKING_EVENTS & UNREACHABLE_EVENTS


@pytest.mark.parametrize(
    ("event", "detail", "text"),
    [(Event.RESET, "", "reset"), (Event.FORBIDDEN, "10 times 403", "forbidden: 10 times 403")],
)
def test_a_reason_begins_with_its_event(event: Event, detail: str, text: str) -> None:
    assert status_reason(event, detail) == text
