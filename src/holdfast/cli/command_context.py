"""The context of a command: settings, the store or a server, messages and confirmation.

The rule: with a server (`--server`) no store is opened and no database started; a command that needs one raises UsageError.
"""

import getpass
import os
import sys
from collections.abc import Mapping
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
WORKS_ON_STORE: Final = "it works on the store itself. Run it where the store is, without the server."
"""Why a command cannot be used with a server, and what to do, if there is no closer reason."""
LOCAL_COMMANDS: Final[Mapping[str, str]] = {
    "crawl": "it starts workers on this machine. `holdfast jobs create` makes a job that the workers of the server crawl.",
    "worker": "it is a worker of this machine. Run it where it should crawl, with the address of the database (HOLDFAST_DATABASE_URL).",
    "background": "it is the background of this machine. Run it where it should work, with the address of the database "
    "(HOLDFAST_DATABASE_URL).",
    "serve": "it is a server itself. Run it without the address of another one.",
    "front": "it is a server itself. Run it without the address of another one.",
    "gc": "it deletes files of the machine that it runs on. Run it on the machine of the server.",
    "backfill": "it reads files of this machine into the database. Run it where both are, or with HOLDFAST_DATABASE_URL.",
    "parse": "it runs parsers on this machine. `holdfast replay --parse` makes pages due for the parsers of the server.",
    "restore": "it writes the files of the store that the server works on. Run it on that machine.",
    "torture": "it kills a crawl of its own on this machine. Run it without a server.",
    "demo": "it is a crawl of its own on this machine. Run it without a server.",
    "top-domains": "the API has no list of domains by their images. Run it where the store is, without the server.",
    "db": "it works on the database itself, which no server hands out. Run it on the machine of the database.",
}
"""The commands that never work with a server: why, and what to do instead."""


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
    command: str = ""
    """The command that was called, without its subcommand."""
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

    def require_local(self, command: str = "", why: str = "") -> None:
        """Raise UsageError if a server is set. `why` is the rest of the sentence, and says what to do instead; by default that of the
        command that was called."""
        if self.remote:
            place = self.settings.origin("server").place
            source = "--server" if self.server is not None else f"a server ({place})"
            subject = command or (f"`holdfast {self.command}`" if self.command else "This command")
            raise UsageError(
                f"{subject} cannot be used with {source}: {why or LOCAL_COMMANDS.get(self.command, WORKS_ON_STORE)}"
            )


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
