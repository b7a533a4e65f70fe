"""The circuit breaker of a domain: a server that keeps failing gets no requests for a while, then one probe at a time.

The rule: the circuit is closed until `politeness.circuit_failures` failures in a row; open for `politeness.circuit_open`; then half-open,
where only one probe at a time may run, until `politeness.circuit_successes` of them succeed. A probe that fails opens it again. Results of
requests that started before it opened are ignored. After three openings without a success the host is stuck and gets no requests for an
hour.
"""

import math
from typing import Final

from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.outcome import Circuit
from holdfast.settings import Politeness

MAX_OPENINGS: Final = 3
"""Openings without a success between them, over visits, after which a host is stuck."""
STUCK_SECONDS: Final = 3600.0
"""Seconds without requests to a stuck host."""


class CircuitBreaker:
    """The circuit breaker of one domain in one visit. Times are seconds on the caller's clock."""

    __slots__ = ("_failures", "_generation", "_open_until", "_probing", "_settings", "_successes", "stuck")

    def __init__(self, settings: Politeness, clocks: PolitenessClocks, now: float) -> None:
        """Start from the stored state."""
        self._settings = settings
        self._failures = clocks.circuit_failures
        self._successes = clocks.circuit_successes
        self._open_until = None if clocks.circuit_open_in is None else now + clocks.circuit_open_in
        self._probing = False
        self.stuck = False
        """The host became stuck in this visit."""
        self._generation = 0  # incremented when the circuit opens or closes

    @property
    def closed(self) -> bool:
        """Whether requests may run in parallel."""
        return self._open_until is None

    def wait(self, now: float) -> float:
        """Seconds until a request may start: 0 means now, infinity means not before the running probe has ended. Thread-safe."""
        until = self._open_until
        if until is None:
            return 0.0
        if now < until:
            return until - now
        return math.inf if self._probing else 0.0

    def started(self) -> int:
        """Register the start of a request and return the generation to pass to `record`.

        Before: `wait` is 0. After: in a half-open circuit no other request may start.
        """
        self._probing = self._open_until is not None
        return self._generation

    def record(self, started: int, verdict: Circuit, now: float) -> None:
        """Record the verdict on a request that began in generation `started`. After: the circuit is in the resulting state."""
        if started != self._generation:
            return
        if self._open_until is None:
            self._while_closed(verdict, now)
        else:
            self._probing = False
            self._while_half_open(verdict, now)

    def write(self, clocks: PolitenessClocks, now: float) -> None:
        """Copy the state into `clocks`, which is stored."""
        clocks.circuit_failures = self._failures
        clocks.circuit_successes = self._successes
        clocks.circuit_open_in = None if self._open_until is None else max(self._open_until - now, 0.0)

    def _while_closed(self, verdict: Circuit, now: float) -> None:
        if verdict is Circuit.SUCCESS:
            self._failures = 0
        elif verdict is Circuit.FAILURE:
            self._failures += 1
            if self._failures >= self._settings.circuit_failures:
                self._open(now)

    def _while_half_open(self, verdict: Circuit, now: float) -> None:
        if verdict is Circuit.FAILURE:
            self._failures += 1
            self._open(now)
        elif verdict is Circuit.SUCCESS:
            self._successes += 1
            self._failures = min(self._failures, self._settings.circuit_failures)  # the value after the first opening
            if self._successes >= self._settings.circuit_successes:
                self._open_until = None
                self._failures = self._successes = 0
                self._generation += 1

    def _open(self, now: float) -> None:
        self._open_until = now + self._settings.circuit_open.total_seconds()
        self._successes = 0
        self._generation += 1
        # Each opening after the first adds one failure.
        self.stuck = self._failures >= self._settings.circuit_failures + MAX_OPENINGS - 1
