"""From a source to a parser that can be called.

The rule: this runs somebody else's code, so only in a process that may end of it (`parse/guest`), or for its author (`parse/testkit`).
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint
from pathlib import Path
from types import CodeType, ModuleType

from holdfast import trust
from holdfast.model.parsed import line
from holdfast.parse.registry import GROUP, Kind, Source

_MAX_VERSION = 50


class NotAParser(Exception):
    """What was loaded is no parser; the text says why."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A parser that can be called. Its result is whatever it likes, until it is checked."""

    name: str
    version: str
    parse: Callable[..., object]


def load(source: Source) -> Loaded:
    """Import what `source` names. Raises NotAParser, and whatever the import raises."""
    if source.kind is Kind.FILE:
        return judged(source.name, _from_file(source))
    return judged(source.name, EntryPoint(source.name, source.target, GROUP).load())


def judged(name: str, candidate: object) -> Loaded:
    """`candidate` as the parser called `name`. Raises NotAParser."""
    if inspect.isclass(candidate):
        candidate = candidate()
    parse = getattr(candidate, "parse", None)
    if not callable(parse):
        raise NotAParser("it has no function parse(document)")
    version = getattr(candidate, "version", None)
    if not isinstance(version, str) or not 0 < len(version) <= _MAX_VERSION or line(version) != version:
        raise NotAParser(f"it has no version: a text of at most {_MAX_VERSION} characters")
    own = getattr(candidate, "name", name)
    if own != name:
        raise NotAParser(f"it calls itself {line(str(own))[:100]!r}, and is installed as {name!r}")
    return Loaded(name, version, parse)


def _from_file(source: Source) -> object:
    """Before: nothing. After: modules beside the file can be imported too, if no other module has their name, and if no other user can put
    one there."""
    path = Path(source.target)
    name = f"holdfast_parser_{source.name}"
    if trust.is_closed(path.parent):
        _Beside.add(path.parent)
    loader = _CheckedLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise NotAParser("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        loader.exec_module(module)
    except UntrustedModule as problem:
        if problem.name != name:
            raise
        raise NotAParser(str(problem)) from problem
    return module


class UntrustedModule(ImportError):
    """A Python file that another user wrote, or could."""


class _CheckedLoader(SourceFileLoader):
    """Runs the bytes that were judged, read through one descriptor; never a compiled file, which another user may have put there."""

    def get_code(self, fullname: str) -> CodeType:
        try:
            content = trust.read(Path(self.path))
        except trust.Untrusted as why:
            raise UntrustedModule(f"{why}, so its code is not run", name=fullname, path=self.path) from why
        return self.source_to_code(content, self.path)


class _Beside(MetaPathFinder):
    """Finds modules and packages in the folders of parser files, after all other finders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def add(cls, folder: Path) -> None:
        """After: one finder looks in `folder`."""
        if not any(isinstance(finder, cls) and finder.folder == folder for finder in sys.meta_path):
            sys.meta_path.append(cls(folder))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 — as its parent has it
    ) -> ModuleSpec | None:
        """As `importlib` asks: `path` is None for a module of its own, else the folders of its package."""
        last = fullname.rpartition(".")[2]
        for folder in (self.folder,) if path is None else map(Path, path):
            for file in (folder / last / "__init__.py", folder / f"{last}.py"):
                if folder.is_relative_to(self.folder) and file.is_file():
                    package = [str(file.parent)] if file.stem == "__init__" else None
                    loader = _CheckedLoader(fullname, str(file))
                    return importlib.util.spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=package
                    )
        return None
