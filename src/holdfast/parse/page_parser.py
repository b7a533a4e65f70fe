"""The page parser: in this process if the page is safe, else in a child process, and if that fails by a linear scan.

Owns the child processes. The rule: `PageParser.parse` returns for every body, within its deadline once it is its turn; a parser that
hangs, dies or runs out of memory affects no other page. Pages that look hostile have a process of their own, so that large but
harmless ones do not wait for them; PDFs have another one.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Final

from holdfast.model.content_type import BodyKind, ContentGroup, group_of, kind_of, media_type
from holdfast.model.fetch_types import ParsedPage
from holdfast.parse import charset, fallback_scan, risk_check
from holdfast.parse.child_process import ChildProcess
from holdfast.parse.html import parse_page
from holdfast.parse.html_tokens import parse_x_robots_tag
from holdfast.parse.page_child import from_json

_HASH_INLINE: Final = 1 << 20
"""Bytes up to which a body is hashed on the event loop."""
_PDF_SHARE: Final = 0.6
"""Share of the deadline after which no further page of a PDF is read."""


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

    def __init__(self, *, links_per_page: int, deadline: float = 5.0, pdf_deadline: float = 20.0) -> None:
        self._links_per_page = links_per_page
        self._pdf_seconds = pdf_deadline * _PDF_SHARE
        self.pdf_process = ChildProcess("holdfast.parse.pdf_child", pdf_deadline, "PDF reader")
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
        links: bool = False,
        pdf_text: bool = True,
    ) -> ParsedPage:
        """Parse a page. If only the fallback scan could read it, `problem` of the result says why. `anchors`: also the texts of links;
        `images`: also the images as records, and `links`: also the links, of which the fallback scan finds none; `pdf_text`: also the text
        of a PDF, which takes most of the time.

        A safe page is parsed at once; `before_waiting` is called before the call waits for a child process. What is neither a PDF nor
        text has no text and no links.
        """
        kind = kind_of(body, content_type)
        if kind in (BodyKind.PDF, BodyKind.BINARY):
            parsed = ParsedPage(content_hash=await _hash(body), charset="")
            parsed.noindex, parsed.nofollow = parse_x_robots_tag(x_robots_tag)
            if kind is BodyKind.BINARY and group_of(media_type(content_type)) is ContentGroup.PDF:
                parsed.problem = "its type says PDF, and its content is none"
            elif kind is BodyKind.PDF:
                if before_waiting is not None:
                    before_waiting()
                await self._read_pdf(body, parsed, text=pdf_text)
            return parsed
        assess = risk_check.assess(body)
        if assess is risk_check.Risk.SAFE:
            return parse_page(
                body,
                content_type=content_type,
                x_robots_tag=x_robots_tag,
                links_per_page=self._links_per_page,
                anchors=anchors,
                images=images,
                links=links,
            )
        if before_waiting is not None:
            before_waiting()
        request = {
            "content_type": content_type,
            "x_robots_tag": x_robots_tag,
            "links_per_page": self._links_per_page,
            "anchors": anchors,
            "images": images,
            "links": links,
        }
        reply = await self.processes[assess].parse(body, request)
        if isinstance(reply, ParsedPage):
            return reply
        if kind is BodyKind.TEXT:
            parsed = ParsedPage(content_hash=await _hash(body), charset=charset.detect(body, content_type).name)
            parsed.noindex, parsed.nofollow = parse_x_robots_tag(x_robots_tag)
            parsed.problem = reply
            return parsed
        return fallback_scan.scan(
            body,
            content_type=content_type,
            x_robots_tag=x_robots_tag,
            links_per_page=self._links_per_page,
            problem=reply,
        )

    async def _read_pdf(self, body: bytes, parsed: ParsedPage, *, text: bool) -> None:
        """Read a PDF into `parsed`. After: `problem` says what could not be read."""
        request = {"links_per_page": self._links_per_page, "seconds": self._pdf_seconds, "text": text}
        reply = await self.pdf_process.ask(body, request)
        found = {"problem": reply} if isinstance(reply, str) else reply
        for name, value in found.items():
            setattr(parsed, name, value)

    async def aclose(self) -> None:
        """Before: nothing. After: all child processes are gone."""
        for process in (*self.processes.values(), self.pdf_process):
            await process.aclose()


async def _hash(body: bytes) -> bytes:
    if len(body) <= _HASH_INLINE:
        return hashlib.sha256(body).digest()
    return await asyncio.to_thread(lambda: hashlib.sha256(body).digest())
