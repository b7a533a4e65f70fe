"""The child process that runs parser plug-ins: `python -m holdfast.parse.plugin_child DESCRIPTOR PARENT MEMORY`.

Owns the child's side of the protocol with `parse/plugin_process`, over a socket: a request is two messages of `parse/framing` (JSON,
body), a reply is one message that begins with a letter for its kind. There are two processes. The reaper never runs foreign code: it
waits for the child that does, and when that ends, for any reason, kills all its descendants. The rule: the child may die at any moment,
and nothing that a parser started outlives it; when the parent process dies, both die.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import IO, Any, Final

from holdfast.model.parse_result import BadResult, Document, encode, single_line, validate_result
from holdfast.parse.framing import frame, read_frame
from holdfast.parse.plugin_loader import InvalidParser, LoadedParser, load
from holdfast.parse.plugin_registry import ParserSource, SourceKind
from holdfast.parse.priority import lower_priority, lower_session_priority

HELLO: Final = b"h"
"""The kinds of messages to the parent. HELLO carries the process id, LOADED the version of the parser, LOAD_FAILED the reason. A document
is ACCEPTED, then DONE with its result (DONE_NOT_REUSABLE if the parser left a process or thread running), or it failed: OUT_OF_MEMORY,
RAISED, BAD_RESULT."""
LOADED: Final = b"l"
LOAD_FAILED: Final = b"b"
ACCEPTED: Final = b"t"
DONE: Final = b"d"
DONE_NOT_REUSABLE: Final = b"D"
OUT_OF_MEMORY: Final = b"m"
RAISED: Final = b"r"
BAD_RESULT: Final = b"x"

NICE: Final = 10
"""The niceness of parser processes, so that fetching goes first."""
GRACE_SECONDS: Final = 2
"""Seconds after the timeout in which the parent kills the child, before the child's own timer does."""
_SIGNAL_EXIT_BASE: Final = 128
_MAX_REASON: Final = 500
_MAX_DESCRIPTORS: Final = 1 << 20
_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_OUT_OF_MEMORY_FRAME: Final = frame(OUT_OF_MEMORY)


def main() -> None:
    """Fork the child and reap it. Before: nothing. After: the socket was closed, or the child died, and no process that a parser started
    is left."""
    descriptor, parent, memory = (int(argument) for argument in sys.argv[1:])
    _close_inherited_descriptors(descriptor)
    lower_priority(NICE)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        os.setsid()
        lower_session_priority()
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.set_inheritable(descriptor, False)
        _set_limits(memory)
        with open(descriptor, "rb", closefd=False) as requests, open(descriptor, "wb") as answers:  # noqa: PTH123
            _serve(requests, answers)
        os._exit(0)  # without the exit handlers that a parser may have registered
    os.close(descriptor)
    os._exit(_reap(child, parent))


def _reap(child: int, parent: int) -> int:
    """Wait for the child. Before: SIGTERM is blocked. After: the child and its descendants are gone. Returns its exit status as a shell
    would: 128 plus the number of the signal."""

    def end(*_: object) -> None:
        for kill in (os.killpg, os.kill):  # the second for a child that has no process group of its own yet
            with suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    if os.getppid() != parent:  # it died before the death signal was set
        end()
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    _kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    return min(code, _SIGNAL_EXIT_BASE - 1) if code >= 0 else _SIGNAL_EXIT_BASE - code


def _kill_descendants() -> None:
    """Before: nothing. After: this process has no children. Orphaned descendants are its children too, on systems with a subreaper."""
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                import psutil

                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                os.waitpid(-1, 0)


def _close_inherited_descriptors(descriptor: int) -> None:
    """Before: nothing. After: descriptors that were inherited by mistake are closed; not every event loop does that."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, limit if 0 < limit < _MAX_DESCRIPTORS else _MAX_DESCRIPTORS)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _set_limits(memory: int) -> None:
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # not every system supports them
            resource.setrlimit(kind, (limit, limit))


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    parsers: dict[str, LoadedParser] = {}

    def send(message: bytes) -> None:
        answers.write(message)
        answers.flush()

    send(frame(HELLO + str(os.getpid()).encode()))
    while (head := read_frame(requests)) is not None and (body := read_frame(requests)) is not None:
        request = json.loads(head)
        # The default action of SIGALRM ends the process, even inside the parser, and even if the parent is gone.
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE_SECONDS)
        if "source" in request:
            send(_load_parser(request["source"], parsers))
        else:
            send(frame(ACCEPTED))
            send(_parse_document(parsers[request["parser"]], request, body))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _load_parser(fields: dict[str, str], parsers: dict[str, LoadedParser]) -> bytes:
    source = ParserSource(**{**fields, "kind": SourceKind(fields["kind"])})  # type: ignore[arg-type]

    def load_it() -> bytes:
        try:
            parsers[source.name] = load(source)
        except InvalidParser as problem:
            return frame(LOAD_FAILED + str(problem).encode("utf-8", "replace"))
        return frame(LOADED + parsers[source.name].version.encode())

    return _reply_or_failure(load_it, LOAD_FAILED)


def _parse_document(parser: LoadedParser, request: dict[str, Any], body: bytes) -> bytes:
    fetched_at = request["fetched_at"]
    document = Document(
        url=request["url"],
        body=body,
        content_type=request["content_type"],
        headers=request["headers"],
        fetched_at=datetime.fromisoformat(fetched_at) if fetched_at else None,
    )

    def parse_it() -> bytes:
        try:
            message = encode(validate_result(parser.parse(document)))
        except BadResult as problem:
            return frame(BAD_RESULT + str(problem).encode("utf-8", "replace"))
        return frame((DONE_NOT_REUSABLE if _has_leftovers() else DONE) + message)

    return _reply_or_failure(parse_it, RAISED)


def _reply_or_failure(work: Callable[[], bytes], failure: bytes) -> bytes:
    """Return the reply of `work`, or a reply of the kind `failure` that describes the exception."""
    try:
        return work()
    except MemoryError:
        return _OUT_OF_MEMORY_FRAME  # encoded in advance, as there is no memory now
    except BaseException as error:  # noqa: BLE001 — SystemExit too: the parser fails, not this process
        return frame(failure + _describe_exception(error).encode("utf-8", "replace"))


def _describe_exception(error: BaseException) -> str:
    """Describe an exception in one line: type, message, and file and line in the parser."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 — the parser's exception class may fail to format itself
        message = ""
    places = (
        [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
    )  # whose message names the place
    place = f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else ""  # noqa: PTH119
    return single_line(f"{type(error).__name__}: {message}"[:_MAX_REASON]).rstrip(": ") + place


def _has_leftovers() -> bool:
    """Reap children that have ended, and return whether processes or threads of the parser still run."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return threading.active_count() > 1


if __name__ == "__main__":
    main()
