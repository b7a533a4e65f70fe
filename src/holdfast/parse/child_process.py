"""A child process of the parsers: it serves one request after the other, and is killed when it takes too long.

Owns the parent's side of the protocol with `parse/child_loop`: a request is two messages of `parse/framing` (JSON, body), a reply is one
(JSON). The rule: `ask` returns within the deadline once it is its turn; a process that hangs, dies or runs out of memory costs the
request that it worked on, and no other.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Any, Final

from holdfast.parse.framing import frame, read_frame_async

_START_TIMEOUT: Final = 30.0
"""Seconds until a new process must say hello; the machine may be busy."""
_MAX_REPLY: Final = 64 * 1024 * 1024


class _Failed(Exception):
    """The process gave no reply; the message says why."""


class _Died(_Failed):
    """The process ended by itself, or was killed from outside."""


class ChildProcess:
    """A child process that runs a module. It is started on first use, and again after it died."""

    def __init__(self, module: str, deadline: float, noun: str = "parser") -> None:
        """`noun` names the process in the reasons of failures."""
        self._module = module
        self._deadline = deadline
        self._noun = noun
        self._lock = asyncio.Lock()
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id, if the process was started."""
        return self._process.pid if self._process else None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self._lock.locked()

    async def ask(self, body: bytes, request: dict[str, Any]) -> dict[str, Any] | str:
        """Return the reply to a request about `body`, or the reason why there is none.

        Before: nothing. After: the process waits for the next request, or is killed and reaped.
        """
        async with self._lock:
            reused = self._process is not None
            try:
                try:
                    reply = await self._exchange(body, request | {"deadline": self._deadline})
                except _Died:
                    if not reused:
                        raise
                    # It may have died before this request came, which is not the request's fault.
                    await self._stop()
                    reply = await self._exchange(body, request | {"deadline": self._deadline})
            except _Failed as failed:
                await self._stop()
                return str(failed)
            except BaseException:  # cancelled: a reply that is still on its way must not be read as the next one's
                await self._stop()
                raise
            if "failed" in reply:
                await self._stop()
                return f"the {self._noun} failed ({reply['failed']})"
            return reply

    async def aclose(self) -> None:
        """Stop the process. Before: nothing. After: it is gone; another `ask` would start a new one."""
        async with self._lock:
            await self._stop()

    async def _exchange(self, body: bytes, request: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                if self._process is None or self._process.returncode is not None:
                    await self._stop()
                    await self._start()
            async with asyncio.timeout(self._deadline):
                return await self._request(body, request)
        except TimeoutError:
            raise _Failed(f"the {self._noun} did not finish within {self._deadline:g} s") from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise _Died(f"the {self._noun} died{self._describe_exit()}") from error

    async def _start(self) -> None:
        # -P: the current folder is not on the path, so that no file in it replaces a module. A session of its own: Ctrl-C at the terminal
        # is for the worker, which closes the child's standard input when it is done.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", self._module),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )
        await self._read_reply(self._process)

    async def _request(self, body: bytes, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None, "started before"  # noqa: S101
        assert process.stdin is not None, "a pipe"  # noqa: S101
        head = json.dumps(request).encode()
        process.stdin.write(frame(head, body))
        await process.stdin.drain()
        return await self._read_reply(process)

    async def _read_reply(self, process: Process) -> dict[str, Any]:
        assert process.stdout is not None, "a pipe"  # noqa: S101
        reply: dict[str, Any] = json.loads(await read_frame_async(process.stdout, _MAX_REPLY))
        return reply

    def _describe_exit(self) -> str:
        code = self._process.returncode if self._process else None
        return "" if code is None else f" (exit status {code})" if code >= 0 else f" (signal {-code})"

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        # Not interrupted by a cancellation, which would leave a zombie.
        await asyncio.shield(asyncio.ensure_future(_reap(process)))


async def _reap(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
    await process.wait()
