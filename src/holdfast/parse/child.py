"""The process in which doubtful pages are parsed: `python -m holdfast.parse.child`.

Owns its side of the talk with `parse/isolate`: a request is two messages of `parse/wire` (JSON, body), an answer is one (JSON). The
rule: it may die at any moment, and does so by itself when a page takes too long, needs too much memory, or its parent is gone.
"""

import json
import resource
import signal
import sys
from contextlib import suppress
from typing import IO, Any, Final

from holdfast.model.page import Parsed
from holdfast.parse.page import parse_page
from holdfast.parse.wire import framed, receive

MEMORY: Final = 1 << 30
_GRACE: Final = 2
"""Seconds that the parent has to be first."""


def main() -> None:
    """Before: nothing. After: standard input has ended, and with it this process."""
    with suppress(ValueError, OSError):  # not every system knows this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, {})
    while (head := receive(requests)) is not None and (body := receive(requests)) is not None:
        request = json.loads(head)
        # The default action ends the process, in the middle of the parser if need be: also when nobody is left to kill it.
        signal.setitimer(signal.ITIMER_REAL, request.pop("deadline") + _GRACE)
        try:
            answer = as_json(parse_page(body, **request))
        except Exception as error:  # noqa: BLE001 — whatever it is, the page is to blame, and the parent is told
            answer = {"failed": type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)


def as_json(parsed: Parsed) -> dict[str, Any]:
    """For the pipe."""
    fields = {name: getattr(parsed, name) for name in Parsed.__slots__}
    return fields | {"content_hash": parsed.content_hash.hex()}


def from_json(answer: dict[str, Any]) -> Parsed:
    """From the pipe."""
    return Parsed(**answer | {"content_hash": bytes.fromhex(answer["content_hash"])})


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    stream.write(framed(json.dumps(message, ensure_ascii=False).encode()))
    stream.flush()


if __name__ == "__main__":
    main()
