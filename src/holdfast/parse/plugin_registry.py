"""Discovery of parsers: the built-in ones, entry points of installed packages, and the files of a folder.

Owns the names of parsers. The rule: nothing is imported here. Plug-ins are found by package metadata and file names, because importing
one may kill the process; `parse/plugin_loader` imports it, in a child process.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from holdfast import trust
from holdfast.model.parse_result import FailureKind, ParseFailed, single_line

ENTRY_POINT_GROUP: Final = "holdfast.parsers"
"""The entry point group under which packages declare parsers."""
BUILT_IN: Final = {
    "generic": "holdfast.parse.generic",
    "main-text": "holdfast.parse.main_text",
    "markdown": "holdfast.parse.markdown",
    "product": "holdfast.parse.product",
}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class SourceKind(StrEnum):
    """Where a parser comes from."""

    BUILT_IN = "built in"
    PACKAGE = "package"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class ParserSource:
    """A parser that was discovered but not loaded: its name, and where to load it from."""

    name: str
    kind: SourceKind
    target: str
    """`module` or `module:object`; for files, the absolute path."""
    package: str = ""
    """The distribution package that declares it; empty for files and built-in parsers."""

    @property
    def isolation_group(self) -> str:
        """Parsers with the same isolation group may share a process: the built-in ones do, every plug-in has its own."""
        return "" if self.kind is SourceKind.BUILT_IN else self.name


@dataclass(frozen=True, slots=True)
class UnusableParser:
    """A plug-in that was found but cannot be used, and the reason."""

    name: str
    reason: str


class PluginRegistry:
    """The discovered parsers by name, and the plug-ins that cannot be used."""

    def __init__(self, sources: Iterable[ParserSource], broken: Iterable[UnusableParser] = ()) -> None:
        self.sources = {source.name: source for source in sources}
        self.unusable = tuple(broken)

    def find(self, name: str) -> ParserSource | ParseFailed:
        """Look up a parser. The failure names the available parsers, or the reason why this one cannot be used."""
        if name in self.sources:
            return self.sources[name]
        named = repr(single_line(name)[:100])
        for broken in self.unusable:
            if broken.name == name:
                return ParseFailed(
                    name, FailureKind.BROKEN_PARSER, f"the parser {named} cannot be used: {broken.reason}"
                )
        available = ", ".join(sorted(self.sources))
        return ParseFailed(name, FailureKind.UNKNOWN_PARSER, f"no parser is called {named}; there are: {available}")


def built_in() -> PluginRegistry:
    """The built-in parsers only."""
    return PluginRegistry(ParserSource(name, SourceKind.BUILT_IN, target) for name, target in BUILT_IN.items())


def discover(folder: Path | None = None, file: Path | None = None) -> PluginRegistry:
    """Discover all parsers. Precedence by name: built-in, `file`, files of `folder`, installed packages."""
    sources = built_in().sources
    broken: list[UnusableParser] = []
    named = [] if file is None else [_file_source(file)]
    for found in (*named, *_discover_files(folder), *_discover_packages()):
        if isinstance(found, UnusableParser):
            broken.append(found)
        elif found.name not in sources:
            sources[found.name] = found
        else:
            broken.append(
                UnusableParser(
                    found.name, f"{_describe_source(found)} is hidden by {_describe_source(sources[found.name])}"
                )
            )
    return PluginRegistry(sources.values(), broken)


def _describe_source(source: ParserSource) -> str:
    match source.kind:
        case SourceKind.BUILT_IN:
            return "the built-in parser of that name"
        case SourceKind.PACKAGE:
            return f"the parser of the package {source.package}"
        case SourceKind.FILE:
            return f"the file {Path(source.target).name}"


def _discover_files(folder: Path | None) -> Iterator[ParserSource | UnusableParser]:
    if folder is None:
        return
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".py")
    except OSError as error:
        yield UnusableParser(str(folder), f"the folder of parsers cannot be read ({error.strerror})")
        return
    for path in paths:
        if path.name.startswith(("_", ".")):
            continue  # modules that parsers share
        yield _file_source(path)


def _file_source(path: Path) -> ParserSource | UnusableParser:
    if not _NAME.fullmatch(path.stem):
        return UnusableParser(single_line(path.stem)[:100], _invalid_name(f"the file {single_line(path.name)[:100]}"))
    if not path.is_file():
        return UnusableParser(path.stem, f"the file {path.name} is not a regular file")
    try:
        trust.check(path)
    except trust.Untrusted as error:
        return UnusableParser(path.stem, f"{error}, so its code is not run")
    return ParserSource(path.stem, SourceKind.FILE, str(path.absolute()))


def _discover_packages() -> Iterator[ParserSource | UnusableParser]:
    found: dict[str, list[ParserSource]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"]
            if name.lower() in seen:
                continue  # an older copy, later on the path
            seen.add(name.lower())
            sources = list(_entry_points(distribution, name))
        except Exception as error:  # noqa: BLE001 — the metadata is foreign, and may be invalid in any way
            yield UnusableParser("?", f"the metadata of a package cannot be read ({type(error).__name__})")
            continue
        for source in sources:
            if _NAME.fullmatch(source.name):
                found.setdefault(source.name, []).append(source)
            else:
                yield UnusableParser(single_line(source.name)[:100], _invalid_name(f"a parser of the package {name}"))
    for name, sources in found.items():
        if len(sources) == 1:
            yield sources[0]
        else:
            packages = " and ".join(source.package for source in sources)
            yield UnusableParser(name, f"several parsers have this name, of {packages}; none of them is used")


def _entry_points(distribution: Distribution, name: str) -> Iterator[ParserSource]:
    for point in distribution.entry_points:
        if point.group == ENTRY_POINT_GROUP:
            yield ParserSource(point.name, SourceKind.PACKAGE, point.value, name)


def _invalid_name(what: str) -> str:
    return f"{what} has no name for a parser: lower-case letters, digits, '_', '-' and '.', at most 100"
