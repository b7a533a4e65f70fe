"""The command line: thin, one file a group. Everything it does is in `control/`.

Exit codes: 0 done; 1 done in part, or something was found wrong; 2 a request that cannot be meant; 3 the database cannot be used;
4 no such thing; 5 the present state forbids it; 130 interrupted.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli import claims, config, db, domains, seeds
from holdfast.cli.session import Session
from holdfast.errors import HoldfastError

_EVERYWHERE = {"--data", "--config"}


class _Group(TyperGroup):
    """Takes the options of the whole program anywhere on the line, also behind the command, where people write them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word in _EVERYWHERE:
                front += [word, *(value for value in [next(words, None)] if value is not None)]
            elif word.partition("=")[0] in _EVERYWHERE:
                front.append(word)
            else:
                rest.append(word)
        return list(super().parse_args(ctx, front + rest))


app = typer.Typer(
    cls=_Group,
    name="holdfast",
    help="A web crawler that never loses its place.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the bundled database and the crawl's files (default .holdfast)."),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="Settings file (default holdfast.toml, if there).")
    ] = None,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options for every command; they may also stand behind it."""
    context.obj = Session(data, config_file)


app.add_typer(seeds.app, name="seeds")
app.add_typer(db.app, name="db")
app.add_typer(config.app, name="config")
domains.register(app)
claims.register(app)


def main() -> None:
    """Run the command line; every expected failure ends with a sentence and an exit code."""
    try:
        app()
    except HoldfastError as problem:
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(problem), err=True)
        sys.exit(problem.exit_code)
    except KeyboardInterrupt:
        typer.echo("Interrupted; what was done so far is in the store.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has gone. Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
