"""Operations: long work that the API starts and a background process runs.

The rule: an operation may run twice, since the process that runs it may be killed at any moment; each handler must tolerate that. An
operation is in the store before the caller gets the response.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, get_args

from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import check_page_size
from holdfast.errors import HoldfastError, Refused, StoreUnavailable, UsageError
from holdfast.operations import queries
from holdfast.operations.queries import ATTEMPTS, SILENCE
from holdfast.operations.records import Operation, OperationState, StartedOperation

log: Final = logging.getLogger(__name__)

STATES: Final = get_args(OperationState)
_BEAT: Final = SILENCE.total_seconds() / 6
_REPORT: Final = 1.0
"""Seconds between two reports of the progress."""

ASKED_AT: Final = "asked_at"
"""An argument of a handler: the time of the request, so that a second run changes only what existed then."""
AGAIN: Final = "again"
"""An argument of a handler: whether a process started the operation before, and did not end it."""

Report = Callable[[Mapping[str, object]], None]
"""Called with the progress."""
Handler = Callable[[Mapping[str, Any], str, Report], Mapping[str, object]]
"""Runs one kind of operation: it takes the arguments, the actor and a report of the progress, and returns the result."""


@dataclass(frozen=True, slots=True)
class OperationService:
    """The operations of one database: start, show, list."""

    database: Database

    def ask(self, kind: str, arguments: dict[str, Any], *, actor: str) -> Operation:
        """Start an operation. After: a background process runs it, also if other processes die meanwhile."""
        with self.database.session() as connection, connection.transaction():
            asked = queries.ask(connection, kind, arguments, actor=actor)
            audit.write(connection, actor=actor, action=kind, kind="operation", object_id=asked.id, details=arguments)
        return asked

    def show(self, operation_id: int) -> Operation:
        """Return one operation. Raises NotFound."""
        with self.database.session() as connection:
            return queries.get(connection, operation_id)

    def listing(self, *, state: str | None = None, before: int | None = None, limit: int = 100) -> list[Operation]:
        """Return operations, the newest first; `before` is the last id of the page before. Raises UsageError."""
        check_page_size(limit)
        if state is not None and state not in STATES:
            raise UsageError(f"An operation is {', '.join(STATES)}; not {state!r}.")
        with self.database.session() as connection:
            return queries.listing(connection, state=state, before=before, limit=limit)


class _Lost(Exception):
    """This process stops, or another one has taken the operation."""


class OperationRunner:
    """Runs operations, one at a time. Its calls block, so they need a thread."""

    def __init__(self, database: Database, handlers: Mapping[str, Handler]) -> None:
        self._database = database
        self._handlers = handlers
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Interrupt the running operation at its next report; another process runs it, from its beginning."""
        self._stopping.set()

    def work(self) -> bool:
        """Run one operation, if one waits; return whether one did."""
        if self._stopping.is_set():
            return False
        with self._database.session() as connection:
            operation = queries.take(connection)
        if operation is None:
            return False
        log.info("operation %d (%s) starts", operation.id, operation.kind)
        try:
            with self._alive(operation):
                result, problem = self._run(operation)
        except (_Lost, StoreUnavailable) as why:
            log.warning("operation %d is left to another process: %s", operation.id, why)
            with suppress(HoldfastError), self._database.session() as connection:
                queries.give_back(connection, operation)
            return False
        with self._database.session() as connection:
            queries.end(connection, operation, result=result, problem=problem)
        log.info("operation %d (%s) has ended: %s", operation.id, operation.kind, problem or "done")
        return True

    def _run(self, operation: StartedOperation) -> tuple[dict[str, Any] | None, str | None]:
        """Return the result of an operation, or the problem that it failed with."""
        handler = self._handlers.get(operation.kind)
        if handler is None:
            return None, f"This Holdfast does not know operations of the kind {operation.kind!r}."
        if operation.attempts > ATTEMPTS:
            return None, f"It was begun {ATTEMPTS} times, and the process died each time."
        reported = 0.0

        def report(progress: Mapping[str, object]) -> None:
            nonlocal reported
            if self._stopping.is_set():
                raise _Lost("this process stops")
            if time.monotonic() - reported >= _REPORT:
                reported = time.monotonic()
                self._beat(operation, dict(progress))

        try:
            arguments = {**operation.arguments, ASKED_AT: operation.asked_at.isoformat(), AGAIN: operation.again}
            return dict(handler(arguments, operation.asked_by, report)), None
        except StoreUnavailable:
            raise
        except HoldfastError as problem:
            return None, str(problem)
        except _Lost:
            raise
        except Exception as problem:
            log.exception("operation %d failed", operation.id)
            return None, f"It failed by a fault of ours ({type(problem).__name__}); the background's log says more."

    def _beat(self, operation: Operation, progress: dict[str, Any] | None = None) -> None:
        with self._database.session() as connection:
            if not queries.beat(connection, operation, progress):
                raise _Lost("another process has taken it")

    @contextmanager
    def _alive(self, operation: Operation) -> Iterator[None]:
        """Send heartbeats from a thread of their own, since a handler may report nothing for long."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT):
                try:
                    self._beat(operation)
                except (HoldfastError, _Lost) as problem:
                    log.warning("the heartbeat of operation %d failed: %s", operation.id, problem)
                except Exception:
                    log.exception("the heartbeat of operation %d failed", operation.id)  # the next one may get through

        thread = threading.Thread(target=beat, name=f"operation {operation.id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return a text argument of an operation. Raises Refused if it is missing."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise Refused(f"The operation lacks {name!r}.")
    return value
