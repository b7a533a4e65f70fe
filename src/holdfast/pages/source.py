"""The archived source of a page: what the server sent, and what the page says.

The rule: what a parser may hang on is parsed in a process that can be killed (`parse/page_parser`), and few pages are parsed at the same
time. Bytes that are not on this machine are a sentence, not an error. No database connection is held meanwhile.
"""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Final

import zstandard

from holdfast.archive.reader import ArchiveReader, StoredResponse
from holdfast.errors import ArchiveUnavailable, HoldfastError, SegmentMissing
from holdfast.model.content_type import BodyKind, kind_of
from holdfast.model.fetch_types import Anchor, ArchiveRef, ParsedPage
from holdfast.model.url import absolute_url
from holdfast.pages.records import ArchivedPage, PageFacts, PageLink

MAX_TEXT: Final = 1_000_000
"""Characters of the body and of the text."""
MAX_LINKS: Final = 1_000
_MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""Decompressed bytes of a stored text that are read."""
_AT_ONCE: Final = 2
"""Pages that are parsed at the same time in one process of the API: each may take 1 GB in a child process."""
_TEXT_TYPES: Final = ("text/", "application/json", "application/javascript", "application/xml", "application/xhtml+xml")


def archive_ref(page: PageFacts) -> ArchiveRef | None:
    """Return the archive reference of the last response for a URL; None: it has none."""
    if page.archive_segment is None:
        return None
    digest = bytes.fromhex(page.payload_digest or "")
    return ArchiveRef(page.archive_segment, page.archive_offset or 0, page.archive_length or 0, digest)


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Reads archived pages. It may be shared by threads."""

    archive: ArchiveReader
    deadline: float = 5.0
    """Seconds until a parser in a process of its own is killed."""
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE), repr=False)

    def read(self, page: PageFacts, ref: ArchiveRef | None, stored_text: bytes | None = None) -> ArchivedPage:
        """Return the archived response at `ref`, with what the page says. `stored_text`: the text in the database, if it is of that
        response; it is used where the archive has none."""
        found = _without_source(page)
        if stored_text is not None:
            text = _unpack(stored_text)
            found = replace(found, text=text[:MAX_TEXT], truncated=len(text) > MAX_TEXT)
        if ref is None:
            return _missing(found, _why_not_archived(page))
        try:
            stored = self.archive.read(ref)
        except SegmentMissing as problem:
            return _missing(found, _elsewhere(ref) if problem.machine is None else str(problem))
        except ArchiveUnavailable as problem:
            return _missing(found, str(problem))
        except (HoldfastError, OSError) as problem:
            said = str(problem).rstrip(".")
            return _missing(found, f"{said}; `holdfast verify` checks the whole archive.")
        return self._described(found, page, stored)

    def _described(self, found: ArchivedPage, page: PageFacts, stored: StoredResponse) -> ArchivedPage:
        content_type = stored.headers.get("content-type") or page.content_type
        found = replace(
            found,
            fetched_at=stored.fetched_at,
            status_line=stored.status_line,
            headers=stored.headers,
            content_type=content_type,
            body_bytes=len(stored.body),
            incomplete=stored.cut,
        )
        is_pdf = kind_of(stored.body, content_type) is BodyKind.PDF
        if not is_pdf and not _is_text(content_type):
            return _missing(found, f"The body is {content_type}, {len(stored.body):,} bytes, and no text.")
        parsed = self._parse(stored.body, content_type, stored.headers.get("x-robots-tag"))
        body, charset = (None, None) if is_pdf else _decode(stored.body, content_type, parsed)
        links, left_out = _links(page.url, parsed)
        text, why = (found.text, None) if found.text is not None else _text_of(parsed)
        missing = f"The body is a PDF of {len(stored.body):,} bytes; what can be shown of it is its text and its links."
        return replace(
            found,
            charset=charset,
            body=None if body is None else body[:MAX_TEXT],
            truncated=len(body or "") > MAX_TEXT or len(text or "") > MAX_TEXT or found.truncated,
            missing=missing if is_pdf else None,
            text=None if text is None else text[:MAX_TEXT],
            text_missing=why,
            links=links,
            links_left_out=left_out,
            problem=parsed.problem,
        )

    def _parse(self, body: bytes, content_type: str | None, x_robots_tag: str | None) -> ParsedPage:
        from holdfast.parse.page_parser import PageParser  # here: most callers read no source

        async def parse() -> ParsedPage:
            parser = PageParser(links_per_page=MAX_LINKS, deadline=self.deadline, pdf_deadline=2 * self.deadline)
            try:
                return await parser.parse(body, content_type=content_type, x_robots_tag=x_robots_tag, anchors=True)
            finally:
                await parser.aclose()

        with self._turns, asyncio.Runner() as runner:
            return runner.run(parse())


def _missing(found: ArchivedPage, sentence: str) -> ArchivedPage:
    """The page without a body, for the reason in `sentence`; the text that the database has stays."""
    return replace(found, missing=sentence, text_missing=None if found.text is not None else sentence)


def _without_source(page: PageFacts) -> ArchivedPage:
    return ArchivedPage(
        url=page.url,
        domain=page.domain,
        job=page.job,
        state=page.state,
        fetched_at=None,
        status_line=None,
        headers={},
        content_type=page.content_type,
        charset=None,
        body=None,
        body_bytes=None,
        truncated=False,
        incomplete=False,
        missing=None,
        text=None,
        text_missing=None,
        links=[],
        links_left_out=0,
        problem=None,
    )


def _why_not_archived(page: PageFacts) -> str:
    """Why a URL has no archived response."""
    if page.crawled_at is None:
        reason = f" ({page.reason})" if page.reason else ""
        return f"It has no response that is stored: the URL is {page.state}{reason}."
    if page.payload_digest is not None:
        return (
            f"The bytes of its response of {page.crawled_at:%Y-%m-%d %H:%M} UTC were lost with a machine; `holdfast replay --lost` has "
            "queued it again where it can be fetched."
        )
    return (
        f"Its response of {page.crawled_at:%Y-%m-%d %H:%M} UTC ({page.outcome}) is not archived: it had no body, or the job was "
        "crawled with `--no-archive`."
    )


def _elsewhere(ref: ArchiveRef) -> str:
    worker = ref.segment.partition("/")[0]
    return (
        f"Its bytes are in {ref.segment}, which is not in the archive folder of this machine: ask on the machine of worker {worker}, "
        f"or copy its folder {worker} into the archive folder here."
    )


def _is_text(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return not kind or kind.startswith(_TEXT_TYPES) or kind.endswith(("+xml", "+json"))


def _decode(body: bytes, content_type: str | None, parsed: ParsedPage) -> tuple[str, str]:
    """The body as text, and its charset."""
    from holdfast.parse import charset

    found = charset.detect(body[:4], None)
    name = (
        parsed.charset or charset.detect(body, content_type).name
    )  # what has no visible text, such as a script, was not decoded
    return charset.decode(body[found.bom_length :], name), name


def _unpack(compressed: bytes) -> str:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    return decompressor.decompress(compressed)[:_MAX_TEXT_BYTES].decode("utf-8", "replace")


def _text_of(parsed: ParsedPage) -> tuple[str | None, str | None]:
    """The text of a parsed page, or why it has none."""
    if parsed.noindex:
        return None, "The page asks robots not to index it (noindex), so its text is not shown."
    if parsed.problem is not None and not parsed.text:
        return None, f"The page could be read only in part: {parsed.problem}."
    return parsed.text, None


def _links(url: str, parsed: ParsedPage) -> tuple[list[PageLink], int]:
    """The links of a page, and how many more there are. Where only the fallback scan could read the page, their texts are missing."""
    anchors = parsed.anchors or [
        *(Anchor(href, "", "") for href in parsed.links),
        *(Anchor(href, "", "nofollow") for href in parsed.links_nofollow),
    ]
    found = [
        PageLink(target, one.text, one.rel)
        for one in anchors
        if (target := absolute_url(url, parsed.base, one.href)) is not None
    ]
    left_out = parsed.anchors_cut if parsed.anchors else parsed.links_cut
    return found[:MAX_LINKS], left_out + max(0, len(found) - MAX_LINKS)
