"""`holdfast seeds`: say what is to be crawled."""

from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.errors import HoldfastError
from holdfast.jobs.seed_import import Loaded, SeedImporter, open_seeds

app = typer.Typer(cls=Group, help="Add start URLs, or load a list of them.", no_args_is_help=True)

_BAD_LINES_SHOWN = 20


def _sower(context: command_context.CommandContext) -> SeedImporter:
    settings = context.settings
    return factories.seed_importer(settings, context.store())


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="URLs or domains.")],
    as_json: output.Json = False,
) -> None:
    """Seed URLs or domains.

    Arguments that are no seeds are reported, the others are added, and the exit code is 1.

    Examples:
        holdfast seeds add https://example.com/start
        holdfast seeds add example.com example.org
    """
    _report(_sower(command_context.get(ctx)).add(urls), "argument", as_json)


@app.command("load", cls=Command)
def load(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, plain or gzip; - is standard input.")],
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=command_context.valid_text,
            help="What to call where these came from (default: the file's name).",
        ),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Seed every line of a file: URLs, domains, or CSV with rank,domain. # begins a comment.

    Lines that are no seeds are reported with their numbers; the rest loads, and the exit code is 1. Loading a file again
    adds what is missing and changes nothing that was learnt.

    Examples:
        holdfast seeds load sites.txt
        holdfast seeds load tranco.csv.gz --source tranco_20260205
        unzip -p top-1m.csv.zip | holdfast seeds load -
    """
    stream, size, name = open_seeds(file)
    loaded = Loaded()
    with stream:
        typed = stream.isatty()
        if typed:
            command_context.say("Type a URL or a domain a line; Ctrl-D ends.")
        steps = _sower(command_context.get(ctx)).load(stream, source or name)
        # Closed in any case, so that a batch that is under way when Ctrl-C comes is in the store before we say so.
        with output.ProgressBar("Loading seeds", size, "line", hidden=typed) as bar, closing(steps):
            for loaded in steps:
                bar.show(loaded.bytes_read, loaded.lines)
    _report(loaded, "line", as_json)


def bad_seeds(loaded: Loaded, file: str | None) -> Iterator[str]:
    """What is said of seeds that cannot be crawled: the cause, and its line where they stand in a file."""
    for bad in loaded.bad_lines[:_BAD_LINES_SHOWN]:
        where = f", line {bad.line:,} of {output.safe(file)}" if file is not None and bad.line else ""
        yield f"not a seed{where}: {output.safe(bad.problem)}"
    if loaded.bad > _BAD_LINES_SHOWN:
        yield f"… and {loaded.bad - _BAD_LINES_SHOWN:,} more"


def _report(loaded: Loaded, unit: str, as_json: bool) -> None:
    for bad in loaded.bad_lines[:_BAD_LINES_SHOWN]:
        command_context.say(f"{unit} {bad.line}: {output.safe(bad.problem)}")
    if loaded.bad > _BAD_LINES_SHOWN:
        command_context.say(f"… and {loaded.bad - _BAD_LINES_SHOWN:,} more")
    if as_json:
        output.print_json(loaded)
    else:
        counted = output.pluralize
        new = f"{counted(loaded.domains, 'new domain')}, {counted(loaded.urls, 'new URL')}"
        refused = f", {loaded.bad:,} bad" if loaded.bad else ""
        output.print_line(f"{counted(loaded.lines, unit)}: {counted(loaded.seeds, 'seed')} ({new}){refused}.")
    if loaded.stopped:
        raise HoldfastError(loaded.stopped)
    if loaded.bad:
        raise typer.Exit(1)
