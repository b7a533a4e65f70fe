"""`holdfast seeds`: say what is to be crawled."""

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast import wiring
from holdfast.cli import output, session
from holdfast.control.seeds import Loaded, Sower, open_seeds

app = typer.Typer(help="Say what is to be crawled.", no_args_is_help=True)

_BAD_LINES_SHOWN = 20


def _sower(of: session.Session) -> Sower:
    settings = of.settings
    return Sower(of.store(), wiring.url_rules(settings), wiring.new_domains(settings), settings.domains.registrable)


@app.command("add")
def add(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(help="URLs or domains.")],
    as_json: output.Json = False,
) -> None:
    """Seed URLs or domains.

    [dim]Examples:[/dim]

        holdfast seeds add https://example.com/start

        holdfast seeds add example.com example.org
    """
    _report(_sower(session.of(context)).add(urls), "argument", as_json)


@app.command("load")
def load(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A file, plain or gzip; - is standard input.")],
    source: Annotated[
        str | None, typer.Option(help="What to call where these came from (default: the file's name).")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Seed every line of a file: URLs, domains, or CSV with rank,domain. # begins a comment.

    Lines that are no seeds are reported with their numbers; the rest loads, and the exit code is 1. Loading a file again adds
    what is missing and changes nothing that was learnt.

    [dim]Examples:[/dim]

        holdfast seeds load sites.txt

        holdfast seeds load tranco.csv.gz --source tranco_20260205

        curl … | holdfast seeds load -
    """
    stream, size, name = open_seeds(file)
    loaded = Loaded()
    with stream, _progress() as progress:
        task = progress.add_task("Loading seeds", total=size, lines="")
        for loaded in _sower(session.of(context)).load(stream, source=source or name):
            progress.update(task, completed=loaded.bytes_read, lines=f"{loaded.lines:,} lines")
    _report(loaded, "line", as_json)


def _progress() -> Progress:
    """A bar on a terminal's standard error; nothing where that is a file."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[lines]}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _report(loaded: Loaded, unit: str, as_json: bool) -> None:
    for bad in loaded.bad_lines[:_BAD_LINES_SHOWN]:
        session.say(f"{unit} {bad.line}: {output.safe(bad.problem)}")
    if loaded.bad > _BAD_LINES_SHOWN:
        session.say(f"… and {loaded.bad - _BAD_LINES_SHOWN:,} more")
    if as_json:
        output.print_json(loaded)
    else:
        new = f"of which new: {loaded.domains:,} domains and {loaded.urls:,} URLs"
        output.print_line(f"{loaded.lines:,} {unit}s: {loaded.seeds:,} seeds, {new}; {loaded.bad:,} bad.")
    if loaded.bad:
        raise typer.Exit(1)
