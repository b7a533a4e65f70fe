"""Field types of settings, with their validation.

The rule: an invalid value is rejected here, with the end of a sentence that names the setting.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from holdfast.model.duration import parse as parse_duration

ONE_DAY = timedelta(days=1)
MAX_INT4 = 2**31 - 1


def _no_bool(value: object) -> object:
    if isinstance(value, bool):  # which pydantic would take for 0 or 1
        raise ValueError("must be a number")  # noqa: TRY004  pydantic makes a sentence of a ValueError only
    return value


def _names(value: object) -> object:
    """Split a text at commas, as an environment variable has to write a list."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _plain_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if any(not re.fullmatch(r"(?=.)[^\s*,&=#]*\*?", name) for name in names):
        raise ValueError("must be names of query parameters, each perhaps with one * at its end")
    return names


def folder(path: object) -> object:
    """A folder path; ~ is expanded also where no shell has done so."""
    text = str(path) if isinstance(path, Path) else path
    if not isinstance(text, str):
        return path
    if not text or "\0" in text:
        raise ValueError("must be the path of a folder")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("begins with ~, but that home folder is not known") from None


def header_value(text: str | None) -> str | None:
    # Anything else could end the header and begin another one.
    if text is not None and not re.fullmatch(r"[\x21-\x7e]+( +[\x21-\x7e]+)*", text):
        raise ValueError("must be plain ASCII text on one line")
    return text


def single_word(text: str) -> str:
    if not re.fullmatch(r"\S+", text):
        raise ValueError("must be one word")
    return text


Count = Annotated[int, BeforeValidator(_no_bool)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Fraction = Annotated[float, BeforeValidator(_no_bool)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_plain_names)]


class Group(BaseModel):
    """A group of settings; the part of the tree that a constructor takes."""

    # Validators are built when first needed, which moves a quarter of the import time into `load`.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True)
