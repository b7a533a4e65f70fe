"""Long work that somebody asked the API for: asked for here, done by whichever background comes first.

The rule: an operation may be done twice, as whoever does it may be killed at any moment; each deed is one that bears it. What somebody
asked for is in the store before he has his answer.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.errors import HoldfastError, Refused, StoreUnavailable, UsageError
from holdfast.operations import queries as operations
from holdfast.operations.queries import ATTEMPTS, SILENCE, Operation

log: Final = logging.getLogger(__name__)

PAGE: Final = 500
"""The most that a list gives at once."""
STATES: Final = ("waiting", "running", "done", "failed")
_BEAT: Final = SILENCE.total_seconds() / 6
_REPORT: Final = 1.0
"""Seconds between two reports of how far it is."""

ASKED_AT: Final = "asked_at"
"""Among the arguments of a deed: who does it twice means the things that were there then."""
AGAIN: Final = "again"
"""Among the arguments of a deed: whether somebody began it before, and did not end it."""

Watch = Callable[[Mapping[str, object]], None]
"""Told how far it is."""
Deed = Callable[[Mapping[str, Any], str, Watch], Mapping[str, object]]
"""What an operation is: its arguments, who asked for it, whom to tell how far it is; what came of it."""


@dataclass(frozen=True, slots=True)
class OperationService:
    """Operations, as those see them who ask for them."""

    database: Database

    def ask(self, kind: str, arguments: dict[str, Any], *, actor: str) -> Operation:
        """Have something done. After: a background does it, sooner or later, whatever dies meanwhile."""
        with self.database.session() as connection, connection.transaction():
            asked = operations.ask(connection, kind, arguments, actor=actor)
            audit.write(connection, actor=actor, action=kind, kind="operation", object_id=asked.id, details=arguments)
        return asked

    def show(self, operation_id: int) -> Operation:
        """One operation."""
        with self.database.session() as connection:
            return operations.get(connection, operation_id)

    def listing(self, *, state: str | None = None, before: int | None = None, limit: int = 100) -> list[Operation]:
        """Operations, the newest first; `before` is the id of the last one seen."""
        if not 1 <= limit <= PAGE:
            raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")
        if state is not None and state not in STATES:
            raise UsageError(f"An operation is {', '.join(STATES)}; not {state!r}.")
        with self.database.session() as connection:
            return operations.listing(connection, state=state, before=before, limit=limit)


class _Taken(Exception):
    """Another background does it by now."""


class Operator:
    """Does operations, one at a time. Its calls block: they are for a thread."""

    def __init__(self, database: Database, deeds: Mapping[str, Deed]) -> None:
        self._database = database
        self._deeds = deeds
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let go of what is under way at the next report; another background does it, from its beginning."""
        self._stopping.set()

    def work(self) -> bool:
        """Do one operation, if there is one; whether there was."""
        if self._stopping.is_set():
            return False
        with self._database.session() as connection:
            operation = operations.take(connection)
        if operation is None:
            return False
        log.info("operation %d (%s) begins", operation.id, operation.kind)
        try:
            with self._alive(operation):
                result, problem = self._do(operation)
        except (_Taken, StoreUnavailable) as why:
            log.warning("operation %d is left to another background: %s", operation.id, why)
            with suppress(HoldfastError), self._database.session() as connection:
                operations.give_back(connection, operation)
            return False
        with self._database.session() as connection:
            operations.end(connection, operation, result=result, problem=problem)
        log.info("operation %d (%s) has ended: %s", operation.id, operation.kind, problem or "done")
        return True

    def _do(self, operation: Operation) -> tuple[dict[str, Any] | None, str | None]:
        deed = self._deeds.get(operation.kind)
        if deed is None:
            return None, f"This Holdfast does not know operations of the kind {operation.kind!r}."
        if operation.attempts > ATTEMPTS:
            return None, f"It was begun {ATTEMPTS} times, and the process died each time."
        reported = 0.0

        def watch(progress: Mapping[str, object]) -> None:
            nonlocal reported
            if self._stopping.is_set():
                raise _Taken("this one stops")
            if time.monotonic() - reported >= _REPORT:
                reported = time.monotonic()
                self._beat(operation, dict(progress))

        try:
            asked = {**operation.arguments, ASKED_AT: operation.asked_at.isoformat(), AGAIN: operation.again}
            return dict(deed(asked, operation.asked_by, watch)), None
        except StoreUnavailable:
            raise
        except HoldfastError as problem:
            return None, str(problem)
        except _Taken:
            raise
        except Exception as problem:
            log.exception("operation %d failed", operation.id)
            return None, f"It failed by a fault of ours ({type(problem).__name__}); the background's log says more."

    def _beat(self, operation: Operation, progress: dict[str, Any] | None = None) -> None:
        with self._database.session() as connection:
            if not operations.beat(connection, operation, progress):
                raise _Taken("it is another's by now")

    @contextmanager
    def _alive(self, operation: Operation) -> Iterator[None]:
        """Signs of life until the end, from a thread of their own: a deed may be quiet for long."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT):
                try:
                    self._beat(operation)
                except (HoldfastError, _Taken) as problem:
                    log.warning("operation %d gives no sign of life: %s", operation.id, problem)
                except Exception:
                    log.exception("operation %d gives no sign of life", operation.id)  # the next one may get through

        thread = threading.Thread(target=beat, name=f"operation {operation.id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def argument(arguments: Mapping[str, Any], name: str) -> str:
    """A text that an operation needs."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise Refused(f"The operation lacks {name!r}.")
    return value
