"""Operations of a server: long work that a background process of the server does while the command waits.

The rule: the operation is the server's. Ctrl-C ends the command, not the operation.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli.command_context import say
from holdfast.cli.remote import page_after
from holdfast.client import Client, endpoints
from holdfast.errors import HoldfastError
from holdfast.operations.records import Operation

_POLL_SECONDS: Final = 0.3
_SLOW_POLL_SECONDS: Final = 1.0
"""A server writes the progress once a second; this keeps a long operation far from the rate limit."""
_QUICK_POLLS: Final = 30
"""Polls after which they become slow, and after which an operation that is still queued needs an explanation."""


@dataclass(frozen=True, slots=True)
class RemoteOperations:
    """The operations of a server, like `OperationService`."""

    client: Client

    def show(self, operation_id: int) -> Operation:
        """Return one operation."""
        return self.client.operation(operation_id)

    def listing(self, *, state: str | None, before: int | None, limit: int) -> list[Operation]:
        """Return operations, the newest first."""
        return page_after(
            self.client, endpoints.operations(state=state), None if before is None else (before,), limit
        ).rows


def follow(client: Client, operation: Operation) -> Iterator[Operation]:
    """Yield an operation at each look at it, the last time when it is done. Raises HoldfastError with its problem if it failed."""
    polls = 0
    try:
        while not operation.is_over:
            time.sleep(_POLL_SECONDS if polls < _QUICK_POLLS else _SLOW_POLL_SECONDS)
            polls += 1
            if polls == _QUICK_POLLS and operation.state == "waiting":
                say("It is still queued; it needs a running `holdfast background` or `holdfast serve`.")
            operation = client.operation(operation)
            if not operation.is_over:
                yield operation
    except KeyboardInterrupt:
        say(
            f"The server goes on with it: operation {operation.id} ({operation.kind}); `holdfast operations show {operation.id}` "
            "with the same --server, and the dashboard, show it."
        )
        raise
    if operation.result is None:
        raise HoldfastError(operation.problem or f"Operation {operation.id} ({operation.kind}) failed on the server.")
    yield operation


def finish(
    client: Client, operation: Operation, watch: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Wait until an operation is done, and return its result. `watch` is called with its progress. Raises HoldfastError if it failed."""
    last = operation
    for last in follow(client, operation):
        if last.progress:
            watch(last.progress)
    return last.result or {}
