"""What takes longer than two seconds says so.

The rule: on a terminal one line is written anew each second; elsewhere a line is added now and then.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0
ON_TERMINAL, ELSEWHERE = 1.0, 15.0


class Step:
    """A piece of work under way."""

    def __init__(self) -> None:
        self.part: float | None = None
        """How much of it is done, from 0 to 1; None: nobody knows."""
        self.seconds = 0.0
        """What it took, once it is over."""


@contextmanager
def step(what: str) -> Iterator[Step]:
    """Tell of `what` while it lasts, and what it took."""
    here, over, began = Step(), threading.Event(), time.monotonic()
    terminal = sys.stdout.isatty()
    start, end = ("\r", "\x1b[K") if terminal else ("", "\n")

    def tell() -> None:
        pause = PATIENCE
        while not over.wait(pause):
            part = "" if here.part is None else f"{here.part:.0%}, "
            print(f"{start}  {what} … {part}{time.monotonic() - began:.0f} s", end=end, flush=True)
            pause = ON_TERMINAL if terminal else ELSEWHERE

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield here
    finally:
        over.set()
        teller.join()
        here.seconds = time.monotonic() - began
        if here.seconds >= PATIENCE:
            print(f"{start}  {what}: {here.seconds:.1f} s{end if terminal else ''}", flush=True)
