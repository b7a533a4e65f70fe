"""Which parsers there are: the built-in ones, those of installed packages, and the files of a folder.

Owns names. The rule: nothing is imported here. What a plug-in is, is seen by reading metadata and file names, since to import it may be
the end of the process; `parse/loading` does that, in a process that may end.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from holdfast import trust
from holdfast.model.parsed import FailureKind, ParseFailed, line

GROUP: Final = "holdfast.parsers"
"""Of entry points."""
BUILT_IN: Final = {"generic": "holdfast.parse.generic", "product": "holdfast.parse.product"}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class Kind(StrEnum):
    """Where a parser comes from."""

    BUILT_IN = "built in"
    PACKAGE = "package"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Source:
    """A parser that may be loaded, and how."""

    name: str
    kind: Kind
    target: str
    """A module, with an object in it after a colon; the path of a file."""
    package: str = ""
    """That it was installed with."""

    @property
    def room(self) -> str:
        """Parsers of one room may share a process. Ours do; everybody else's have one each."""
        return "" if self.kind is Kind.BUILT_IN else self.name


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that was meant to be a parser, and why it is none."""

    name: str
    reason: str


class Registry:
    """Parsers by name."""

    def __init__(self, sources: Iterable[Source], broken: Iterable[Broken] = ()) -> None:
        self.sources = {source.name: source for source in sources}
        self.broken = tuple(broken)

    def find(self, name: str) -> Source | ParseFailed:
        """The parser called `name`, or a sentence that says what there is."""
        if name in self.sources:
            return self.sources[name]
        named = repr(line(name)[:100])
        for broken in self.broken:
            if broken.name == name:
                return ParseFailed(
                    name, FailureKind.BROKEN_PARSER, f"the parser {named} cannot be used: {broken.reason}"
                )
        there = ", ".join(sorted(self.sources))
        return ParseFailed(name, FailureKind.UNKNOWN_PARSER, f"no parser is called {named}; there are: {there}")


def scan(folder: Path | None = None, file: Path | None = None) -> Registry:
    """The parsers that there are now. A file of `folder` goes before a package of the same name; nothing goes before the built-in.

    `file` is one more, which goes before those of the folder.
    """
    sources = {name: Source(name, Kind.BUILT_IN, target) for name, target in BUILT_IN.items()}
    broken: list[Broken] = []
    named = [] if file is None else [_file(file)]
    for found in (*named, *_files(folder), *_packages()):
        if isinstance(found, Broken):
            broken.append(found)
        elif found.name not in sources:
            sources[found.name] = found
        else:
            broken.append(Broken(found.name, f"{_where(found)} is hidden by {_where(sources[found.name])}"))
    return Registry(sources.values(), broken)


def _where(source: Source) -> str:
    match source.kind:
        case Kind.BUILT_IN:
            return "the built-in parser of that name"
        case Kind.PACKAGE:
            return f"the parser of the package {source.package}"
        case Kind.FILE:
            return f"the file {Path(source.target).name}"


def _files(folder: Path | None) -> Iterator[Source | Broken]:
    if folder is None:
        return
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".py")
    except OSError as error:
        yield Broken(str(folder), f"the folder of parsers cannot be read ({error.strerror})")
        return
    for path in paths:
        if path.name.startswith(("_", ".")):
            continue  # what parsers share
        yield _file(path)


def _file(path: Path) -> Source | Broken:
    if not _NAME.fullmatch(path.stem):
        return Broken(line(path.stem)[:100], _bad_name(f"the file {line(path.name)[:100]}"))
    if not path.is_file():
        return Broken(path.stem, f"the file {path.name} is no file")
    try:
        trust.check(path)
    except trust.Untrusted as why:
        return Broken(path.stem, f"{why}, so its code is not run")
    return Source(path.stem, Kind.FILE, str(path.absolute()))


def _packages() -> Iterator[Source | Broken]:
    found: dict[str, list[Source]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"]
            if name.lower() in seen:
                continue  # an older copy, later on the path
            seen.add(name.lower())
            sources = list(_declared(distribution, name))
        except Exception as error:  # noqa: BLE001 — metadata is somebody else's, and anything may be wrong with it
            yield Broken("?", f"the metadata of a package cannot be read ({type(error).__name__})")
            continue
        for source in sources:
            if _NAME.fullmatch(source.name):
                found.setdefault(source.name, []).append(source)
            else:
                yield Broken(line(source.name)[:100], _bad_name(f"a parser of the package {name}"))
    for name, sources in found.items():
        if len(sources) == 1:
            yield sources[0]
        else:
            packages = " and ".join(source.package for source in sources)
            yield Broken(name, f"several parsers have this name, of {packages}; nobody can tell which is meant")


def _declared(distribution: Distribution, name: str) -> Iterator[Source]:
    for point in distribution.entry_points:
        if point.group == GROUP:
            yield Source(point.name, Kind.PACKAGE, point.value, name)


def _bad_name(what: str) -> str:
    return f"{what} has no name for a parser: lower-case letters, digits, '_', '-' and '.', at most 100"
