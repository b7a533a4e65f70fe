"""Resolve a parser from its name, or from the path of its file."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.parse_result import ParseFailed
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import ParserSource, SourceKind, discover
from holdfast.settings import Parsing

_SUFFIX: Final = ".py"


@dataclass(frozen=True, slots=True)
class ChosenParser:
    """A parser that the operator named."""

    name: str
    file: Path | None = None
    """Its file, if it was named by its path."""


def choose(text: str, settings: Parsing) -> ChosenParser:
    """Resolve the name of a parser, or the path of a Python file. Raises UsageError if there is none."""
    file = Path(text) if text.endswith(_SUFFIX) or "/" in text else None
    if file is not None and not file.is_file():
        raise UsageError(
            f"There is no file {text!r}; --parser takes the path of a Python file, or the name of a parser."
        )
    name = text if file is None else file.stem
    check_known(name, settings, file)
    return ChosenParser(name, None if file is None else file.absolute())


def check_known(name: str, settings: Parsing, file: Path | None = None) -> None:
    """Raise UsageError unless there is a parser of that name; the message lists the parsers and where others are searched."""
    registry = discover(settings.folder, file)
    found = registry.find(name)
    if isinstance(found, ParseFailed):
        raise UsageError(f"{found.reason[:1].upper()}{found.reason[1:]}. {_search_hint(settings)}")
    if file is not None and not _is_file(found, file):
        raise UsageError(f"{file.name!r} would hide the built-in parser {name!r}; give the file another name.")


def check_loads(parser: ChosenParser, settings: Parsing) -> str:
    """Load a parser in a process of its own; returns its version. Raises UsageError with its error."""

    async def load() -> str:
        pool = PluginPool(discover(settings.folder, parser.file), processes=1, memory_limit=settings.memory)
        try:
            described = await pool.describe(parser.name)
        finally:
            await pool.aclose()
        if isinstance(described, ParseFailed):
            raise UsageError(f"{described.reason[:1].upper()}{described.reason[1:]}.")
        return described.version

    return asyncio.run(load())


def _is_file(source: ParserSource, file: Path) -> bool:
    return source.kind is SourceKind.FILE and source.target == str(file.absolute())


def _search_hint(settings: Parsing) -> str:
    if settings.folder is None:
        return "Your own is a Python file: name it by its path (--parser ./shop.py), or set `parsing.folder` to its folder."
    return (
        f"Your own is a Python file in {settings.folder} (`parsing.folder`), or named by its path (--parser ./shop.py)."
    )
