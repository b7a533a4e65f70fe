"""`holdfast seeds`: add start URLs to the standing job."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.errors import HoldfastError
from holdfast.jobs.records import BadLine
from holdfast.jobs.seed_import import ImportProgress, SeedImporter, open_seeds

if TYPE_CHECKING:
    from holdfast.cli.remote.seeds import RemoteSeedImporter

app = typer.Typer(cls=Group, help="Add start URLs, or load a list of them.", no_args_is_help=True)

_MAX_BAD_LINES = 20


def _importer(context: command_context.CommandContext) -> "SeedImporter | RemoteSeedImporter":
    if context.remote:
        from holdfast.cli.remote.seeds import RemoteSeedImporter

        return RemoteSeedImporter(context.client)
    return factories.seed_importer(context.settings, context.store())


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
    _report(_importer(command_context.get(ctx)).add(urls), "argument", as_json)


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
    progress = ImportProgress()
    with stream:
        typed = stream.isatty()
        if typed:
            command_context.say("Type a URL or a domain a line; Ctrl-D ends.")
        importer = _importer(command_context.get(ctx))
        steps = (
            importer.load(stream, source or name)
            if isinstance(importer, SeedImporter)
            else importer.load(stream, source)
        )
        # Closed in any case, so that at Ctrl-C the present batch is in the database before the message.
        with output.ProgressBar("Loading seeds", size, "line", hidden=typed) as bar, closing(steps):
            for progress in steps:
                bar.show(progress.bytes_read, progress.lines)
    _report(progress, "line", as_json)


def bad_seeds(lines: Sequence[BadLine], count: int, file: str | None) -> Iterator[str]:
    """Messages about invalid seeds: the cause, and the line if they are in a file; `count` of them in all."""
    for bad in lines[:_MAX_BAD_LINES]:
        where = f", line {bad.line:,} of {output.safe(file)}" if file is not None and bad.line else ""
        yield f"not a seed{where}: {output.safe(bad.problem)}"
    if count > _MAX_BAD_LINES:
        yield f"… and {count - _MAX_BAD_LINES:,} more"


def _report(progress: ImportProgress, unit: str, as_json: bool) -> None:
    for bad in progress.bad_lines[:_MAX_BAD_LINES]:
        command_context.say(f"{unit} {bad.line}: {output.safe(bad.problem)}")
    if progress.bad > _MAX_BAD_LINES:
        command_context.say(f"… and {progress.bad - _MAX_BAD_LINES:,} more")
    if as_json:
        output.print_json(progress)
    else:
        counted = output.pluralize
        new = f"{counted(progress.domains, 'new domain')}, {counted(progress.urls, 'new URL')}"
        refused = f", {progress.bad:,} bad" if progress.bad else ""
        output.print_line(f"{counted(progress.lines, unit)}: {counted(progress.seeds, 'seed')} ({new}){refused}.")
    if progress.stopped:
        raise HoldfastError(progress.stopped)
    if progress.bad:
        raise typer.Exit(1)
