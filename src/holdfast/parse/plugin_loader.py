"""Import of a discovered parser, and validation of its interface.

The rule: this runs foreign code, so it is called only in the child process (`parse/plugin_child`) or in a test of the parser's author
(`parse/plugin_testing`).
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
from holdfast.model.parse_result import single_line
from holdfast.parse.plugin_registry import ENTRY_POINT_GROUP, ParserSource, SourceKind

_MAX_VERSION = 50


class InvalidParser(Exception):
    """The loaded object does not have the interface of a parser; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class LoadedParser:
    """A parser that can be called. Its result is not validated yet."""

    name: str
    version: str
    parse: Callable[..., object]


def load(source: ParserSource) -> LoadedParser:
    """Import the parser. Raises InvalidParser, and any exception that the import raises."""
    if source.kind is SourceKind.FILE:
        return validate_parser(source.name, _load_file(source))
    return validate_parser(source.name, EntryPoint(source.name, source.target, ENTRY_POINT_GROUP).load())


def validate_parser(name: str, candidate: object) -> LoadedParser:
    """Check that `candidate` (an object or a class) has the interface of a parser called `name`. Raises InvalidParser."""
    if inspect.isclass(candidate):
        candidate = candidate()
    parse = getattr(candidate, "parse", None)
    if not callable(parse):
        raise InvalidParser("it has no function parse(document)")
    version = getattr(candidate, "version", None)
    if not isinstance(version, str) or not 0 < len(version) <= _MAX_VERSION or single_line(version) != version:
        raise InvalidParser(f"it has no version: a text of at most {_MAX_VERSION} characters")
    declared = getattr(candidate, "name", name)
    if declared != name:
        raise InvalidParser(f"it calls itself {single_line(str(declared))[:100]!r}, and is installed as {name!r}")
    return LoadedParser(name, version, parse)


def _load_file(source: ParserSource) -> object:
    """Import a parser file. After: modules in its folder can be imported too, unless another module has their name or another user can
    write to the folder."""
    path = Path(source.target)
    name = f"holdfast_parser_{source.name}"
    if trust.is_closed(path.parent):
        _SiblingModuleFinder.install(path.parent)
    loader = _TrustedSourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise InvalidParser("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        loader.exec_module(module)
    except UntrustedModule as problem:
        if problem.name != name:
            raise
        raise InvalidParser(str(problem)) from problem
    return module


class UntrustedModule(ImportError):
    """A Python file that another user owns or can write to."""


class _TrustedSourceLoader(SourceFileLoader):
    """Loads source code through the descriptor whose owner and mode were checked; never a compiled file, which may be another user's."""

    def get_code(self, fullname: str) -> CodeType:
        try:
            content = trust.read(Path(self.path))
        except trust.Untrusted as error:
            raise UntrustedModule(f"{error}, so its code is not run", name=fullname, path=self.path) from error
        return self.source_to_code(content, self.path)


class _SiblingModuleFinder(MetaPathFinder):
    """Finds modules and packages in the folder of a parser file, after all other finders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def install(cls, folder: Path) -> None:
        """Before: any state. After: exactly one finder for `folder` is on `sys.meta_path`."""
        if not any(isinstance(finder, cls) and finder.folder == folder for finder in sys.meta_path):
            sys.meta_path.append(cls(folder))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 — the signature of the base class
    ) -> ModuleSpec | None:
        """Implement `MetaPathFinder`: `path` is None for a top-level module, else the folders of its package."""
        last = fullname.rpartition(".")[2]
        for folder in (self.folder,) if path is None else map(Path, path):
            for file in (folder / last / "__init__.py", folder / f"{last}.py"):
                if folder.is_relative_to(self.folder) and file.is_file():
                    package = [str(file.parent)] if file.stem == "__init__" else None
                    loader = _TrustedSourceLoader(fullname, str(file))
                    return importlib.util.spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=package
                    )
        return None
