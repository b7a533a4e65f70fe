"""`holdfast db move`: move the store to another database."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output, secret_options
from holdfast.cli.command_context import CommandContext, say
from holdfast.cli.help import Command
from holdfast.control.store_move import Destination, MovePlan, MoveResult, MoveService, Progress, source_database
from holdfast.db import embedded
from holdfast.db.connection import Database, redact
from holdfast.errors import Refused, UsageError
from holdfast.settings import Settings
from holdfast.workers.cli import DryRun, Yes

_NO_DESTINATION = Destination(lambda: Database(""), "", "")
_URL = ("postgresql://", "postgres://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""How a URL begins, also one with a slash too few, which would be a strange name for a folder."""


def register(app: typer.Typer) -> None:
    """Add the command to `holdfast db`."""
    app.command("move", cls=Command)(move)


def move(
    ctx: typer.Context,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL|embedded|DIR",
            help="Address of a PostgreSQL server (env:NAME or @FILE reads it from there), `embedded` for the bundled server of the data "
            "folder, or another data folder, to which archive and images go, too.",
        ),
    ] = None,
    abandon: Annotated[bool, typer.Option("--abandon", help="Give up a move; the store takes writes again.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite the old copy of this store that is still there.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Move the store to another PostgreSQL server, or to the bundled one, while it is in use.

    Closed partitions of the log are copied while the crawl goes on. Then comes a pause, which is announced: the old store refuses claims
    and writes, the rest is copied, every table is counted and hashed in both, and the new store takes over. Killed at any moment, the old
    store is whole: the same command continues, and --abandon takes the move back.

    Examples:
        holdfast db move --to env:NEW_DATABASE_URL --dry-run
        holdfast db move --to postgresql://crawler@db.example/holdfast
        holdfast db move --to embedded
        holdfast db move --abandon
    """
    context = command_context.get(ctx)
    context.require_local(
        "`holdfast db move`", "it copies the database and its files. Run it on the machine of the store."
    )
    if to is None and not abandon:
        raise UsageError("Say where to: --to postgresql://…, --to embedded, or --to with another data folder.")
    source = source_database(context.database(), context.store)
    destination = _NO_DESTINATION if to is None else _destination(to, context)
    with output.ProgressBar("Moving", None, "row", hidden=as_json) as bar:
        service = MoveService(
            source,
            destination,
            data=context.settings.data,
            actor=command_context.actor(),
            say=say,
            progress=lambda now: _show(bar, now),
        )
        if abandon:
            _abandon(service, as_json)
            return
        if dry_run:
            plan = service.plan()
        else:
            plan = None
            result = service.run(
                confirm=lambda seconds: _confirm(seconds, destination, bar, asked=not yes), replace=replace
            )
    if plan is not None:
        _print_plan(plan, as_json)
    else:
        _print_result(result, as_json, context.settings, destination)


def _destination(to: str, context: CommandContext) -> Destination:
    settings = context.settings
    text = secret_options.read_value(to, "--to").strip()
    if text == "embedded":
        if settings.database_url is None:
            raise Refused(f"The store is in the bundled server of {settings.data} already; --to names another place.")
        return _bundled(settings, settings.data, "unset HOLDFAST_DATABASE_URL", files=False)
    if text.startswith(_URL):
        database = replace(factories.database_at(settings, text), setting="--to")
        advice = "set HOLDFAST_DATABASE_URL to the address of that database"
        return Destination(lambda: database, redact(text), advice)
    if _SCHEME.match(text) or (
        "/" not in text and not text.startswith((".", "~"))
    ):  # not repeated: it may hold a password
        raise UsageError(
            "What --to says is neither a URL (postgresql://…) nor `embedded` nor a folder (./NAME would be one)."
        )
    folder = Path(text).expanduser().absolute()
    unset = "unset HOLDFAST_DATABASE_URL and " if settings.database_url is not None else ""
    return _bundled(settings, folder, f"{unset}say --data {folder}, or set HOLDFAST_DATA to it", files=True)


def _bundled(settings: Settings, folder: Path, advice: str, *, files: bool) -> Destination:
    def database() -> Database:
        return factories.database_at(settings, embedded.ensure_running(folder, say).url())

    @contextmanager
    def look() -> Iterator[Database | None]:
        if not embedded.is_created(folder):
            yield None
            return
        before = embedded.state(folder)
        try:
            yield database()
        finally:
            if before is embedded.State.STOPPED:
                embedded.stop(folder, say)

    name = f"the bundled server of {folder.absolute()} on {socket.gethostname()}"
    return Destination(database, name, advice, folder if files else None, look)


def _confirm(seconds: float, destination: Destination, bar: output.ProgressBar, *, asked: bool) -> None:
    with bar.hidden():
        say(
            f"Now the crawl has to pause for about {_duration(seconds)}: the rest is copied to {output.safe(destination.name)} and "
            "compared, and nothing can be written meanwhile. Workers wait, and end when the store has moved."
        )
        if asked:
            command_context.confirm(
                "Begin the pause?", "The store was not moved; what was copied is kept for the next attempt."
            )


def _show(bar: output.ProgressBar, now: Progress) -> None:
    bar.show(now.bytes, now.rows, total=now.of_bytes or None)


def _abandon(service: MoveService, as_json: bool) -> None:
    destination = service.abandon()
    if as_json:
        output.print_json({"abandoned": destination})
    else:
        output.print_line(
            f"The move to {output.safe(destination)} is given up. This store takes writes again; what was copied there is not used."
        )


def _print_plan(plan: MovePlan, as_json: bool) -> None:
    if as_json:
        output.print_json(asdict(plan))
        return
    output.print_line(f"To          {output.safe(plan.destination)}")
    if plan.state != "new":
        output.print_line(f"Under way   {plan.state}; the same command goes on")
    output.print_line(
        f"Tables      {plan.tables}, about {plan.rows:,} rows, {output.format_bytes(plan.bytes)} with indexes"
    )
    output.print_line(f"Ahead       {output.format_bytes(plan.ahead_bytes)} while the crawl goes on")
    if plan.files:
        output.print_line(f"Files       {output.pluralize(plan.files, 'file')}, {output.format_bytes(plan.file_bytes)}")
    output.print_line(f"Pause       about {_duration(plan.pause_seconds)} for {output.format_bytes(plan.pause_bytes)}")
    if plan.replaces:
        output.print_line("Replaces    the old copy of this store there (needs --replace)")
    output.print_line("Nothing was changed.")


def _print_result(result: MoveResult, as_json: bool, settings: Settings, destination: Destination) -> None:
    if as_json:
        output.print_json(asdict(result))
        return
    files = f", {output.pluralize(result.files, 'file')}" if result.files else ""
    output.print_line(
        f"Moved to {output.safe(result.destination)}: {result.tables} tables, {result.rows:,} rows, counted and hashed in both{files}."
    )
    steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.steps.items() if seconds >= 0.05)
    output.print_line(f"The pause lasted {_duration(result.pause_seconds)}{f' ({steps})' if steps else ''}.")
    output.print_line(
        f"On every machine: stop what still runs, {output.safe(result.advice)}, and start the workers again."
    )
    backups = settings.data / "backups"
    if destination.data is not None and backups.is_dir():
        output.print_line(
            f"Backups of the old store stay in {output.safe(backups)}: `holdfast restore` takes their path."
        )
    if settings.database_url is None:
        output.print_line(
            f"The old server of {settings.data} refuses writes and says where the store is; "
            "`env -u HOLDFAST_DATABASE_URL holdfast db stop` stops it."
        )
    else:
        place = settings.origin("database_url").place
        where = "" if place == "HOLDFAST_DATABASE_URL" else f" ({output.safe(place)})"
        output.print_line(f"HOLDFAST_DATABASE_URL still names the old database here{where}.")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
