"""Whether a URL is tried again, and when.

The rule: nothing is given up before its attempts are used, and none has more of them than the settings say. Waiting times only ever
get longer by chance or by what the server asks for.
"""

import random
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.settings import Politeness

JITTER: Final = 0.5
LONGEST: Final = timedelta(days=90)
"""What we believe of a Retry-After; a server that asks for a thousand years gets this."""


class Retry(NamedTuple):
    """Where a URL stands after an attempt. `retry_in` seconds from now it is due again; None: it is not."""

    state: UrlState
    retry_in: float | None = None


def next_attempt(
    outcome: Outcome, attempts: int, settings: Politeness, chance: random.Random, retry_after: timedelta | None = None
) -> Retry:
    """What follows from an attempt that ended with `outcome`; it was number `attempts`, counted from 1."""
    treatment = TREATMENT[outcome]
    if not treatment.retry or attempts > settings.retries:
        return Retry(treatment.state)
    doublings = min(max(attempts, 1) - 1, 40)  # beyond that the longest back-off is reached from any delay
    pause = min(settings.retry_delay.total_seconds() * 2**doublings, settings.max_back_off.total_seconds())
    return Retry(UrlState.WAITING, max(pause * (1 + chance.uniform(0, JITTER)), asked_for(retry_after)))


def asked_for(retry_after: timedelta | None) -> float:
    """Seconds that a Retry-After asks for, as far as we believe it."""
    return min(max(retry_after, timedelta()), LONGEST).total_seconds() if retry_after else 0.0
