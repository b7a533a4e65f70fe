"""How long a domain cools down after an event.

The rule: a cool-down is never shorter than the settings or the server's Retry-After say; jitter only makes it longer, so that domains that
stopped together do not return together.
"""

import random
from dataclasses import dataclass
from datetime import timedelta

from holdfast.model.domain import STOPPING_EVENTS, UNREACHABLE_EVENTS, Event
from holdfast.settings import Cooldown


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
