"""What every command starts from: settings, the store or a server, and a way to talk with the person.

The rule: with a server (`--server`), no store is opened, and no database started: who asks for one is refused.
"""

import getpass
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from holdfast import wiring
from holdfast.cli import output
from holdfast.errors import Refused, UsageError
from holdfast.settings import Settings, load
from holdfast.store.connect import Database

if TYPE_CHECKING:
    from holdfast.client import Client

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


class Stopped(Exception):
    """Ctrl-C ended the command, and the command has said how things stand. The exit code is `INTERRUPTED`."""


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
    server: str | None = None
    supervised: bool = False
    """Another process of this program started this one and keeps the bundled server up."""
    _store: Database | None = field(default=None, init=False, repr=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; SettingsError says what is wrong with them."""
        return load(file=self.config_file, options={"data": self.data, "server": self.server})

    @property
    def remote(self) -> bool:
        """Whether a server is asked, and not the store."""
        return self.settings.server is not None

    @cached_property
    def client(self) -> "Client":
        """Whom to ask. Before: it is remote."""
        from holdfast.client import Client  # here, for most commands work on the store

        server, key = self.settings.server, self.settings.api_key
        assert server is not None  # noqa: S101 — see above
        return Client(server, key="" if key is None else key.get_secret_value())

    def close(self) -> None:
        """After: no connection to a server is left."""
        if "client" in vars(self):
            self.client.close()

    def store(self) -> Database:
        """The store with the schema that this version knows, started by the first call if need be.

        Later calls do not start it again: in a long command it may have been stopped by a person.
        """
        self.check_local()
        if self._store is None:
            self._store = wiring.store(self.settings, say, start=not self.supervised)
        return self._store

    def database(self) -> Database:
        """The database whatever its schema."""
        self.check_local()
        return wiring.database(self.settings, say)

    def check_local(self, command: str = "This command") -> None:
        """Raise UsageError where a server is to be asked for what only the store itself can do."""
        if self.remote:
            place = self.settings.origin("server").place
            given = "--server" if self.server is not None else f"a server ({place})"
            raise UsageError(f"{command} works on the store itself and cannot be used with {given}.")


def of(context: typer.Context) -> Session:
    """The session of this invocation."""
    session = context.obj
    assert isinstance(session, Session)  # noqa: S101 — the root callback sets it
    return session


def actor() -> str:
    """The user at the terminal, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a uid without a name
        return f"cli:uid {os.getuid()}"
