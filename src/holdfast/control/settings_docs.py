"""Documentation of settings: the rows of `config show`, the problems of `config check`, the page docs/configuration.md.

The rule: everything is generated from the schema of settings, and no password is in it.
"""

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pydantic import SecretStr

from holdfast.errors import SettingsError
from holdfast.settings import Setting, Settings, catalog, groups, load, masked, render_duration

_INTRODUCTION = """\
# Configuration

<!-- Generated from src/holdfast/settings. To change this page, change the settings and run
     python -m holdfast.control.settings_docs > docs/configuration.md -->

Holdfast runs without any configuration. What you set comes from four places; each is stronger than the one before:

1. the built-in defaults below;
2. the file `holdfast.toml` in the current folder, or the file that you name with `--config`; one that is found is
   refused if another user wrote it or could, one that is named only if every user can write it;
3. environment variables that begin with `HOLDFAST_`; an empty one counts as not set;
4. the options of a command.

`holdfast config show` prints every setting with its value and where it came from, `holdfast config check` says what is
wrong. An unknown name is an error, in the file and among the variables, so that a misspelt setting is not silently
ignored.

Durations are seconds (`90`, `0.5`) or a text with units: `"45s"`, `"1h30m"`, `"7 days"`; the units are `ms`, `s`, `m`
(minutes), `h`, `d` and `w`. Lists are TOML arrays in the file and separated by commas in a variable (a lone comma is
the empty list). Switches are `true` or `false`.

## Example
"""

_EXAMPLE = """\
data = "/srv/holdfast"
# Better in the environment, which is not committed: HOLDFAST_DATABASE_URL
# database_url = "postgresql://holdfast:password@db.example/holdfast"

[claims]
lease = "10m"
batch = 50

[domains]
crawl_delay = 2.5
user_agent = "ExampleBot/1.0 (+https://example.com/bot)"

[cooldown]
rate_limited = "1d"
exhausted = "30 days"

[urls]
tracking_parameters = ["utm_*", "gclid"]
"""

_ALIASES = """\
## Older names

These environment variables are understood too, those without the prefix `HOLDFAST_` also with it. A variable that disagrees
with the proper one is an error. `ENABLE_CLAIM_PROTOCOL` requires `ENABLE_SMART_SCHEDULING=true`.
"""


class Row(NamedTuple):
    """A setting as `config show` prints it."""

    name: str
    value: str
    source: str
    default: str
    env: str
    description: str


def rows(settings: Settings) -> list[Row]:
    """Return all settings with their values in force; the source is default, file, environment or option."""
    return [
        Row(
            name=setting.name,
            value=_shown(attrgetter(setting.name)(settings)),
            source=settings.origin(setting.name).source,
            default=_shown(setting.default),
            env=setting.env,
            description=setting.description,
        )
        for setting in catalog()
    ]


def check(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the problems of the settings, a sentence each; empty if they can be loaded."""
    try:
        load(file=file, environ=environ, options=options)
    except SettingsError as error:
        return str(error).splitlines()
    return []


def render_markdown() -> str:
    """Return the page docs/configuration.md."""
    parts = [
        _INTRODUCTION,
        f"```toml\n{_EXAMPLE}```\n",
        "## Top level\n",
        _settings_table(setting for setting in catalog() if not setting.group),
    ]
    for group, kind in groups().items():
        parts += [
            f"## [{group}]\n\n{kind.__doc__}\n",
            _settings_table(setting for setting in catalog() if setting.group == group),
        ]
    older = [[_code(setting.aliases[0]), _code(setting.name)] for setting in catalog() if setting.aliases]
    return "\n".join([*parts, _ALIASES, _table(("Variable", "Setting"), older)])


def write_markdown(out: TextIO) -> None:
    """Write the page; `python -m holdfast.control.settings_docs` writes it to standard output."""
    out.write(render_markdown())


def _settings_table(settings: Iterable[Setting]) -> str:
    return _table(
        ("Key", "Environment variable", "Default", "Meaning"),
        (
            (
                _code(setting.name.rpartition(".")[2]),
                _code(setting.env),
                _shown(None) if setting.default is None else _code(_shown(setting.default)),
                setting.description,
            )
            for setting in settings
        ),
    )


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _shown(value: object) -> str:
    match value:
        case None | ():
            return "not set"
        case bool():
            return str(value).lower()
        case timedelta():
            return render_duration(value)
        case SecretStr():
            return masked(value)
        case tuple():
            return ", ".join(value)
        case _:
            return str(value)


if __name__ == "__main__":
    write_markdown(sys.stdout)
