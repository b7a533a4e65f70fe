"""The page parser: in this process if the page is safe, else in a child process, and if that fails by a linear scan.

Owns the child processes. The rule: `PageParser.parse` returns for every body, within its deadline once it is its turn; a parser that
hangs, dies or runs out of memory affects no other page. Pages that look hostile have a process of their own, so that large but
harmless ones do not wait for them.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse import fallback_scan, risk_check
from holdfast.parse.framing import frame, read_frame_async
from holdfast.parse.html import parse_page
from holdfast.parse.page_child import from_json

_START_TIMEOUT: Final = 30.0
"""Seconds until a new process must say hello; the machine may be busy."""
_MAX_REPLY: Final = 64 * 1024 * 1024


class _Failed(Exception):
    """The process gave no reply; the message says why."""


class _Died(_Failed):
    """The process ended by itself, or was killed from outside."""


class PageProcess:
    """A child process that parses pages one after the other. It is started on first use, and again after it died."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._lock = asyncio.Lock()
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id, if the process was started."""
        return self._process.pid if self._process else None

    async def parse(self, body: bytes, request: dict[str, Any]) -> ParsedPage | str:
        """Parse `body`, or return the reason why it cannot be parsed.

        Before: nothing. After: the process waits for the next page, or is killed and reaped.
        """
        async with self._lock:
            reused = self._process is not None
            try:
                try:
                    reply = await self._exchange(body, request | {"deadline": self._deadline})
                except _Died:
                    if not reused:
                        raise
                    # It may have died before this page came, which is not the page's fault.
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
                return f"the parser failed ({reply['failed']})"
            return from_json(reply)

    async def aclose(self) -> None:
        """Stop the process. Before: nothing. After: it is gone; another `parse` would start a new one."""
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
            raise _Failed(f"the parser did not finish within {self._deadline:g} s") from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise _Died(f"the parser died{self._describe_exit()}") from error

    async def _start(self) -> None:
        # -P: the current folder is not on the path, so that no file in it replaces a module. A session of its own: Ctrl-C at the terminal
        # is for the worker, which closes the child's standard input when it is done.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast.parse.page_child"),
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


class PageParser:
    """Parses pages, for one event loop."""

    def __init__(self, *, links_per_page: int, deadline: float = 5.0) -> None:
        self._links_per_page = links_per_page
        self.processes = {assess: PageProcess(deadline) for assess in (risk_check.Risk.LARGE, risk_check.Risk.SUSPECT)}

    async def parse(
        self,
        body: bytes,
        *,
        content_type: str | None,
        x_robots_tag: str | None = None,
        before_waiting: Callable[[], None] | None = None,
        anchors: bool = False,
        images: bool = False,
    ) -> ParsedPage:
        """Parse a page. If only the fallback scan could read it, `problem` of the result says why. `anchors`: also the texts of links;
        `images`: also the images as records, of which the fallback scan finds none.

        A safe page is parsed at once; `before_waiting` is called before the call waits for a child process.
        """
        assess = risk_check.assess(body)
        if assess is risk_check.Risk.SAFE:
            return parse_page(
                body,
                content_type=content_type,
                x_robots_tag=x_robots_tag,
                links_per_page=self._links_per_page,
                anchors=anchors,
                images=images,
            )
        if before_waiting is not None:
            before_waiting()
        request = {
            "content_type": content_type,
            "x_robots_tag": x_robots_tag,
            "links_per_page": self._links_per_page,
            "anchors": anchors,
            "images": images,
        }
        reply = await self.processes[assess].parse(body, request)
        if isinstance(reply, ParsedPage):
            return reply
        return fallback_scan.scan(
            body,
            content_type=content_type,
            x_robots_tag=x_robots_tag,
            links_per_page=self._links_per_page,
            problem=reply,
        )

    async def aclose(self) -> None:
        """Before: nothing. After: all child processes are gone."""
        for process in self.processes.values():
            await process.aclose()
