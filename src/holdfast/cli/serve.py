"""`holdfast serve` and `holdfast background`: processes that run until they are stopped."""

import os
import socket
import threading
import webbrowser
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from holdfast import factories, failpoints
from holdfast.accounts.service import FIRST, AccountService
from holdfast.cli import command_context, output
from holdfast.cli.command_context import EXIT_INTERRUPTED, Interrupted, say
from holdfast.cli.help import Command
from holdfast.cli.processes import available_cores, holdfast_command, keep_server_running, run_until_stopped
from holdfast.control import database_admin
from holdfast.crawler.supervisor import Supervisor
from holdfast.errors import HoldfastError, UsageError
from holdfast.telemetry import log

WORKER_NICENESS: Final = 5
"""The niceness of worker processes: answers of the API go first."""
MALLOC_ARENAS: Final = "2"
"""MALLOC_ARENA_MAX of all processes, unless the operator has set another: with glibc each thread keeps what it once used, and half of
the memory of the background was of that kind."""
ARROW_POOL: Final = "system"
"""ARROW_DEFAULT_MEMORY_POOL of all processes, unless the operator has set another: Arrow's own allocator (mimalloc) keeps what archives and
exports once used in each thread, and the background grew by 45 MB in 40 minutes; with malloc it gives it back."""


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("background", cls=Command)(background)
    app.command("serve", cls=Command)(serve)
    app.command("front", cls=Command, hidden=True)(front)


def background(
    ctx: typer.Context, supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False
) -> None:
    """Run the background: queue tasks that are due, parse fetched pages, send webhooks, start recurring jobs.

    Run one, or several on several machines with the same HOLDFAST_DATABASE_URL: each piece of work is done once. A machine parses
    the pages of its own archive. A background may be killed at any moment. `holdfast serve` includes one.

    Examples:
        holdfast background
    """
    from holdfast.background.process import run_background

    log.set_up()
    context = command_context.get(ctx)
    context.supervised = supervised
    log.rotate_stderr(factories.log_folder(context.settings))
    database = context.store()
    with keep_server_running(context):
        interrupted = run_background(
            database, lambda: factories.background_services(context.settings, database), supervised=supervised
        )
    if interrupted and not supervised:
        raise typer.Exit(EXIT_INTERRUPTED)


def serve(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address on which the API listens (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the API (default: 8080; 0: any free port).")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Worker processes (default: one a core); with --api-only, processes of the API."
        ),
    ] = None,
    api_only: Annotated[
        bool, typer.Option("--api-only", help="Run the API alone, without workers and background; for replicas.")
    ] = False,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Every request has the rights of an admin; allowed on loopback addresses only."),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the dashboard in the browser of this machine.")
    ] = False,
) -> None:
    """Run the dashboard, the API, the background, and workers for all jobs and tasks, until it is stopped.

    The first start creates the user `admin` and shows the password once. Ctrl-C waits for requests in flight; Ctrl-C twice stops
    at once. Nothing is lost either way.

    Examples:
        holdfast serve
        holdfast serve --open
        holdfast serve --workers 4 --port 9000
        holdfast serve --api-only --workers 2 --host 0.0.0.0
    """
    context = command_context.get(ctx)
    web = context.settings.web
    address, number = host if host is not None else web.host, port if port is not None else web.port
    from holdfast.api import server  # here: it takes a second to import, and no other command needs it

    if no_auth and not server.is_loopback(address):
        raise UsageError(f"--no-auth is for 127.0.0.1, ::1 and localhost only; {address} can be reached by others.")
    store = context.store()
    listener = server.listen(address, number)
    at = f"http://{f'[{address}]' if ':' in address else address}:{listener.getsockname()[1]}"
    if no_auth:
        say(f"WARNING: no authentication. Every program on this machine can do everything at {at}.")
    elif password := AccountService(store, web).ensure_admin():
        say(
            f"This is the first start. User: {FIRST}  Password: {password}  (shown only now; `holdfast users passwd` sets another)"
        )
    count = workers or (1 if api_only else available_cores())
    fronts = count if api_only else web.processes
    crawling = 0 if api_only else count

    def command(place: int) -> Sequence[str]:
        if place <= crawling:
            return holdfast_command(
                context, "worker", "--name", factories.worker_name(place), "--supervised", "--siblings", str(crawling)
            )
        options = ["--api-only"] if api_only or place > crawling + 1 else []  # one process has the background
        options += ["--no-auth"] if no_auth else []
        return holdfast_command(context, "front", "--listener", str(listener.fileno()), "--supervised", *options)

    folder = factories.log_folder(context.settings)
    os.environ.setdefault("MALLOC_ARENA_MAX", MALLOC_ARENAS)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", ARROW_POOL)
    supervisor = Supervisor(
        command,
        crawling + fronts,
        folder,
        name=lambda place: f"worker-{place}" if place <= crawling else f"api-{place - crawling}",
        files=lambda place: () if place <= crawling else (listener.fileno(),),
        nice=lambda place: WORKER_NICENESS if place <= crawling else 0,
    )
    alone = f"{fronts} {'process' if fronts == 1 else 'processes'} of the API alone: no workers, no background"
    what = alone if api_only else output.pluralize(count, "worker")
    say(f"Serving at {at} with {what}; logs are in {output.safe(folder)}. Ctrl-C stops.")
    if open_browser:  # it is answered as soon as the processes run: the socket listens already
        threading.Thread(target=webbrowser.open, args=(at,), daemon=True).start()
    with listener, factories.server_watchdog(context.settings, say):
        interrupted = run_until_stopped(supervisor, say)
    if not interrupted:
        database_admin.check(store)
        raise HoldfastError(f"The processes exit at startup; the logs in {folder} say why.")
    say("Stopped; jobs continue when workers run again.")
    raise Interrupted


def front(
    ctx: typer.Context,
    listener: Annotated[int, typer.Option(min=0)],
    api_only: Annotated[bool, typer.Option("--api-only")] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth")] = False,
    supervised: Annotated[bool, typer.Option("--supervised")] = False,
    failpoint: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Run the API on a socket that `serve` has opened, and the background.

    Examples:
        holdfast serve
    """
    from holdfast.api import server
    from holdfast.background.process import BackgroundProcess

    log.set_up()
    if failpoint is not None:
        failpoints.arm(failpoint)
    context = command_context.get(ctx)
    context.supervised = supervised
    log.rotate_stderr(factories.log_folder(context.settings))
    database = context.store()
    server.run(
        context.settings,
        database,
        socket.socket(fileno=listener),
        no_auth=no_auth,
        make_background=None
        if api_only
        else lambda: BackgroundProcess(database, factories.background_services(context.settings, database)),
        supervised=supervised,
    )
    # A signal stopped it; if the supervisor did not send it, the supervisor starts another process.
    raise typer.Exit(EXIT_INTERRUPTED)
