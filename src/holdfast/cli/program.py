"""The program `holdfast`: its commands, the options of all of them, and how an invocation ends."""

import io
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast import __version__
from holdfast.cli import (
    audit,
    background,
    batches,
    claims,
    config,
    crawl,
    db,
    domains,
    explain,
    export,
    jobs,
    output,
    parse,
    products,
    seeds,
    status,
    tasks,
    torture,
    verify,
    webhooks,
)
from holdfast.cli.crawl import INTERRUPTED
from holdfast.cli.help import Group
from holdfast.cli.session import Session, say
from holdfast.errors import HoldfastError, UsageError

_EVERYWHERE: Final = {"--data", "--config"}


class _Program(Group):
    """Takes the options of the whole program anywhere on the line, also behind the command, where people write them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word in _EVERYWHERE:
                front += [word, _value_of(word, words)]
            elif word.partition("=")[0] in _EVERYWHERE:
                front.append(word)
            else:
                rest.append(word)
        return list(super().parse_args(ctx, front + rest))


def _value_of(option: str, words: Iterator[str]) -> str:
    try:
        return next(words)
    except StopIteration:
        raise UsageError(f"{option} needs a value behind it.") from None


app = typer.Typer(
    cls=_Program,
    name="holdfast",
    help="A web crawler that never loses its place.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        output.print_line(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Folder of the bundled database and the crawl's files (default .holdfast)."
        ),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings file (default holdfast.toml, if there).")
    ] = None,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options for every command; they may also stand behind it."""
    context.obj = Session(data, config_file)


crawl.register(app)
background.register(app)
app.add_typer(seeds.app, name="seeds")
app.add_typer(jobs.app, name="jobs")
app.add_typer(tasks.app, name="tasks")
app.add_typer(batches.app, name="batches")
app.add_typer(products.app, name="products")
app.add_typer(webhooks.app, name="webhooks")
domains.register(app)
claims.register(app)
for command in (status, explain, export, parse, verify, audit):
    command.register(app, "Results")
torture.register(app, "See for yourself")
app.add_typer(db.app, name="db", rich_help_panel="Database and settings")
app.add_typer(config.app, name="config", rich_help_panel="Database and settings")


@cache
def _command() -> Any:
    """The commands as Typer runs them; made once, for programs (and tests) that run several."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one invocation; its exit code. Every expected failure ends with a sentence."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal lacks is no failure
    try:
        # Not Typer's standalone mode: it would end silently after Ctrl-C, and draw a box around what went wrong.
        code = int(_command().main(list(arguments), prog_name="holdfast", standalone_mode=False) or 0)
    except HoldfastError as problem:
        for line in str(problem).split("\n"):
            output.print_error(line)
        code = problem.exit_code
    except typer.TyperException as problem:
        _complain_of_usage(problem)
        code = 2
    if code == INTERRUPTED:
        if output.is_terminal(sys.stderr):
            say("")  # behind the ^C
        say("Interrupted; what was done so far is in the store.")
    return code


def _complain_of_usage(problem: typer.TyperException) -> None:
    sentence = re.sub(r"\s+", " ", problem.format_message().replace("Value error, ", "", 1)).strip()
    if not sentence:  # no command was named, and the help has been shown instead
        return
    context = getattr(problem, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context else ""
    output.print_error(f"{sentence}{'' if sentence[-1] in '.?!' else '.'}{hint}")
