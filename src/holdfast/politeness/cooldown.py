"""How long a domain is left alone after what happened to it.

The rule: a cool-down is never shorter than what the settings say or the server asked for; jitter only makes it longer, so that
domains that stopped together do not come back together.
"""

import random
from dataclasses import dataclass
from datetime import timedelta

from holdfast.model.domain import STOPPING, UNREACHING, Event
from holdfast.settings import Cooldown


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """The cool-downs in force."""

    rules: Cooldown
    max_block_retries: int
    chance: random.Random

    def __call__(self, event: Event, stops_so_far: int, retry_after: timedelta | None = None) -> timedelta | None:
        """The cool-down that begins with `event`; None: until a person resets the domain. Zero where the event begins none."""
        if event in STOPPING and stops_so_far >= self.max_block_retries:
            return None
        least = max(self._least(event), retry_after or timedelta())
        return least * (1 + self.chance.uniform(0, self.rules.jitter))

    def _least(self, event: Event) -> timedelta:
        if event in UNREACHING:
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
