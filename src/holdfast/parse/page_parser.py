"""The page parser: in this process if the page is safe, else in a child process, and if that fails by a linear scan.

Owns the child processes. The rule: `PageParser.parse` returns for every body, within its deadline once it is its turn; a parser that
hangs, dies or runs out of memory affects no other page. Pages that look hostile have a process of their own, so that large but
harmless ones do not wait for them.
"""

from collections.abc import Callable
from typing import Any

from holdfast.model.fetch_types import ParsedPage
from holdfast.parse import fallback_scan, risk_check
from holdfast.parse.child_process import ChildProcess
from holdfast.parse.html import parse_page
from holdfast.parse.page_child import from_json


class PageProcess(ChildProcess):
    """A child process that parses pages one after the other."""

    def __init__(self, deadline: float) -> None:
        super().__init__("holdfast.parse.page_child", deadline)

    async def parse(self, body: bytes, request: dict[str, Any]) -> ParsedPage | str:
        """Parse `body`, or return the reason why it cannot be parsed."""
        reply = await self.ask(body, request)
        return reply if isinstance(reply, str) else from_json(reply)


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
