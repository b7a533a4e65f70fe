"""Retries and cool-downs: whether and when a URL is requested again, and a domain is visited again.

The rule: no URL is given up before its attempts are used, and none has more attempts than the settings allow. No wait is shorter than the
settings or the server's Retry-After say; jitter only makes it longer, so that domains that stopped together do not return together.
"""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.model.domain import STOPPING_EVENTS, UNREACHABLE_EVENTS, Event
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.settings import Cooldown, Politeness

JITTER: Final = 0.5
MAX_RETRY_AFTER: Final = timedelta(days=90)
"""Upper limit for a Retry-After; a server that asks for a thousand years gets this."""


class Retry(NamedTuple):
    """The state of a URL after an attempt. It is due again `retry_in` seconds from now; None: it is not."""

    state: UrlState
    retry_in: float | None = None


def next_attempt(
    outcome: Outcome, attempts: int, settings: Politeness, rng: random.Random, retry_after: timedelta | None = None
) -> Retry:
    """The consequence of attempt number `attempts` (counted from 1) that ended with `outcome`."""
    treatment = TREATMENT[outcome]
    if not treatment.retry or attempts > settings.retries:
        return Retry(treatment.state)
    doublings = min(max(attempts, 1) - 1, 40)  # by then every delay has reached the maximum back-off
    pause = min(settings.retry_delay.total_seconds() * 2**doublings, settings.max_back_off.total_seconds())
    return Retry(UrlState.WAITING, max(pause * (1 + rng.uniform(0, JITTER)), retry_after_seconds(retry_after)))


def retry_after_seconds(retry_after: timedelta | None) -> float:
    """Seconds of a Retry-After, at most `MAX_RETRY_AFTER`."""
    return min(max(retry_after, timedelta()), MAX_RETRY_AFTER).total_seconds() if retry_after else 0.0


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """The cool-downs by event."""

    rules: Cooldown
    max_block_retries: int
    rng: random.Random

    def __call__(self, event: Event, stops_so_far: int, retry_after: timedelta | None = None) -> timedelta | None:
        """The length of the cool-down that begins with `event`; None: until an operator resets the domain. Zero if the event begins
        none."""
        if event in STOPPING_EVENTS and stops_so_far >= self.max_block_retries:
            return None
        minimum = max(self._minimum(event), retry_after or timedelta())
        return minimum * (1 + self.rng.uniform(0, self.rules.jitter))

    def _minimum(self, event: Event) -> timedelta:
        if event in UNREACHABLE_EVENTS:
            return self.rules.unreachable
        by_event = {
            Event.FRONTIER_EMPTY: self.rules.exhausted,
            Event.LOGIN_REQUIRED: self.rules.login_required,
            Event.RATE_LIMITED: self.rules.rate_limited,
            Event.FORBIDDEN: self.rules.forbidden,
            Event.UNAVAILABLE: self.rules.unavailable,
            Event.ROBOTS_DENIED: self.rules.robots_denied,
        }
        return by_event.get(event, timedelta())
