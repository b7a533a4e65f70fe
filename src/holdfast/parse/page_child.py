"""The child process that parses pages which may be too expensive for the worker: `python -m holdfast.parse.page_child`.

Owns the child's side of the protocol with `parse/page_parser`: a request is two messages of `parse/framing` (JSON, body), a reply is one
(JSON). The rule: it may die at any moment, and ends by itself when a page takes too long, needs too much memory, or the parent is gone.
"""

import json
import resource
import signal
import sys
from contextlib import suppress
from typing import IO, Any, Final

from holdfast.model.fetch_types import Anchor, FoundImage, ParsedPage
from holdfast.parse.framing import frame, read_frame
from holdfast.parse.html import parse_page

MEMORY_LIMIT: Final = 1 << 30
_GRACE_SECONDS: Final = 2
"""Seconds after the deadline in which the parent kills the child, before the child's own timer does."""


def main() -> None:
    """Serve requests. Before: nothing. After: standard input has ended, and with it this process."""
    with suppress(ValueError, OSError):  # not every system supports this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, {})
    while (head := read_frame(requests)) is not None and (body := read_frame(requests)) is not None:
        request = json.loads(head)
        # The default action of SIGALRM ends the process, even inside the parser, and even if the parent is gone.
        signal.setitimer(signal.ITIMER_REAL, request.pop("deadline") + _GRACE_SECONDS)
        try:
            reply = as_json(parse_page(body, **request))
        except Exception as error:  # noqa: BLE001 — any exception is the page's failure, and goes to the parent
            reply = {"failed": type(error).__name__}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, reply)


def as_json(parsed: ParsedPage) -> dict[str, Any]:
    """Encode a parsed page for the pipe."""
    fields = {name: getattr(parsed, name) for name in ParsedPage.__slots__}
    return fields | {"content_hash": parsed.content_hash.hex()}


def from_json(reply: dict[str, Any]) -> ParsedPage:
    """Decode a parsed page from the pipe."""
    anchors = [Anchor(*one) for one in reply["anchors"]]
    images = [FoundImage(*one) for one in reply["found_images"]]
    content_hash = bytes.fromhex(reply["content_hash"])
    return ParsedPage(**reply | {"content_hash": content_hash, "anchors": anchors, "found_images": images})


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    stream.write(frame(json.dumps(message, ensure_ascii=False).encode()))
    stream.flush()


if __name__ == "__main__":
    main()
