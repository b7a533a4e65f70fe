"""For authors of parsers: a document out of a file or a string, and their parser run over it as Holdfast will run it.

The rule: what passes `run` here passes in a crawl, but for limits of time and memory; `run_apart` has those too.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from holdfast.model.parsed import BadResult, Document, Extracted, ParseDone, ParseFailed, checked, decoded, encoded
from holdfast.parse.loading import NotAParser, judged
from holdfast.parse.plugin import Parser
from holdfast.parse.registry import Kind, Registry, Source, scan
from holdfast.parse.runner import Runner

__all__ = ["BadResult", "NotAParser", "ParseDone", "ParseFailed", "document", "run", "run_apart"]

FETCHED: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""When documents of this kit were fetched."""


def document(
    body: str | bytes | Path, *, url: str = "https://shop.example/p/1", content_type: str = "text/html; charset=utf-8"
) -> Document:
    """A document with that body: text, bytes, or the file at a path."""
    content = body.read_bytes() if isinstance(body, Path) else body.encode() if isinstance(body, str) else body
    return Document(url, content, content_type, {"content-type": content_type}, FETCHED)


def run(parser: Parser | type[Parser], page: Document, *, name: str = "mine") -> Extracted:
    """What `parser` finds, in this process, checked as Holdfast checks it. `name` is that under which it will be installed.

    Raises whatever the parser raises, NotAParser if it is none, and BadResult if it gives what it may not give.
    """
    return decoded(encoded(checked(judged(name, parser).parse(page))))


def run_apart(
    parser: str | Path, page: Document, *, seconds: float = 10.0, memory: int = 1 << 30
) -> ParseDone | ParseFailed:
    """What the parser of that name (an installed one) or in that file finds, in a process of its own with limits.

    A text that ends in `.py` or has a slash is the path of a file.
    """

    if isinstance(parser, Path) or parser.endswith(".py") or "/" in parser:
        path = Path(parser)
        name = path.stem
        registry = Registry([Source(name, Kind.FILE, str(path.absolute()))])
    else:
        name, registry = parser, scan()

    async def whole() -> ParseDone | ParseFailed:
        runner = Runner(registry, processes=1, seconds=seconds, memory=memory)
        try:
            return await runner.parse(name, page)
        finally:
            await runner.aclose()

    return asyncio.run(whole())
