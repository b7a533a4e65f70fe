"""Options for headers, cookies and credentials: on the command line, or read from a file, standard input or the environment.

The rule: other users of the machine can see arguments in the list of processes, so every secret can also come from elsewhere. No
message repeats a value.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.errors import UsageError
from holdfast.model.request_secrets import SECRET_KEYS, RequestSecrets
from holdfast.settings import variable

_SOURCES: Final = "@FILE or env:NAME reads it from there"
_MAX_BYTES: Final = 1 << 20

Header = Annotated[
    list[str] | None,
    typer.Option(
        metavar="'NAME: VALUE'", help=f"Send this header to the sites of the seeds (may be repeated); {_SOURCES}."
    ),
]
Cookie = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help=f"Send this cookie to the sites of the seeds (may be repeated); {_SOURCES}."
    ),
]
BasicAuth = Annotated[
    str | None, typer.Option(metavar="USER:PASSWORD", help=f"Log in to the sites of the seeds; {_SOURCES}.")
]


def parse_secrets(
    header: Sequence[str] | None, cookie: Sequence[str] | None, basic_auth: str | None
) -> RequestSecrets | None:
    """The secrets of these options; None: there are none."""
    secrets = RequestSecrets.parse(
        None if header is None else _read_lines(header, "--header"),
        None if cookie is None else _read_lines(cookie, "--cookie"),
        None if basic_auth is None else _read_line(basic_auth, "--basic-auth"),
    )
    return secrets or None


def read_value(text: str, option: str) -> str:
    """The text itself, or the one line that its reference (@FILE, env:NAME) holds."""
    return _read_line(text, option)


def split_secrets(words: Sequence[str]) -> tuple[list[str], RequestSecrets | None]:
    """Split the assignments of `domains set` into ordinary ones and secrets."""
    found: dict[str, list[str]] = {}
    rest = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in SECRET_KEYS:
            found.setdefault(key, []).append(value)
        else:
            rest.append(word)
    logins = found.get("basic_auth", [None])
    if len(logins) > 1:
        raise UsageError("basic_auth is given twice.")
    return rest, parse_secrets(found.get("header"), found.get("cookie"), logins[0])


def mask(word: str) -> str:
    """An assignment of `domains set` with its secret value masked."""
    key, equals, value = word.partition("=")
    return f"{key}=***" if equals and key in SECRET_KEYS and value else word


def _read_lines(values: Sequence[str], option: str) -> list[str]:
    """Each value, or the lines that its reference (@FILE, env:NAME) holds, without empty lines and comments."""
    found: list[str] = []
    for text in values:
        content = _read_reference(text, option)
        if content is None:
            found.append(text)
        else:
            found += [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return found


def _read_line(text: str, option: str) -> str:
    content = _read_reference(text, option)
    if content is None:
        return text
    lines = content.splitlines() or [""]
    if len(lines) > 1 and any(line.strip() for line in lines[1:]):
        raise UsageError(f"{option}: {text} must be a single line.")
    return lines[0]


def _read_reference(text: str, option: str) -> str | None:
    """The content of a reference (@FILE, @-, env:NAME); None: the text is no reference."""
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        value = variable(name)
        if value is None:
            raise UsageError(f"{option}: there is no environment variable {name}.")
        return value
    if not text.startswith("@"):
        return None
    path = text.removeprefix("@")
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        raise UsageError(f"{option}: {path} cannot be read: {problem.strerror}.") from None
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{option}: {path} is too large to be a list of headers, cookies or a password.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{option}: {path} is not UTF-8 text.") from None
