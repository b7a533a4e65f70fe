"""The parent's side of one parser process: start it, send requests, stop it.

The rule: for any behaviour of the child the result is a value, within bounded time; only a child that cannot be started raises. After a
failure the caller stops the process.
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

from holdfast.model.parse_result import (
    MAX_RESULT_BYTES,
    BadResult,
    Document,
    Extracted,
    FailureKind,
    ParseFailed,
    decode,
    single_line,
)
from holdfast.parse import plugin_child
from holdfast.parse.framing import FrameTooLong, frame, read_frame_async
from holdfast.parse.plugin_registry import ParserSource

START_TIMEOUT: Final = 30.0
"""Seconds until a new process must say hello, and until it must accept a document; the machine may be busy."""
_STOP_TIMEOUT: Final = 10.0
"""Seconds that the reaper process may take to kill all descendants of the child."""
_MAX_FRAME: Final = MAX_RESULT_BYTES + 1
_SIGNAL_EXIT_BASE: Final = 128
_ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}
"""The whole environment of a parser: no database address, no password."""


class ProcessLost(Exception):
    """The process died before it accepted the document, so the document is not the cause."""


class PluginProcess:
    """A child process that runs the parsers of one isolation group, one document after the other."""

    def __init__(
        self, isolation_group: str, process: Process, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        self.isolation_group = isolation_group
        self.pid = 0
        """It leads a session and a process group of its own; 0 until it has said hello."""
        self.documents_parsed = 0
        self.versions: dict[str, str] = {}
        """Versions of the loaded parsers by name."""
        self.reusable = True
        """False: a process or thread of a parser still runs in it, or a request failed."""
        self._process = process
        self._reader, self._writer = streams

    @classmethod
    async def start(cls, isolation_group: str, memory_limit: int) -> "PluginProcess":
        """Start a child. Before: nothing. After: it waits for its first request. Raises OSError if it cannot be started."""
        ours, theirs = socket.socketpair()
        streams = await asyncio.open_connection(sock=ours)
        try:
            with theirs:
                process = await _spawn(theirs.fileno(), memory_limit)
        except BaseException:
            streams[1].close()
            raise
        started = cls(isolation_group, process, streams)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                hello = await read_frame_async(started._reader, _MAX_FRAME)
                started.pid = int(hello.removeprefix(plugin_child.HELLO))
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            await started.stop()
            raise OSError(f"the process for parsers did not start (status {process.returncode})") from error
        except BaseException:  # cancelled
            await started.stop()
            raise
        return started

    async def load(self, source: ParserSource, seconds: float) -> str | ParseFailed:
        """Load a parser in the child within `seconds`, and return its version or the failure."""
        if source.name not in self.versions:
            fields = {"name": source.name, "kind": source.kind, "target": source.target, "package": source.package}
            try:
                async with asyncio.timeout(seconds):
                    await self._send({"source": fields, "seconds": seconds}, b"")
                    reply = await read_frame_async(self._reader, _MAX_FRAME)
            except TimeoutError:
                return _load_failure(source.name, f"it was not loaded within {seconds:g} s")
            except (EOFError, OSError, ValueError):
                return _load_failure(source.name, f"{await self._describe_exit()} while it was loaded")
            kind_byte, payload = reply[:1], single_line(reply[1:].decode("utf-8", "replace"))
            if kind_byte != plugin_child.LOADED:
                return _load_failure(
                    source.name, payload if kind_byte == plugin_child.LOAD_FAILED else "it needed too much memory"
                )
            self.versions[source.name] = payload
        return self.versions[source.name]

    async def parse(self, parser: str, document: Document, seconds: float) -> Extracted | ParseFailed:
        """Run a loaded parser on `document` within `seconds`, and return its result or the failure. Raises ProcessLost."""
        request = {
            "parser": parser,
            "seconds": seconds,
            "url": document.url,
            "content_type": document.content_type,
            "headers": dict(document.headers),
            "fetched_at": document.fetched_at.isoformat() if document.fetched_at else None,
        }
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self._send(request, document.body)
                await read_frame_async(self._reader, _MAX_FRAME)
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            raise ProcessLost from error
        self.documents_parsed += 1
        try:
            async with asyncio.timeout(seconds):
                reply = await read_frame_async(self._reader, _MAX_FRAME)
        except TimeoutError:
            return ParseFailed(parser, FailureKind.TIMED_OUT, f"the parser did not finish within {seconds:g} s")
        except FrameTooLong as error:
            return ParseFailed(parser, FailureKind.BAD_RESULT, f"the answer is too long: {error}")
        except (EOFError, OSError):
            return ParseFailed(parser, FailureKind.DIED, f"the parser {await self._describe_exit()}")
        return self._decode_reply(parser, reply)

    def _decode_reply(self, parser: str, reply: bytes) -> Extracted | ParseFailed:
        kind_byte, payload = reply[:1], reply[1:]
        self.reusable = kind_byte == plugin_child.DONE
        if kind_byte in (plugin_child.DONE, plugin_child.DONE_NOT_REUSABLE):
            try:
                return decode(payload)
            except BadResult as problem:
                return ParseFailed(parser, FailureKind.BAD_RESULT, str(problem))
        if kind_byte == plugin_child.OUT_OF_MEMORY:
            return ParseFailed(parser, FailureKind.OUT_OF_MEMORY, "the parser needed more memory than it may have")
        kind = FailureKind.RAISED if kind_byte == plugin_child.RAISED else FailureKind.BAD_RESULT
        return ParseFailed(parser, kind, single_line(payload[:1000].decode("utf-8", "replace")))

    async def stop(self) -> None:
        """Kill the child. Before: nothing. After: the child and all its descendants are gone and reaped."""
        self.reusable = False
        stopping = asyncio.ensure_future(self._stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:  # finish first, else the processes would stay as zombies
            await stopping
            raise

    @property
    def alive(self) -> bool:
        """Whether the process runs and can take a request."""
        return self.reusable and self._process.returncode is None and not self._reader.at_eof()

    async def _send(self, request: dict[str, Any], body: bytes) -> None:
        self._writer.write(frame(json.dumps(request).encode(), body))
        await self._writer.drain()

    async def _describe_exit(self) -> str:
        await self.stop()
        code = self._process.returncode
        if code is None or code < 0:
            return "died"
        if code < _SIGNAL_EXIT_BASE:
            return f"died (exit status {code})"
        with suppress(ValueError):
            return f"died with signal {code - _SIGNAL_EXIT_BASE} ({signal.Signals(code - _SIGNAL_EXIT_BASE).name})"
        return f"died with signal {code - _SIGNAL_EXIT_BASE}"

    async def _stop(self) -> None:
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
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _spawn(descriptor: int, memory_limit: int) -> Process:
    # -P: the current folder is not on the path, so that no file in it replaces a module. A session of its own: Ctrl-C at the terminal is
    # for the worker. -B: no bytecode is written beside a parser. Standard output is discarded, so that a parser may print.
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-P",
            "-B",
            "-m",
            "holdfast.parse.plugin_child",
            str(descriptor),
            str(os.getpid()),
            str(memory_limit),
        ),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        pass_fds=(descriptor,),
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


def _load_failure(parser: str, reason: str) -> ParseFailed:
    return ParseFailed(parser, FailureKind.BROKEN_PARSER, f"the parser {parser!r} cannot be used: {reason}")
