"""The process in which somebody else's parser runs: `python -m holdfast.parse.guest DESCRIPTOR PARENT MEMORY`.

Owns its side of the talk with `parse/hosting`, over a socket of its own: a request is two messages of `parse/wire` (JSON, body), and is
answered by messages of a letter and the rest. It is two processes. The guard never runs foreign code; it waits for the guest proper, and
when that ends, for whatever reason, ends all that it left. The rule: the guest may die at any moment, and nothing that a parser started
outlives it; when our parent dies, both die.
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

from holdfast.model.parsed import BadResult, Document, checked, encoded, line
from holdfast.parse.loading import Loaded, NotAParser, load
from holdfast.parse.registry import Kind, Source
from holdfast.parse.wire import framed, receive

HELLO: Final = b"h"
"""With the process id. The other answers: a parser is loaded (its version), is broken (why), a document is taken, is done (its result; the
guest may be asked again, or must not because something was left running), or failed: out of memory, raised, bad result."""
LOADED: Final = b"l"
BROKEN: Final = b"b"
TAKEN: Final = b"t"
DONE: Final = b"d"
LAST: Final = b"D"
OUT_OF_MEMORY: Final = b"m"
RAISED: Final = b"r"
BAD_RESULT: Final = b"x"

NICE: Final = 10
"""By how much a guest stands back behind those who fetch."""
GRACE: Final = 2
"""Seconds that the parent has to be first."""
_SIGNALLED: Final = 128
_MAX_REASON: Final = 500
_MOST_DESCRIPTORS: Final = 1 << 20
_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_NO_MEMORY: Final = framed(OUT_OF_MEMORY)


def main() -> None:
    """Before: nothing. After: the socket was closed, or the guest died, and no process that a parser started is left."""
    descriptor, parent, memory = (int(argument) for argument in sys.argv[1:])
    _close_others(descriptor)
    os.nice(NICE)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    guest = os.fork()
    if guest == 0:
        os.setsid()
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.set_inheritable(descriptor, False)
        _limit(memory)
        with open(descriptor, "rb", closefd=False) as requests, open(descriptor, "wb") as answers:  # noqa: PTH123
            _serve(requests, answers)
        os._exit(0)  # whatever a parser registered for the end is not ours to wait for
    os.close(descriptor)
    os._exit(_watch(guest, parent))


def _watch(guest: int, parent: int) -> int:
    """Before: SIGTERM is blocked. After: the guest and all below it are gone. Returns how it ended, as shells say it."""

    def end(*_: object) -> None:
        for kill in (os.killpg, os.kill):  # before it has a group of its own, too
            with suppress(ProcessLookupError, PermissionError):
                kill(guest, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    if os.getppid() != parent:  # it died before we asked to be told
        end()
    _, status = os.waitpid(guest, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(guest, signal.SIGKILL)
    _end_children()
    code = os.waitstatus_to_exitcode(status)
    return min(code, _SIGNALLED - 1) if code >= 0 else _SIGNALLED - code


def _end_children() -> None:
    """Before: nothing. After: this process has no children. Orphans below are children too, where the system knows how."""
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                import psutil

                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                os.waitpid(-1, 0)


def _close_others(descriptor: int) -> None:
    """Before: nothing. After: what was left open for us by mistake is closed; not every event loop does that itself."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, most if 0 < most < _MOST_DESCRIPTORS else _MOST_DESCRIPTORS)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _limit(memory: int) -> None:
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # not every system knows them
            resource.setrlimit(kind, (limit, limit))


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    parsers: dict[str, Loaded] = {}

    def send(message: bytes) -> None:
        answers.write(message)
        answers.flush()

    send(framed(HELLO + str(os.getpid()).encode()))
    while (head := receive(requests)) is not None and (body := receive(requests)) is not None:
        request = json.loads(head)
        # The default action ends the process, in the middle of the parser if need be: also when nobody is left to kill it.
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
        if "source" in request:
            send(_loaded(request["source"], parsers))
        else:
            send(framed(TAKEN))
            send(_parsed(parsers[request["parser"]], request, body))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _loaded(written: dict[str, str], parsers: dict[str, Loaded]) -> bytes:
    source = Source(**{**written, "kind": Kind(written["kind"])})  # type: ignore[arg-type]

    def loading() -> bytes:
        try:
            parsers[source.name] = load(source)
        except NotAParser as problem:
            return framed(BROKEN + str(problem).encode("utf-8", "replace"))
        return framed(LOADED + parsers[source.name].version.encode())

    return _guarded(loading, BROKEN)


def _parsed(parser: Loaded, request: dict[str, Any], body: bytes) -> bytes:
    when = request["fetched_at"]
    document = Document(
        url=request["url"],
        body=body,
        content_type=request["content_type"],
        headers=request["headers"],
        fetched_at=datetime.fromisoformat(when) if when else None,
    )

    def parsing() -> bytes:
        try:
            message = encoded(checked(parser.parse(document)))
        except BadResult as problem:
            return framed(BAD_RESULT + str(problem).encode("utf-8", "replace"))
        return framed((LAST if _left_something() else DONE) + message)

    return _guarded(parsing, RAISED)


def _guarded(work: Callable[[], bytes], otherwise: bytes) -> bytes:
    """What `work` says, or `otherwise` with what it raised."""
    try:
        return work()
    except MemoryError:
        return _NO_MEMORY  # made before there was no memory left
    except BaseException as error:  # noqa: BLE001 — SystemExit too: it is a parser that fails, not we
        return framed(otherwise + _told(error).encode("utf-8", "replace"))


def _told(error: BaseException) -> str:
    """An exception in a line: what, and where in the parser."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 — it is a class of the parser's
        message = ""
    places = (
        [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
    )  # its message has the place
    place = f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else ""  # noqa: PTH119
    return line(f"{type(error).__name__}: {message}"[:_MAX_REASON]).rstrip(": ") + place


def _left_something() -> bool:
    """Whether processes or threads of the parser still run. Those that have ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return threading.active_count() > 1


if __name__ == "__main__":
    main()
