"""What every command starts from: settings, the store, and a place to tell people what is going on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import typer

from holdfast.settings import Settings, load
from holdfast.store.connect import Database


def say(sentence: str) -> None:
    """Tell the person something that is not the answer."""
    typer.echo(sentence, err=True)


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
        from holdfast import wiring

        return wiring.store(self.settings, say)

    def database(self) -> Database:
        """The database whatever its schema."""
        from holdfast import wiring

        return wiring.database(self.settings, say)


def of(context: typer.Context) -> Session:
    """The session of this invocation."""
    session = context.obj
    assert isinstance(session, Session)  # noqa: S101 — the root callback sets it
    return session
