"""One guest from outside: started, asked, ended.

The rule: whatever the guest does, the answer is a value and comes in bounded time; only a guest that cannot be started is an exception.
After a failure the guest is ended by whoever asked it.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from typing import Any, Final

from holdfast.model.parsed import (
    MAX_RESULT_BYTES,
    BadResult,
    Document,
    Extracted,
    FailureKind,
    ParseFailed,
    decoded,
    line,
)
from holdfast.parse import guest
from holdfast.parse.registry import Source
from holdfast.parse.wire import TooLong, framed, next_message

START: Final = 30.0
"""Seconds that a guest may take to say hello, and to take a document; the machine may be busy."""
_END: Final = 10.0
"""Seconds that the guard may take to end all that was left."""
_MAX_MESSAGE: Final = MAX_RESULT_BYTES + 1
_SIGNALLED: Final = 128
_ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}
"""All that a parser sees of ours: no address of a database, no password."""


class Lost(Exception):
    """The guest was gone before it took the document, so the document is not to blame."""


class Guest:
    """A process that serves the parsers of one room, one document after the other."""

    def __init__(self, room: str, process: Process, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.room = room
        self.pid = 0
        """It leads a session and a group of its own; 0 until it has said hello."""
        self.served = 0
        self.versions: dict[str, str] = {}
        """Of the parsers that it has loaded."""
        self.usable = True
        """False: something of a parser still runs there."""
        self._process = process
        self._reader, self._writer = streams

    @classmethod
    async def start(cls, room: str, memory: int) -> "Guest":
        """Before: nothing. After: a guest waits for its first request. Raises OSError if there can be none."""
        ours, theirs = socket.socketpair()
        streams = await asyncio.open_connection(sock=ours)
        try:
            with theirs:
                process = await _started(theirs.fileno(), memory)
        except BaseException:
            streams[1].close()
            raise
        new = cls(room, process, streams)
        try:
            async with asyncio.timeout(START):
                hello = await next_message(new._reader, _MAX_MESSAGE)
                new.pid = int(hello.removeprefix(guest.HELLO))
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            await new.end()
            raise OSError(f"the process for parsers did not start (status {process.returncode})") from error
        except BaseException:  # we were cancelled
            await new.end()
            raise
        return new

    async def load(self, source: Source, seconds: float) -> str | ParseFailed:
        """The version of the parser, once it is loaded; or why it is not."""
        if source.name not in self.versions:
            written = {"name": source.name, "kind": source.kind, "target": source.target, "package": source.package}
            try:
                async with asyncio.timeout(seconds):
                    await self._send({"source": written, "seconds": seconds}, b"")
                    answer = await next_message(self._reader, _MAX_MESSAGE)
            except TimeoutError:
                return _broken(source.name, f"it was not loaded within {seconds:g} s")
            except (EOFError, OSError, ValueError):
                return _broken(source.name, f"{await self._death()} while it was loaded")
            letter, rest = answer[:1], line(answer[1:].decode("utf-8", "replace"))
            if letter != guest.LOADED:
                return _broken(source.name, rest if letter == guest.BROKEN else "it needed too much memory")
            self.versions[source.name] = rest
        return self.versions[source.name]

    async def parse(self, parser: str, document: Document, seconds: float) -> Extracted | ParseFailed:
        """What the parser, which is loaded, finds in `document`; or why nobody knows. Raises Lost."""
        request = {
            "parser": parser,
            "seconds": seconds,
            "url": document.url,
            "content_type": document.content_type,
            "headers": dict(document.headers),
            "fetched_at": document.fetched_at.isoformat() if document.fetched_at else None,
        }
        try:
            async with asyncio.timeout(START):
                await self._send(request, document.body)
                await next_message(self._reader, _MAX_MESSAGE)
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            raise Lost from error
        self.served += 1
        try:
            async with asyncio.timeout(seconds):
                answer = await next_message(self._reader, _MAX_MESSAGE)
        except TimeoutError:
            return ParseFailed(parser, FailureKind.TIMED_OUT, f"the parser did not finish within {seconds:g} s")
        except TooLong as error:
            return ParseFailed(parser, FailureKind.BAD_RESULT, f"the answer is too long: {error}")
        except (EOFError, OSError):
            return ParseFailed(parser, FailureKind.DIED, f"the parser {await self._death()}")
        return self._understood(parser, answer)

    def _understood(self, parser: str, answer: bytes) -> Extracted | ParseFailed:
        letter, rest = answer[:1], answer[1:]
        self.usable = letter == guest.DONE
        if letter in (guest.DONE, guest.LAST):
            try:
                return decoded(rest)
            except BadResult as problem:
                return ParseFailed(parser, FailureKind.BAD_RESULT, str(problem))
        if letter == guest.OUT_OF_MEMORY:
            return ParseFailed(parser, FailureKind.OUT_OF_MEMORY, "the parser needed more memory than it may have")
        kind = FailureKind.RAISED if letter == guest.RAISED else FailureKind.BAD_RESULT
        return ParseFailed(parser, kind, line(rest[:1000].decode("utf-8", "replace")))

    async def end(self) -> None:
        """Before: nothing. After: the guest and all that it started are gone, and waited for."""
        self.usable = False
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # not left half done: the processes would be ours for ever
            await ending
            raise

    @property
    def alive(self) -> bool:
        """Whether it could be asked."""
        return self.usable and self._process.returncode is None and not self._reader.at_eof()

    async def _send(self, request: dict[str, Any], body: bytes) -> None:
        self._writer.write(framed(json.dumps(request).encode(), body))
        await self._writer.drain()

    async def _death(self) -> str:
        await self.end()
        code = self._process.returncode
        if code is None or code < 0:
            return "died"
        if code < _SIGNALLED:
            return f"died (exit status {code})"
        with suppress(ValueError):
            return f"died with signal {code - _SIGNALLED} ({signal.Signals(code - _SIGNALLED).name})"
        return f"died with signal {code - _SIGNALLED}"

    async def _end(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                if self.pid:
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._process.terminate()
        try:
            async with asyncio.timeout(_END):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _started(descriptor: int, memory: int) -> Process:
    # -P: nothing in the folder that we happen to be in can stand in for a module. A session of its own: a Ctrl-C at the terminal is for
    # the worker. -B: nothing is written beside a parser. Standard output is nobody's, so that a parser may print.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-B", "-m", "holdfast.parse.guest", str(descriptor), str(os.getpid()), str(memory)),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        pass_fds=(descriptor,),
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


def _broken(parser: str, reason: str) -> ParseFailed:
    return ParseFailed(parser, FailureKind.BROKEN_PARSER, f"the parser {parser!r} cannot be used: {reason}")
