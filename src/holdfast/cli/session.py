"""What every command starts from: settings, the store, and a way to talk with the person."""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import typer

from holdfast import wiring
from holdfast.cli import output
from holdfast.errors import Refused
from holdfast.settings import Settings, load
from holdfast.store.connect import Database

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


def say(sentence: str) -> None:
    """Tell the person something that is not the answer."""
    output.write(sys.stderr, (sentence, "\n"))


def confirm(question: str, otherwise: str) -> None:
    """Go on only if the person says yes. Raises Refused, with `otherwise`, if not or if there is nobody to ask."""
    if not output.is_terminal(sys.stdin):
        raise Refused(f"{otherwise} There is no terminal to ask on: say --yes to do it without being asked.")
    # Not typer.confirm: it writes a blank to standard output, where an answer in JSON may be expected.
    output.write(sys.stderr, (f"{question} [y/N] ",))
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Refused(otherwise)


def readable(text: str | None) -> str | None:
    """For options whose text is stored: refuses bytes that are no text in the terminal's encoding."""
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise typer.BadParameter("It is not text in the encoding of this terminal.")
    return text


@dataclass
class Session:
    """One invocation of the command line."""

    data: Path | None = None
    config_file: Path | None = None

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; SettingsError says what is wrong with them."""
        return load(file=self.config_file, options={"data": self.data})

    def store(self) -> Database:
        """The store with the schema that this version knows, started if need be."""
        return wiring.store(self.settings, say)

    def database(self) -> Database:
        """The database whatever its schema."""
        return wiring.database(self.settings, say)


def of(context: typer.Context) -> Session:
    """The session of this invocation."""
    session = context.obj
    assert isinstance(session, Session)  # noqa: S101 — the root callback sets it
    return session
