"""Retries: whether a URL is requested again, and when.

The rule: no URL is given up before its attempts are used, and none has more attempts than the settings allow. Jitter and Retry-After only
make waits longer.
"""

import random
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.settings import Politeness

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
