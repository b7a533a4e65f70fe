"""Parsing that nothing on a page can stop: here if it is safe, else in a process of its own, else by a linear scan.

Owns the lives of those processes. The rule: `PageParser.parse` answers for every body, within its deadline once it is its turn, and a
parser that hangs, dies or swells takes nothing with it. Pages that look like bombs have a process of their own, so that the large but
honest ones do not wait behind them.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.model.page import Parsed
from holdfast.parse import linear, prescan
from holdfast.parse.child import from_json
from holdfast.parse.page import parse_page
from holdfast.parse.wire import framed, next_message

_START: Final = 30.0
"""Seconds that a new process may take to say hello; the machine may be busy."""
_MAX_ANSWER: Final = 64 * 1024 * 1024


class _Failed(Exception):
    """The process gave no answer; the text says why."""


class _Died(_Failed):
    """The process ended by itself, or was killed by somebody else."""


class Isolated:
    """A process that parses pages one after the other. It is started when it is first needed, and again after it died."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._turn = asyncio.Lock()
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return self._process.pid if self._process else None

    async def ask(self, body: bytes, request: dict[str, Any]) -> Parsed | str:
        """What `body` means, or why nobody knows.

        Before: nothing. After: the process waits for the next page, or is gone: killed, and waited for.
        """
        async with self._turn:
            used = self._process is not None
            try:
                try:
                    answer = await self._exchange(body, request | {"deadline": self._deadline})
                except _Died:
                    if not used:
                        raise
                    # It may have been dead before this page came; that is not the page's fault.
                    await self._end()
                    answer = await self._exchange(body, request | {"deadline": self._deadline})
            except _Failed as failed:
                await self._end()
                return str(failed)
            except BaseException:  # we were cancelled: the answer that is on its way belongs to nobody
                await self._end()
                raise
            if "failed" in answer:
                await self._end()
                return f"the parser failed ({answer['failed']})"
            return from_json(answer)

    async def aclose(self) -> None:
        """Before: nothing. After: the process is gone; another `ask` would start a new one."""
        async with self._turn:
            await self._end()

    async def _exchange(self, body: bytes, request: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_START):
                if self._process is None or self._process.returncode is not None:
                    await self._end()
                    await self._start()
            async with asyncio.timeout(self._deadline):
                return await self._talk(body, request)
        except TimeoutError:
            raise _Failed(f"the parser did not finish within {self._deadline:g} s") from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise _Died(f"the parser died{self._status()}") from error

    async def _start(self) -> None:
        # -P: nothing in the folder that we happen to be in can stand in for a module. A session of its own: a Ctrl-C at the terminal is
        # for the worker, which closes our standard input when it is done.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast.parse.child"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )
        await self._receive(self._process)

    async def _talk(self, body: bytes, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None, "started before"  # noqa: S101
        assert process.stdin is not None, "a pipe"  # noqa: S101
        head = json.dumps(request).encode()
        process.stdin.write(framed(head, body))
        await process.stdin.drain()
        return await self._receive(process)

    async def _receive(self, process: Process) -> dict[str, Any]:
        assert process.stdout is not None, "a pipe"  # noqa: S101
        answer: dict[str, Any] = json.loads(await next_message(process.stdout, _MAX_ANSWER))
        return answer

    def _status(self) -> str:
        code = self._process.returncode if self._process else None
        return "" if code is None else f" (exit status {code})" if code >= 0 else f" (signal {-code})"

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        # Not left half done by a cancellation: the zombie would be ours for ever.
        await asyncio.shield(asyncio.ensure_future(_bury(process)))


async def _bury(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
    await process.wait()


class PageParser:
    """Pages to what they mean, for one event loop."""

    def __init__(self, *, links_per_page: int, deadline: float = 5.0) -> None:
        self._links_per_page = links_per_page
        self.lanes = {place: Isolated(deadline) for place in (prescan.Place.APART, prescan.Place.SUSPECT)}

    async def parse(
        self,
        body: bytes,
        *,
        content_type: str | None,
        x_robots_tag: str | None = None,
        aside: Callable[[], None] | None = None,
    ) -> Parsed:
        """What `body` means; `problem` says why, where less than all could be read.

        An ordinary page does not wait for anything; `aside` is called before one has to wait for a process.
        """
        place = prescan.place(body)
        if place is prescan.Place.HERE:
            return parse_page(
                body, content_type=content_type, x_robots_tag=x_robots_tag, links_per_page=self._links_per_page
            )
        if aside is not None:
            aside()
        request = {
            "content_type": content_type,
            "x_robots_tag": x_robots_tag,
            "links_per_page": self._links_per_page,
        }
        answer = await self.lanes[place].ask(body, request)
        if isinstance(answer, Parsed):
            return answer
        return linear.scan(
            body,
            content_type=content_type,
            x_robots_tag=x_robots_tag,
            links_per_page=self._links_per_page,
            problem=answer,
        )

    async def aclose(self) -> None:
        """Before: nothing. After: no process of ours is left."""
        for lane in self.lanes.values():
            await lane.aclose()
