"""Headers, cookies and credentials on a command line: written there, or read from a file, standard input or the environment.

The rule: what other users of the machine can see in a list of processes is the person's choice, so there is always a way around it. No
message repeats a value.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.control.domains import SECRET_KEYS
from holdfast.errors import UsageError
from holdfast.model.request_secrets import RequestSecrets
from holdfast.settings import variable

_FROM: Final = "@FILE or env:NAME reads it from there"
_LARGEST: Final = 1 << 20

Header = Annotated[
    list[str] | None,
    typer.Option(
        metavar="'NAME: VALUE'", help=f"Send this header to the sites of the seeds (may be repeated); {_FROM}."
    ),
]
Cookie = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help=f"Send this cookie to the sites of the seeds (may be repeated); {_FROM}."),
]
BasicAuth = Annotated[
    str | None, typer.Option(metavar="USER:PASSWORD", help=f"Log in to the sites of the seeds; {_FROM}.")
]


def secrets(
    header: Sequence[str] | None, cookie: Sequence[str] | None, basic_auth: str | None
) -> RequestSecrets | None:
    """What the options say; None: nothing."""
    given = RequestSecrets.parse(
        None if header is None else _lines(header, "--header"),
        None if cookie is None else _lines(cookie, "--cookie"),
        None if basic_auth is None else _line(basic_auth, "--basic-auth"),
    )
    return given or None


def of_assignments(words: Sequence[str]) -> tuple[list[str], RequestSecrets | None]:
    """The words of `domain-set` that are no secrets, and the secrets."""
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
    return rest, secrets(found.get("header"), found.get("cookie"), logins[0])


def shown(word: str) -> str:
    """A word of `domain-set` without what is secret in it."""
    key, equals, value = word.partition("=")
    return f"{key}=***" if equals and key in SECRET_KEYS and value else word


def _lines(given: Sequence[str], option: str) -> list[str]:
    """Each text, or the lines of what it refers to, without empty ones and comments."""
    found: list[str] = []
    for text in given:
        content = _content(text, option)
        if content is None:
            found.append(text)
        else:
            found += [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return found


def _line(text: str, option: str) -> str:
    content = _content(text, option)
    if content is None:
        return text
    lines = content.splitlines() or [""]
    if len(lines) > 1 and any(line.strip() for line in lines[1:]):
        raise UsageError(f"{option}: {text} must be a single line.")
    return lines[0]


def _content(text: str, option: str) -> str | None:
    """What a reference refers to; None: the text is no reference."""
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
            data = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_LARGEST + 1)
    except OSError as problem:
        raise UsageError(f"{option}: {path} cannot be read: {problem.strerror}.") from None
    if len(data) > _LARGEST:
        raise UsageError(f"{option}: {path} is too large to be a list of headers, cookies or a password.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{option}: {path} is not UTF-8 text.") from None
