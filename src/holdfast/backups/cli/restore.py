"""`holdfast restore`: a store from a backup, as of any second that is kept."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast import factories
from holdfast.backups.cli.backup import Name, To, plan_of, progress
from holdfast.backups.records import Restored
from holdfast.cli import command_context, output
from holdfast.cli.command_context import actor, say
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize, safe
from holdfast.errors import UsageError
from holdfast.workers.cli import Yes


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("restore", cls=Command)(restore)


def restore(
    ctx: typer.Context,
    name: Name,
    to: To = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="DIR", help="The data folder to restore into; default: the one in use (--data)."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run all checks before it takes its place.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the backup's files, and say what would be restored.")
    ] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Restore a backup into the data folder, or with --into into another one, as of its second or, with --to, of any later one that the
    log has.

    Into an empty or new folder it restores a store of its own. Where a store is, it asks, refuses while anything runs on it, and keeps the
    replaced database beside the new one. The restored store begins a new generation: workers of the old one write nothing any more. A
    dump is loaded into the data folder, or into the empty database of HOLDFAST_DATABASE_URL.

    Examples:
        holdfast restore latest
        holdfast restore latest --to "2026-11-17 14:00"
        holdfast restore latest --into restored
        holdfast restore latest --dry-run
    """
    context = command_context.get(ctx)
    context.require_local()
    settings = context.settings
    folder = factories.backup_folder(settings)
    if into is not None:
        if settings.database_url is not None:
            raise UsageError(
                "--into names a data folder with a bundled database; HOLDFAST_DATABASE_URL is set. Leave one of them out."
            )
        settings = settings.model_copy(update={"data": into})
    with progress("Restoring") as watch:
        restorer, plan = plan_of(context, folder, name, to, watch)
        wrong = restorer.problems(plan) if dry_run else []
    target = settings.data if settings.database_url is None else Path("the database of HOLDFAST_DATABASE_URL")
    if dry_run:
        names = [one.name for one in plan.chain]
        if as_json:
            output.print_json({"backups": names, "data": str(target), "problems": wrong})
        else:
            output.print_line(f"Would restore {', '.join(names)} into {safe(target)}.")
            for line in wrong:
                output.print_line(safe(line))
        if wrong:
            raise typer.Exit(1)
        return
    if settings.database_url is None and factories.has_store(settings) and not yes:
        question = f"Replace the database in {safe(target)} by {plan.backup.name}? The present one is kept beside it."
        command_context.confirm(question, "Nothing was restored.")
    with progress("Restoring") as watch:
        restorer = factories.restorer(settings, restorer.repository.folder, say, watch)
        if settings.database_url is None:
            done = restorer.restore(plan, settings.data, actor=actor(), verify=check)
        else:
            done = restorer.restore_shared(plan, context.database(), settings.data, actor=actor(), verify=check)
    if as_json:
        output.print_json(done)
    else:
        _print(done)


def _print(done: Restored) -> None:
    output.print_line(
        f"Restored {done.backup} into {safe(done.data)} in {done.seconds:.1f} s (generation {done.generation})."
    )
    if done.asked_for is not None:
        output.print_line(f"It is the store as of {output.format_second(done.asked_for)} UTC.")
    output.print_line(f"Its last change is of {output.format_second(done.last_change_at)} UTC.")
    output.print_line(f"{format_bytes(done.bytes)} of archive and images were copied.")
    output.print_line(
        f"{pluralize(done.checks, 'check')}: all passed." if done.checks else "It was not verified (--no-verify)."
    )
    if done.aside is not None:
        say(f"The database that was there before is in {safe(done.aside)}; delete it when it is not needed any more.")
    for note in done.notes:
        say(safe(note))
