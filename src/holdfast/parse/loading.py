"""From a source to a parser that can be called.

The rule: this runs somebody else's code, so only in a process that may end of it (`parse/guest`), or for its author (`parse/testkit`).
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from holdfast.model.parsed import line
from holdfast.parse.registry import GROUP, Kind, Source, is_open_to_all

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
    """Before: nothing. After: modules beside the file can be imported too, if no other module has their name, and if not every user can
    put one there."""
    path = Path(source.target)
    if str(path.parent) not in sys.path and not is_open_to_all(path.parent.stat()):
        sys.path.append(str(path.parent))
    name = f"holdfast_parser_{source.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotAParser("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
