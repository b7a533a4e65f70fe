"""Test helpers for authors of parsers: make a document from a file or a string, and run a parser on it as Holdfast does.

The rule: what passes `run` passes in a crawl, except for the limits of time and memory; `run_isolated` applies those too.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from holdfast.model.parse_result import (
    BadResult,
    Document,
    Extracted,
    ParseDone,
    ParseFailed,
    decode,
    encode,
    validate_result,
)
from holdfast.parse.plugin_api import Parser
from holdfast.parse.plugin_loader import InvalidParser, validate_parser
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import ParserSource, PluginRegistry, SourceKind, discover

__all__ = ["BadResult", "InvalidParser", "ParseDone", "ParseFailed", "document", "run", "run_isolated"]

FETCHED_AT: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""The fetch time of every document that `document` makes."""


def document(
    body: str | bytes | Path, *, url: str = "https://shop.example/p/1", content_type: str = "text/html; charset=utf-8"
) -> Document:
    """Make a document whose body is a text, bytes, or the content of a file."""
    content = body.read_bytes() if isinstance(body, Path) else body.encode() if isinstance(body, str) else body
    return Document(url, content, content_type, {"content-type": content_type}, FETCHED_AT)


def run(parser: Parser | type[Parser], page: Document, *, name: str = "mine") -> Extracted:
    """Run `parser` in this process and validate its result as Holdfast does. `name` is the name it will be installed under.

    Raises what the parser raises, InvalidParser if it lacks `parse` or `version`, and BadResult if its result is not allowed.
    """
    return decode(encode(validate_result(validate_parser(name, parser).parse(page))))


def run_isolated(
    parser: str | Path, page: Document, *, timeout: float = 10.0, memory_limit: int = 1 << 30
) -> ParseDone | ParseFailed:
    """Run an installed parser (by name) or a file in a process of its own. `timeout` is in seconds, `memory_limit` in bytes.

    A text that ends in `.py` or contains a slash is the path of a file.
    """

    if isinstance(parser, Path) or parser.endswith(".py") or "/" in parser:
        path = Path(parser)
        name = path.stem
        registry = PluginRegistry([ParserSource(name, SourceKind.FILE, str(path.absolute()))])
    else:
        name, registry = parser, discover()

    async def whole() -> ParseDone | ParseFailed:
        runner = PluginPool(registry, processes=1, timeout=timeout, memory_limit=memory_limit)
        try:
            return await runner.parse(name, page)
        finally:
            await runner.aclose()

    return asyncio.run(whole())
