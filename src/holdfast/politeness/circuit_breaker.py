"""A domain's circuit breaker: a server that fails again and again is left alone, then tried by one request at a time.

The rule: closed, until so many failures in a row; open for a while; then half-open, where only a probe may run, until so many of them
succeed. One that fails opens it again. Requests from before it opened say nothing any more. Three openings without a success: the host is
stuck, and is left alone for an hour.
"""

import math
from typing import Final

from holdfast.model.batch import Clocks
from holdfast.model.outcome import Circuit
from holdfast.settings import Politeness

OPENINGS: Final = 3
"""Without a success between them, over visits, after which a host counts as stuck."""
STUCK_FOR: Final = 3600.0
"""Seconds for which a stuck host is left alone."""


class CircuitBreaker:
    """The circuit of one domain in one visit. Times are seconds on the caller's clock."""

    __slots__ = ("_failures", "_generation", "_open_until", "_probing", "_settings", "_successes", "stuck")

    def __init__(self, settings: Politeness, clocks: Clocks, now: float) -> None:
        """Take up what the store knows."""
        self._settings = settings
        self._failures = clocks.circuit_failures
        self._successes = clocks.circuit_successes
        self._open_until = None if clocks.circuit_open_in is None else now + clocks.circuit_open_in
        self._probing = False
        self.stuck = False
        """The host got stuck in this visit."""
        self._generation = 0  # rises when the circuit opens or closes

    @property
    def closed(self) -> bool:
        """Whether requests may run side by side."""
        return self._open_until is None

    def wait(self, now: float) -> float:
        """Seconds until a request may start: 0 is now, infinity is not before the probe has ended. For any thread."""
        until = self._open_until
        if until is None:
            return 0.0
        if now < until:
            return until - now
        return math.inf if self._probing else 0.0

    def started(self) -> int:
        """A request starts. Before: `wait` is 0. After: in a half-open circuit no other may. The number goes to `record`."""
        self._probing = self._open_until is not None
        return self._generation

    def record(self, started: int, verdict: Circuit, now: float) -> None:
        """The request that `started` has ended so. After: the circuit is where that leads."""
        if started != self._generation:
            return
        if self._open_until is None:
            self._while_closed(verdict, now)
        else:
            self._probing = False
            self._while_half_open(verdict, now)

    def write(self, clocks: Clocks, now: float) -> None:
        """Put the circuit into what the store keeps."""
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
            self._failures = min(self._failures, self._settings.circuit_failures)  # as after the first opening
            if self._successes >= self._settings.circuit_successes:
                self._open_until = None
                self._failures = self._successes = 0
                self._generation += 1

    def _open(self, now: float) -> None:
        self._open_until = now + self._settings.circuit_open.total_seconds()
        self._successes = 0
        self._generation += 1
        # A failure more for each opening after the first.
        self.stuck = self._failures >= self._settings.circuit_failures + OPENINGS - 1
