"""Loader of settings from their sources, weakest first: built-in defaults, holdfast.toml, the environment, options.

The rule: every error is one sentence that names the setting and its source; all errors are reported at once, and none repeats a secret.
Nothing else in Holdfast reads the environment.
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
from holdfast.model.duration import render
from holdfast.settings.schema import FORMER_NAMES, PREFIX, Origin, Setting, Settings, Source, catalog, groups

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
    "literal_error": "must be {expected}",
}


class SourcedValue(NamedTuple):
    """A value as a source wrote it."""

    value: Any
    origin: Origin


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Load the settings. Raises SettingsError with one line for each problem.

    `file` must exist if given; otherwise holdfast.toml of the current folder is read if it exists, and refused if another user could have
    written it (`holdfast.trust`). `options` are nested as in the file, or named with a dot ("claims.lease"); None there means "not given".
    """
    problems: list[str] = []
    values = {
        **_from_file(file, problems),
        **_from_environment(os.environ if environ is None else environ, problems),
        **_known_settings(options or {}, "option", "given as an option", problems),
    }
    tree: dict[str, Any] = {}
    for name, (value, _) in values.items():
        group, _, field = name.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[field] = value
    try:
        settings = Settings.model_validate(tree, context={name: origin for name, (_, origin) in values.items()})
    except ValidationError as error:
        problems += [_error_message(detail, values) for detail in error.errors(include_url=False)]
    else:
        problems += _untrusted_folder(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def _untrusted_folder(settings: Settings) -> Iterator[str]:
    """A problem if another user can put code into the folder of parsers. A missing folder is reported by the code that looks for
    parsers."""
    if settings.parsing.folder is None:
        return
    with suppress(OSError):
        try:
            trust.check(settings.parsing.folder)
        except trust.Untrusted as why:
            place = settings.origin("parsing.folder").place
            yield f"{place} names a folder whose code is not run: {why}; use a folder that only you and root can write."


def variable(name: str) -> str | None:
    """The value of an environment variable that the operator names instead of writing a secret on a command line; None: it is not set."""
    return os.environ.get(name)


def _remedy(path: Path, *, named: bool) -> str:
    """How an untrusted settings file can be used. `--config` does not help if every user can write it."""
    with suppress(OSError):
        if named or path.stat().st_mode & stat.S_IWOTH:
            return f"`chmod o-w {path}` ends that"
    return "name it with --config if you trust it, else remove it"


def _from_file(file: Path | None, problems: list[str]) -> dict[str, SourcedValue]:
    path = file or DEFAULT_FILE
    try:
        text = (trust.read_named(file) if file else trust.read(path)).decode("utf-8-sig")
    except trust.Untrusted as why:
        problems.append(f"The settings file {path} is not used: {why}; {_remedy(path, named=file is not None)}.")
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

    import tomllib  # imported here: most commands run without a file

    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # absurd numbers and nesting are not TOMLDecodeErrors
        problems.append(f"The settings file {path} is not valid TOML: {error}.")
        return {}
    return _known_settings(content, "file", f"in {path}", problems)


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, SourcedValue]:
    """The settings in the environment. An empty variable counts as not set, since `${VARIABLE:-}` in a compose file produces that."""
    values = {}
    for setting in catalog():
        names = (setting.env, *setting.aliases)
        found = {name: text for name in names if (text := environ.get(name, "").strip())}
        if len(found) > 1 and len({_parsed_value(setting, text) for text in found.values()}) > 1:
            problems.append(f"{' and '.join(found)} set the same thing to different values; keep one of them.")
        if found:
            name, text = next(iter(found.items()))
            values[setting.name] = SourcedValue(text, Origin("environment", name))
    known = NOT_SETTINGS.union(*((setting.env, *setting.aliases) for setting in catalog()))
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            wanted = name.removeprefix(PREFIX).lower()
            hint = _suggestion(wanted, {setting.name: setting.env for setting in catalog()})
            problems.append(f"The environment variable {name!r} is not a setting{hint}")
    return values


def _parsed_value(setting: Setting, text: str) -> object:
    """The value of the text of an aliased setting, so that "1" and "true" agree; the text itself if it is invalid."""
    try:
        return TypeAdapter(type(setting.default)).validate_python(text)
    except ValidationError:
        return text


def _known_settings(
    content: Mapping[str, Any], source: Source, where: str, problems: list[str]
) -> dict[str, SourcedValue]:
    """The settings in a file or a mapping; a problem for every other key."""
    known = {setting.name: setting.name for setting in catalog()}
    former = {old: new for new, old in FORMER_NAMES.items()}
    values: dict[str, SourcedValue] = {}
    for written, value in _flatten(content):
        name = former.get(written, written)
        if name in values and value not in (None, values[name].value):
            other = FORMER_NAMES.get(name, f'"{name}"')  # else a key with a dot in quotes, beside the table
            problems.append(f"{name} and {other} ({where}) set the same thing to different values; keep one of them.")
        if name in groups():
            problems.append(f"{name} ({where}) is a group of settings, not a setting.")
        elif name not in known:
            problems.append(f"{name!r} ({where}) is not a setting{_suggestion(name, known)}")
        elif value is not None:
            values[name] = SourcedValue(value, Origin(source, f"{written} ({where})"))
    return values


def _flatten(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names and values; an empty table is returned as it is, unless it is a group."""
    for key, value in content.items():
        if not isinstance(value, Mapping):
            yield key, value
        elif value:
            yield from ((f"{key}.{field}", inner) for field, inner in value.items())
        elif key not in groups():
            yield key, value


def _suggestion(wanted: str, known: Mapping[str, str]) -> str:
    """The end of the sentence: a question, if a known name is close, by the whole name or else by its last part."""
    import difflib  # imported here: only errors need it

    def closest(name: str, among: Iterable[str]) -> str | None:
        return next(iter(difflib.get_close_matches(name, among, n=1)), None)

    fields = {name.rpartition(".")[2]: name for name in known}
    name = closest(wanted, known) or fields.get(closest(wanted.rpartition(".")[2], fields) or "")
    return f"; did you mean {known[name]}?" if name else "."


def _error_message(detail: "ErrorDetails", values: Mapping[str, SourcedValue]) -> str:
    if not detail["loc"]:  # a rule over all settings
        return str(detail["ctx"]["error"])
    group, *fields = map(str, detail["loc"])
    name = f"{group}.{fields[0]}" if fields and group in groups() else group
    kind, context = detail["type"], detail.get("ctx", {})
    phrase = _PHRASES.get(kind) or _PHRASES.get(kind.partition("_")[0], "is not valid")
    words = str(context["error"]) if kind == "value_error" else phrase.format(**context)
    if name not in values:  # a rule over a whole group, with a complete sentence
        return words
    secret = next(setting.secret for setting in catalog() if setting.name == name)
    found = "" if secret else f", not {_shown(detail['input'])}"
    return f"{values[name].origin.place} {words}{found}."


def _shown(value: object) -> str:
    try:
        return render(value) if isinstance(value, timedelta) else _SHORT.repr(value)
    except ValueError:  # Python refuses to write out an integer of thousands of digits
        return "a number of that size"
