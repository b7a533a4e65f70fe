"""The loop of a child process of the parsers.

Owns the child's side of the protocol with `parse/child_process`: a request is two messages of `parse/framing` (JSON, body), a reply is one
(JSON). The rule: the process may die at any moment, and ends by itself when a request takes too long, needs too much memory, or the
parent is gone.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

from holdfast.parse.framing import frame, read_frame

MEMORY_LIMIT: Final = 1 << 30
_GRACE_SECONDS: Final = 2
"""Seconds after the deadline in which the parent kills the child, before the child's own timer does."""


def serve(handle: Callable[[bytes, dict[str, Any]], dict[str, Any]], *, memory: int = MEMORY_LIMIT) -> None:
    """Serve requests: `handle` gets the body and the request. `memory`: limit of the address space in bytes.

    Before: nothing. After: standard input has ended, and with it this process.
    """
    with suppress(ValueError, OSError):  # not every system supports this limit
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, {})
    while (head := read_frame(requests)) is not None and (body := read_frame(requests)) is not None:
        request = json.loads(head)
        # The default action of SIGALRM ends the process, even inside a C library, and even if the parent is gone.
        signal.setitimer(signal.ITIMER_REAL, request.pop("deadline") + _GRACE_SECONDS)
        try:
            reply = handle(body, request)
        except Exception as error:  # noqa: BLE001 — any exception is the request's failure, and goes to the parent
            reply = {"failed": type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, reply)


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    stream.write(frame(json.dumps(message, ensure_ascii=False).encode()))
    stream.flush()
