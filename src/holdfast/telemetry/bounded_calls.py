"""Calls that may never return, such as those on a network folder whose server is gone, with a limit of time.

The rule: such a call cannot be interrupted. Its thread is left behind, and no other call is made for a while, so few threads ever wait.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

RETRY_SECONDS: Final = 300.0
"""Seconds after a call that did not return in which no other is made."""


class BoundedCalls:
    """Makes calls that end after some seconds, with a result or without. It may be shared by threads."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: the limit of each call."""
        self.seconds = seconds
        self._retry_at = 0.0

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a daemon thread, and return its result. Raises its OSError; TimeoutError if it has not returned in time, or
        if another call did not lately."""
        if time.monotonic() < self._retry_at:
            raise TimeoutError
        results: list[T] = []
        problems: list[OSError] = []

        def run() -> None:
            try:
                results.append(function())
            except OSError as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, name="bounded call", daemon=True)
        thread.start()
        thread.join(self.seconds)
        if thread.is_alive():
            self._retry_at = time.monotonic() + RETRY_SECONDS
            raise TimeoutError
        if problems:
            raise problems[0]
        return results[0]
