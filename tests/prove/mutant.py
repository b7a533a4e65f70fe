"""Holdfast with one of its guards taken out, to show that the proofs would notice.

python -m tests.prove.mutant NAME ARGUMENTS OF HOLDFAST …
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from holdfast.archive import segment_file
from holdfast.cli.app import run
from holdfast.crawler.leases import Heartbeat
from holdfast.db import claims, enqueue, idempotency_keys
from holdfast.db.connection import Connection

_SLEEPS_AT = 4
"""Of the fences of several domains, which only commits have: robots.txt and budgets are asked for one."""


Fence = Callable[..., set[int]]


def _asleep_before(fence: Fence) -> Fence:
    """After a few commits, freeze before asking: the worst moment, when the batch is made and its transaction has begun."""
    calls = itertools.count(1)

    def ask(connection: Connection, *, worker: str, held: Iterable[tuple[int, int]]) -> set[int]:
        held = list(held)
        if len(held) > 1 and next(calls) == _SLEEPS_AT:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.2)  # another thread may be the one that is stopped first
        return fence(connection, worker=worker, held=held)

    return ask


def no_fence() -> None:
    """Writes ask nobody whether the claim still stands."""

    def pass_all(connection: Connection, *, worker: str, held: Iterable[tuple[int, int]]) -> set[int]:
        return {domain_id for domain_id, _ in held}

    claims.fence = _asleep_before(pass_all)


def sleepy() -> None:
    """No mutant: all guards are there, and it freezes at the same moment."""
    claims.fence = _asleep_before(claims.fence)


def no_unique_key() -> None:
    """A URL may come into the frontier any number of times. (The key itself is dropped by the test.)"""
    before = enqueue._INSERT
    enqueue._INSERT = before.replace("ON CONFLICT DO NOTHING", "")  # type: ignore[misc]
    assert before != enqueue._INSERT


def no_stored_responses() -> None:
    """The API forgets which requests it has answered."""

    def reserve(*arguments: object, **options: object) -> None:
        return None

    def save_response(*arguments: object, **options: object) -> None:
        return None

    idempotency_keys.reserve = reserve
    idempotency_keys.save_response = save_response


def no_heartbeat() -> None:
    """Nobody renews a lease but commits."""

    def silent(self: Heartbeat) -> None:
        self._stop.wait()

    Heartbeat._beat = silent  # type: ignore[method-assign]


def no_order() -> None:
    """Rows first, bytes later: what is written to the archive gets there with the next write."""
    write = segment_file.OpenSegment.write
    late: dict[segment_file.OpenSegment, bytes] = {}

    def write_later(self: segment_file.OpenSegment, data: bytes) -> None:
        after = self.size + len(data)
        if before := late.pop(self, b""):
            self.size -= len(before)
            write(self, before)
        late[self] = data
        self.size = after

    segment_file.OpenSegment.write = write_later  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    mutate.__name__: mutate for mutate in (no_fence, sleepy, no_unique_key, no_stored_responses, no_heartbeat, no_order)
}


if __name__ == "__main__":
    MUTANTS[sys.argv[1]]()
    sys.exit(run(sys.argv[2:]))
