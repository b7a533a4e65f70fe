"""`holdfast background` and `holdfast serve`: what runs for as long as it is not stopped."""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast import wiring
from holdfast.cli import output, session
from holdfast.cli.crawl import cores
from holdfast.cli.help import Command
from holdfast.cli.session import INTERRUPTED, Session, say
from holdfast.cli.supervising import look_after, program
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import HoldfastError
from holdfast.telemetry import log


def register(app: typer.Typer, panel: str | None) -> None:
    """Add these commands to the program."""
    app.command("background", cls=Command, rich_help_panel=panel)(background)
    app.command("serve", cls=Command, rich_help_panel=panel)(serve)


def background(
    context: typer.Context, supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False
) -> None:
    """Do what happens beside the crawl: queue tasks that are due, parse fetched pages, send webhooks, begin recurring jobs.

    Run one, or several on several machines, with the same HOLDFAST_DATABASE_URL: each thing is done once. A machine parses what
    its own archive has. It may be killed at any moment. `holdfast serve` runs one beside its workers.

    Examples:
        holdfast background
    """
    from holdfast.background.process import run_background

    log.set_up()
    of = session.of(context)
    database = of.store()
    if run_background(database, lambda: wiring.crew(of.settings, database), supervised=supervised) and not supervised:
        raise typer.Exit(INTERRUPTED)


def serve(
    context: typer.Context,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Worker processes (default: one a core).")
    ] = None,
) -> None:
    """Run workers for all jobs and tasks, and the background, until it is stopped.

    Ctrl-C stops in order; twice stops at once, and is as safe.

    Examples:
        holdfast serve
        holdfast serve --workers 4
    """
    of = session.of(context)
    of.store()
    count = workers or cores()
    folder = wiring.log_folder(of.settings)
    supervisor = Supervisor(lambda number: _command(of, number, count), count + 1, folder)
    say(f"Serving with {output.counted(count, 'worker')}; what they say is in {output.safe(folder)}. Ctrl-C stops.")
    if not look_after(supervisor, say):
        raise HoldfastError(f"The processes end as soon as they begin; what is in {folder} says why.")
    raise typer.Exit(INTERRUPTED)


def _command(of: Session, number: int, workers: int) -> Sequence[str]:
    """Of the worker with this number; behind the last one comes the background."""
    if number > workers:
        return program(of, "background", "--supervised")
    return program(of, "worker", "--name", wiring.worker_name(number), "--supervised")
