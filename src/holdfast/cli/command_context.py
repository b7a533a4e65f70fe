"""The context of a command: settings, the store or a server, messages and confirmation.

The rule: with a server (`--server`) no store is opened and no database started; a command that needs one raises UsageError.
"""

import getpass
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from holdfast import factories
from holdfast.cli import output
from holdfast.db.connection import Database
from holdfast.errors import Refused, UsageError
from holdfast.settings import Settings, load

if TYPE_CHECKING:
    from holdfast.client import Client

EXIT_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


class Interrupted(Exception):
    """Ctrl-C ended the command, and the command has printed its result. The exit code is `EXIT_INTERRUPTED`."""


def say(sentence: str) -> None:
    """Print a message to standard error; results go to standard output."""
    output.write_remark((sentence, "\n"))


def confirm(question: str, refusal: str) -> None:
    """Ask for confirmation. Raises Refused with `refusal` if the answer is not yes, or if standard input is no terminal."""
    if not output.is_terminal(sys.stdin):
        raise Refused(f"{refusal} There is no terminal to ask on; --yes confirms.")
    # Not typer.confirm: it writes a space to standard output, where a program may expect JSON.
    output.write(sys.stderr, (f"{question} [y/N] ",))
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Refused(refusal)


def valid_text(text: str | None) -> str | None:
    """Option callback: raise BadParameter for bytes that are no text in the terminal's encoding."""
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise typer.BadParameter("It is not text in the encoding of this terminal.")
    return text


@dataclass
class CommandContext:
    """The global options of one invocation, and what is opened with them."""

    data: Path | None = None
    config_file: Path | None = None
    server: str | None = None
    supervised: bool = False
    """A parent Holdfast process started this one and keeps the bundled database server running."""
    _store: Database | None = field(default=None, init=False, repr=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. Raises SettingsError."""
        return load(file=self.config_file, options={"data": self.data, "server": self.server})

    @property
    def remote(self) -> bool:
        """Whether commands go to a server (`--server`) instead of the store."""
        return self.settings.server is not None

    @cached_property
    def client(self) -> "Client":
        """The client of the server. Before: `remote`."""
        from holdfast.client import Client  # here: most commands work on the store

        server, key = self.settings.server, self.settings.api_key
        assert server is not None  # noqa: S101 — remote
        return Client(server, key="" if key is None else key.get_secret_value())

    def close(self) -> None:
        """After: no connection to the server is open."""
        if "client" in vars(self):
            self.client.close()

    def store(self) -> Database:
        """The database with the schema of this version; the first call starts the bundled server if it does not run.

        Later calls do not start it again: during a long command the operator may have stopped it.
        """
        self.require_local()
        if self._store is None:
            self._store = factories.store(self.settings, say, start=not self.supervised)
        return self._store

    def database(self) -> Database:
        """The database with any schema, or none."""
        self.require_local()
        return factories.database(self.settings, say)

    def require_local(self, command: str = "This command") -> None:
        """Raise UsageError if a server is set: this command works only on the store itself."""
        if self.remote:
            place = self.settings.origin("server").place
            source = "--server" if self.server is not None else f"a server ({place})"
            raise UsageError(f"{command} works on the store itself and cannot be used with {source}.")


def get(ctx: typer.Context) -> CommandContext:
    """The context of this invocation."""
    context = ctx.obj
    assert isinstance(context, CommandContext)  # noqa: S101 — the root callback sets it
    return context


def actor() -> str:
    """The user at the terminal, for the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a uid without a name
        return f"cli:uid {os.getuid()}"
