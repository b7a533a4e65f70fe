"""Where settings come from, weakest first: built-in defaults, holdfast.toml, the environment, options.

Rule: every complaint is one sentence that names the setting and where it was found; all of them come at once, and
none repeats a secret. Nothing else in Holdfast reads the environment.
"""

import os
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from holdfast import trust
from holdfast.errors import SettingsError
from holdfast.settings.duration import render
from holdfast.settings.tree import FORMER_NAMES, PREFIX, Origin, Setting, Settings, Source, catalog, groups

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_FILE = Path("holdfast.toml")

# Variables with our prefix that are not settings: where the tests find the shared conformance data.
NOT_SETTINGS = frozenset({"HOLDFAST_CONFORMANCE"})

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_PHRASES = {
    "bool": "must be true or false",
    "float": "must be a number",
    "int": "must be a whole number",
    "path": "must be a path",
    "string": "must be a text",
    "tuple": "must be a list of texts",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


class Given(NamedTuple):
    """A value as a source wrote it."""

    value: Any
    origin: Origin


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings in force. Raises SettingsError with one line for each problem.

    `file` must exist when it is given; otherwise holdfast.toml of the current folder is read if it is there, and refused if another
    user could have written it (`holdfast.trust`).
    `options` are nested as in the file, or named with a dot ("claims.lease"); None there means "not given".
    """
    problems: list[str] = []
    given = {
        **_from_file(file, problems),
        **_from_environment(os.environ if environ is None else environ, problems),
        **_known(options or {}, "option", "given as an option", problems),
    }
    tree: dict[str, Any] = {}
    for name, (value, _) in given.items():
        group, _, field = name.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[field] = value
    try:
        settings = Settings.model_validate(tree, context={name: origin for name, (_, origin) in given.items()})
    except ValidationError as error:
        problems += [_sentence(detail, given) for detail in error.errors(include_url=False)]
    else:
        problems += _untrusted_folder(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def _untrusted_folder(settings: Settings) -> Iterator[str]:
    """A problem if another user can put code into the folder of parsers. One that is missing is reported by those who look for parsers."""
    if settings.parsing.folder is None:
        return
    with suppress(OSError):
        try:
            trust.check(settings.parsing.folder)
        except trust.Untrusted as why:
            place = settings.origin("parsing.folder").place
            yield f"{place} names a folder whose code is not run: {why}; use a folder that only you and root can write."


def variable(name: str) -> str | None:
    """An environment variable that a person names instead of writing a secret on a command line; None: it is not set."""
    return os.environ.get(name)


def _cure(path: Path, *, named: bool) -> str:
    """How a settings file that is not trusted can be used. `--config` does not help where every user can write it."""
    with suppress(OSError):
        if named or path.stat().st_mode & stat.S_IWOTH:
            return f"`chmod o-w {path}` ends that"
    return "name it with --config if you trust it, else remove it"


def _from_file(file: Path | None, problems: list[str]) -> dict[str, Given]:
    path = file or DEFAULT_FILE
    try:
        text = (trust.read_named(file) if file else trust.read(path)).decode("utf-8-sig")
    except trust.Untrusted as why:
        problems.append(f"The settings file {path} is not used: {why}; {_cure(path, named=file is not None)}.")
        return {}
    except FileNotFoundError:
        if file:
            problems.append(f"There is no settings file {file}.")
        return {}
    except OSError as error:
        problems.append(f"The settings file {path} cannot be read: {error.strerror}.")
        return {}
    except UnicodeDecodeError:
        problems.append(f"The settings file {path} is not UTF-8 text.")
        return {}

    import tomllib  # here, for most commands run without a file

    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # absurd numbers and nesting are not TOMLDecodeErrors
        problems.append(f"The settings file {path} is not valid TOML: {error}.")
        return {}
    return _known(content, "file", f"in {path}", problems)


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Given]:
    """An empty variable counts as not set, since that is what `${VARIABLE:-}` in a compose file makes of it."""
    given = {}
    for setting in catalog():
        names = (setting.env, *setting.aliases)
        found = {name: text for name in names if (text := environ.get(name, "").strip())}
        if len(found) > 1 and len({_meaning(setting, text) for text in found.values()}) > 1:
            problems.append(f"{' and '.join(found)} set the same thing to different values; keep one of them.")
        if found:
            name, text = next(iter(found.items()))
            given[setting.name] = Given(text, Origin("environment", name))
    known = NOT_SETTINGS.union(*((setting.env, *setting.aliases) for setting in catalog()))
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            wanted = name.removeprefix(PREFIX).lower()
            hint = _suggestion(wanted, {setting.name: setting.env for setting in catalog()})
            problems.append(f"The environment variable {name!r} is not a setting{hint}")
    return given


def _meaning(setting: Setting, text: str) -> object:
    """What the text of an aliased setting means, so that "1" and "true" agree; itself if it means nothing."""
    try:
        return TypeAdapter(type(setting.default)).validate_python(text)
    except ValidationError:
        return text


def _known(content: Mapping[str, Any], source: Source, where: str, problems: list[str]) -> dict[str, Given]:
    """The settings among what a file or a mapping holds; a problem for everything else."""
    known = {setting.name: setting.name for setting in catalog()}
    former = {old: new for new, old in FORMER_NAMES.items()}
    given: dict[str, Given] = {}
    for written, value in _leaves(content):
        name = former.get(written, written)
        if name in given and value not in (None, given[name].value):
            other = FORMER_NAMES.get(name, f'"{name}"')  # else a key with a dot in quotes, beside the table
            problems.append(f"{name} and {other} ({where}) set the same thing to different values; keep one of them.")
        if name in groups():
            problems.append(f"{name} ({where}) is a group of settings, not a setting.")
        elif name not in known:
            problems.append(f"{name!r} ({where}) is not a setting{_suggestion(name, known)}")
        elif value is not None:
            given[name] = Given(value, Origin(source, f"{written} ({where})"))
    return given


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, as deep as the tree is; an empty table stands for itself, unless it is a group."""
    for key, value in content.items():
        if not isinstance(value, Mapping):
            yield key, value
        elif value:
            yield from ((f"{key}.{field}", inner) for field, inner in value.items())
        elif key not in groups():
            yield key, value


def _suggestion(wanted: str, known: Mapping[str, str]) -> str:
    """The end of the sentence: a question, if a known name is close, by the whole name or else by its last part."""
    import difflib  # here, for only mistakes need it

    def closest(name: str, among: Iterable[str]) -> str | None:
        return next(iter(difflib.get_close_matches(name, among, n=1)), None)

    fields = {name.rpartition(".")[2]: name for name in known}
    name = closest(wanted, known) or fields.get(closest(wanted.rpartition(".")[2], fields) or "")
    return f"; did you mean {known[name]}?" if name else "."


def _sentence(detail: "ErrorDetails", given: Mapping[str, Given]) -> str:
    if not detail["loc"]:  # a rule over all settings
        return str(detail["ctx"]["error"])
    group, *fields = map(str, detail["loc"])
    name = f"{group}.{fields[0]}" if fields and group in groups() else group
    kind, context = detail["type"], detail.get("ctx", {})
    phrase = _PHRASES.get(kind) or _PHRASES.get(kind.partition("_")[0], "is not valid")
    words = str(context["error"]) if kind == "value_error" else phrase.format(**context)
    if name not in given:  # a rule over a whole group, which says everything itself
        return words
    secret = next(setting.secret for setting in catalog() if setting.name == name)
    found = "" if secret else f", not {_shown(detail['input'])}"
    return f"{given[name].origin.place} {words}{found}."


def _shown(value: object) -> str:
    try:
        return render(value) if isinstance(value, timedelta) else _SHORT.repr(value)
    except ValueError:  # Python refuses to write out an integer of thousands of digits
        return "a number of that size"
