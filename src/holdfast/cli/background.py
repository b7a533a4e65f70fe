"""`holdfast background` and `holdfast serve`: what runs for as long as it is not stopped."""

import socket
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from holdfast import failpoints, wiring
from holdfast.cli import output, session
from holdfast.cli.crawl import cores
from holdfast.cli.help import Command
from holdfast.cli.session import INTERRUPTED, Stopped, say
from holdfast.cli.supervising import keeping, look_after, program
from holdfast.control.accounts import FIRST, AccountDesk
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import HoldfastError, UsageError
from holdfast.telemetry import log

COURTESY: Final = 5
"""How nice workers are: people wait for answers of the API, nobody for a page."""


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("background", cls=Command)(background)
    app.command("serve", cls=Command)(serve)
    app.command("front", cls=Command, hidden=True)(front)


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
    of.supervised = supervised
    log.keep_small(wiring.log_folder(of.settings))
    database = of.store()
    with keeping(of):
        told = run_background(database, lambda: wiring.crew(of.settings, database), supervised=supervised)
    if told and not supervised:
        raise typer.Exit(INTERRUPTED)


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where the API listens (default: 127.0.0.1).")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Its port (default: 8080; 0: any).")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Worker processes (default: one a core); with --api-only processes of the API."
        ),
    ] = None,
    api_only: Annotated[
        bool, typer.Option("--api-only", help="The API alone: no workers, no background. For replicas.")
    ] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Whoever asks is an admin. Only on an address of this machine itself.")
    ] = False,
) -> None:
    """Run workers for all jobs and tasks, the background, and the API, until it is stopped.

    The first start makes a user `admin` and shows the password once. Ctrl-C stops in order; twice stops at once, and is as safe.

    Examples:
        holdfast serve
        holdfast serve --workers 4 --port 9000
        holdfast serve --api-only --workers 2 --host 0.0.0.0
    """
    of = session.of(context)
    web = of.settings.web
    address, number = host if host is not None else web.host, port if port is not None else web.port
    from holdfast.web import server  # here: it takes a second to load, and no other command needs it

    if no_auth and not server.is_loopback(address):
        raise UsageError(f"--no-auth is for 127.0.0.1, ::1 and localhost only; {address} can be reached by others.")
    store = of.store()
    listener = server.listen(address, number)
    at = f"http://{f'[{address}]' if ':' in address else address}:{listener.getsockname()[1]}"
    if no_auth:
        say(f"WARNING: no authentication. Every program on this machine can do everything at {at}.")
    elif password := AccountDesk(store, web).ensure_admin():
        say(
            f"This is the first start. User: {FIRST}  Password: {password}  (shown only now; `holdfast users passwd` sets another)"
        )
    count = workers or (1 if api_only else cores())
    fronts = count if api_only else web.processes
    crawling = 0 if api_only else count

    def command(place: int) -> Sequence[str]:
        if place <= crawling:
            return program(
                of, "worker", "--name", wiring.worker_name(place), "--supervised", "--siblings", str(crawling)
            )
        options = ["--api-only"] if api_only or place > crawling + 1 else []  # one has the background beside it
        options += ["--no-auth"] if no_auth else []
        return program(of, "front", "--listener", str(listener.fileno()), "--supervised", *options)

    folder = wiring.log_folder(of.settings)
    supervisor = Supervisor(
        command,
        crawling + fronts,
        folder,
        name=lambda place: f"worker-{place}" if place <= crawling else f"api-{place - crawling}",
        files=lambda place: () if place <= crawling else (listener.fileno(),),
        nice=lambda place: COURTESY if place <= crawling else 0,
    )
    alone = f"{fronts} {'process' if fronts == 1 else 'processes'} of the API alone: no workers, no background"
    what = alone if api_only else output.counted(count, "worker")
    say(f"Serving at {at} with {what}; logs are in {output.safe(folder)}. Ctrl-C stops.")
    with listener, wiring.kept_up(of.settings, say):
        told_to_stop = look_after(supervisor, say)
    if not told_to_stop:
        raise HoldfastError(f"The processes end as soon as they begin; what is in {folder} says why.")
    say("Stopped; jobs go on when workers run again.")
    raise Stopped


def front(
    context: typer.Context,
    listener: Annotated[int, typer.Option(min=0)],
    api_only: Annotated[bool, typer.Option("--api-only")] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth")] = False,
    supervised: Annotated[bool, typer.Option("--supervised")] = False,
    failpoint: Annotated[str | None, typer.Option()] = None,
) -> None:
    """The API on a socket that `serve` has opened, and the background beside it.

    Examples:
        holdfast serve
    """
    from holdfast.background.process import Background
    from holdfast.web import server

    log.set_up()
    if failpoint is not None:
        failpoints.arm(failpoint)
    of = session.of(context)
    of.supervised = supervised
    log.keep_small(wiring.log_folder(of.settings))
    database = of.store()
    server.run(
        of.settings,
        database,
        socket.socket(fileno=listener),
        no_auth=no_auth,
        beside=None if api_only else lambda: Background(database, wiring.crew(of.settings, database)),
        supervised=supervised,
    )
    raise typer.Exit(INTERRUPTED)  # somebody told it to stop; if that was not the supervisor, it starts another one
