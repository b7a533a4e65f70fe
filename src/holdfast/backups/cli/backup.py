"""`holdfast backup`: make, list, verify, delete and follow backups; the restore drill."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import factories
from holdfast.backups.records import Backup, BackupReport, Check
from holdfast.cli import command_context, output
from holdfast.cli.command_context import CommandContext, Interrupted, actor, say
from holdfast.cli.help import Command, CommandGroup
from holdfast.cli.output import format_bytes, pluralize, safe
from holdfast.errors import BackupsUnavailable, HoldfastError, StoreError, UsageError
from holdfast.workers.cli import Yes

if TYPE_CHECKING:
    from holdfast.backups.repository import Follow
    from holdfast.backups.restore import Plan, Restorer
    from holdfast.backups.service import BackupService, Watch
    from holdfast.cli.remote.monitoring import RemoteBackups

_WHY_LOCAL: Final = (
    "it reads and writes files of the machine that it runs on. Run it on the machine of the database, or let backup.daily "
    "do it."
)
RETRY_SECONDS: Final = 2.0
"""Seconds between two attempts to follow a server that is unavailable, or to write to a full disk."""

Name = Annotated[str, typer.Argument(metavar="BACKUP", help="Name or folder of a backup, or latest.")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help='A second after it, in UTC ("2026-11-17 14:00"), or latest.'),
]
Scratch = Annotated[
    Path | None, typer.Option("--scratch", metavar="DIR", help="Restore in this folder (default: the data folder).")
]

app = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@app.callback()
def backup(
    ctx: typer.Context,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Copy only the blocks that changed since the last backup.")
    ] = False,
    dump: Annotated[
        bool, typer.Option("--dump", help="Dump the database (pg_dump), as is done for shared servers.")
    ] = False,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also copy the keys of stored secrets; keep such a backup closed.")
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", help="The backups that were in backup.folder are gone for good: forget them, and begin anew."
        ),
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Make a backup of the database, the archive and the images; crawls go on meanwhile.

    It goes to `backup.folder`, which is better on another disk. The keys of secrets are not in it, nor the settings file. A shared
    server (HOLDFAST_DATABASE_URL) is dumped, and its open snapshot makes claims slower meanwhile. With backup.daily=true `serve` and
    `background` make one each day, and any second between them can be restored.

    Examples:
        holdfast backup
        holdfast backup --incremental
        holdfast backup list
        holdfast backup verify latest
        holdfast backup drill
    """
    if ctx.invoked_subcommand is not None:
        return
    context = command_context.get(ctx)
    context.require_local("`holdfast backup`", _WHY_LOCAL)
    service = _service(context)
    with _progress("Making a backup") as watch:
        made = service.make(
            incremental=incremental, dump=dump, with_keys=with_keys, anew=anew, actor=actor(), watch=watch
        )
    if as_json:
        output.print_json(made)
        return
    output.print_line(f"Backup {made.name} is complete: {format_bytes(made.bytes or 0)} in {safe(made.place)}.")
    if not with_keys:
        say("The keys of secrets and the settings file are not in it; keep them apart (--with-keys copies the keys).")


@app.command("list", cls=Command)
def list_backups(ctx: typer.Context, as_json: output.Json = False) -> None:
    """List the backups that are kept, and between which seconds the store can be restored. Times are in UTC.

    Examples:
        holdfast backup list
        holdfast backup list --json
    """
    context = command_context.get(ctx)
    found = _reporter(context).report()
    if as_json:
        output.print_json(found)
        return
    if found.backups:
        columns = ["BACKUP", "STATE", "HOLDS (UTC)", "SIZE", "BEGINS AT", "VERIFIED (UTC)"]
        notes = {number: safe(one.error) for number, one in enumerate(found.backups) if one.error}
        output.print_table(columns, [_row(one) for one in found.backups], notes, right="SIZE")
    else:
        say("There is no backup; `holdfast backup` makes one.")
    for line in _following(found):
        say(line)


@app.command("verify", cls=Command)
def verify(
    ctx: typer.Context, name: Name = "latest", to: To = None, scratch: Scratch = None, as_json: output.Json = False
) -> None:
    """Restore a backup into a scratch folder and run `holdfast verify` on it. Exit code 1 if a check fails.

    The store in use is not touched. The scratch folder takes as much space as the database, and is deleted at the end.

    Examples:
        holdfast backup verify
        holdfast backup verify latest --to "2026-11-17 14:00"
    """
    context = command_context.get(ctx)
    context.require_local("`holdfast backup verify`", _WHY_LOCAL)
    service = _service(context)
    with _progress("Verifying a backup") as watch:
        restorer, plan = plan_of(context, service.folder, name, to, watch)
        result = service.verify(restorer, plan, scratch if scratch is not None else context.settings.data)
    if as_json:
        output.print_json(result)
    else:
        for line in result.faults:
            output.print_line(safe(line))
        changed = output.format_second(result.last_change_at)
        verdict = (
            f"{pluralize(result.checks, 'check')}: all passed"
            if result.ok
            else f"{pluralize(len(result.faults), 'fault')} found"
        )
        output.print_line(f"{result.backup}, restored in {result.seconds:.1f} s, last change {changed} UTC: {verdict}.")
    if not result.ok:
        raise typer.Exit(1)


@app.command("delete", cls=Command)
def delete(
    ctx: typer.Context,
    name: Name,
    dependents: Annotated[
        bool, typer.Option("--dependents", help="Also those that cannot be restored without it.")
    ] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Delete a backup. Older ones than the newest `backup.keep` are deleted by themselves.

    Examples:
        holdfast backup delete 20261117T030000Z-full
        holdfast backup delete 20261117T030000Z-full --dependents --yes
    """
    context = command_context.get(ctx)
    context.require_local("`holdfast backup delete`", _WHY_LOCAL)
    service = _service(context)
    if not yes:
        service.check_known(name)
        also = " and those that cannot be restored without it" if dependents else ""
        command_context.confirm(f"Delete the backup {safe(name)}{also}?", "Nothing was deleted.")
    gone = service.delete(name, actor=actor(), dependents=dependents)
    if as_json:
        output.print_json({"deleted": gone})
    else:
        output.print_line(f"Deleted: {', '.join(gone)}.")


@app.command("drill", cls=Command)
def drill(
    ctx: typer.Context, name: Name = "latest", to: To = None, scratch: Scratch = None, as_json: output.Json = False
) -> None:
    """Run the recovery testing checklist with a backup, in a scratch folder. Exit code 1 if a line fails.

    It restores the database, compares its rows, checks all pages and invariants, starts the API and the dashboard on it, and keeps the
    result beside the backups. The store in use is not touched.

    Examples:
        holdfast backup drill
        holdfast backup drill latest --json
    """
    context = command_context.get(ctx)
    context.require_local("`holdfast backup drill`", _WHY_LOCAL)
    service = _service(context)

    def print_check(line: Check) -> None:
        if not as_json:
            output.print_line(f"[{'x' if line.ok else ' '}] {line.name}: {safe(line.result)}")

    with _progress("Restoring a backup") as watch:
        restorer, plan = plan_of(context, service.folder, name, to, watch)
        done = service.drill(restorer, plan, scratch if scratch is not None else context.settings.data, print_check)
    if as_json:
        output.print_json(done)
    elif not done.ok:
        say(f"{sum(not one.ok for one in done.checks)} of {len(done.checks)} lines failed.")
    if not done.ok:
        raise typer.Exit(1)


@app.command("follow", cls=Command)
def follow(ctx: typer.Context) -> None:
    """Keep the log of the bundled server until it is stopped, so that any second after the last backup can be restored.

    `serve` and `background` do it themselves with backup.daily=true; this is for crawls without them. It makes a backup first if there is
    none that the log can continue.

    Examples:
        holdfast backup follow
    """
    from holdfast.backups import follower

    context = command_context.get(ctx)
    context.require_local("`holdfast backup follow`", _WHY_LOCAL)
    service = _service(context)
    stop = threading.Event()

    def stopped(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    report = _FollowReport(service)
    service.repository()  # a folder of another user is no matter of trying again
    try:
        with factories.server_watchdog(context.settings, say):
            while not stop.is_set():
                try:
                    follower.follow(service, stop.is_set, stop.wait, report.on_tick)
                except (StoreError, BackupsUnavailable) as why:
                    report.print_problem(why)
                    stop.wait(RETRY_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise Interrupted


class _FollowReport:
    """What `backup follow` says, each thing once, and the backup that it makes first."""

    def __init__(self, service: "BackupService") -> None:
        self._service = service
        self._said = ""

    def on_tick(self, reached: "Follow | None", needs_backup: bool) -> None:
        """Make a backup if there is none that the log can continue; say from when on seconds can be restored."""
        if reached is None:
            return
        if not needs_backup:
            if self._said != "follows":
                self._said = "follows"
                say(f"Every second from {output.format_second(reached.until)} UTC on can be restored. Ctrl-C stops.")
        elif self._service.is_due(wanted=True):  # not where one failed a moment ago
            say("Making a backup that the log can continue …")
            try:
                say(f"{self._service.make(actor=actor()).name} is complete.")
            except HoldfastError as why:
                self.print_problem(why)

    def print_problem(self, why: HoldfastError) -> None:
        """Print a problem, unless it was the last thing printed."""
        if self._said != str(why):
            self._said = str(why)
            say(f"{why} It is tried again.")


def plan_of(
    context: CommandContext, folder: Path, name: str, to: str | None, watch: "Watch"
) -> "tuple[Restorer, Plan]":
    """The restorer of a backup that is given by name or path, and the plan for it."""
    from holdfast.backups.repository import locate, open_repository

    repository, name = locate(name, open_repository(folder))
    restorer = factories.restorer(context.settings, repository.folder, say, watch)
    return restorer, restorer.plan(name, parse_to(to))


def parse_to(text: str | None) -> datetime | None:
    """The value of --to. Raises UsageError."""
    from holdfast.backups.restore import parse_second

    try:
        return None if text is None else parse_second(text)
    except ValueError:
        raise UsageError(f'--to {text!r} is not a time; write "2026-11-17 14:00" (UTC), or latest.') from None


@contextmanager
def _progress(what: str) -> "Iterator[Watch]":
    with output.ProgressBar(what, None, "byte") as bar:
        yield lambda step, done: bar.step(step, format_bytes(done) if done else "")


progress = _progress


def _service(context: CommandContext) -> "BackupService":
    return factories.backup_service(context.settings, context.store())


def _reporter(context: CommandContext) -> "BackupService | RemoteBackups":
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteBackups

        return RemoteBackups(context.client)
    return _service(context)


def _row(one: Backup) -> tuple[Any, ...]:
    return (
        one.name,
        one.state,
        output.format_second(one.ended_at),
        "-" if one.bytes is None else format_bytes(one.bytes),
        one.parent or "-",
        output.format_time(one.verified_at),
    )


def _following(found: BackupReport) -> Iterator[str]:
    following = found.following
    complete = [one for one in found.backups if one.state == "complete"]
    if following is None:
        if complete and complete[0].kind == "dump":
            yield (
                "The store can be restored as it was when one of these dumps was made, and at no time between them; for that use the WAL "
                "archiving of the server itself."
            )
        elif complete and not found.daily:
            yield (
                "The store can be restored as it was when one of these backups was made (HOLDS), and at no time between them. With "
                "backup.daily=true, or while `holdfast backup follow` runs, every second after them can be restored."
            )
        elif not found.daily:
            yield "No daily backup is made (backup.daily)."
        return
    if following.restorable_since is not None:
        since, until = (
            output.format_second(following.restorable_since),
            output.format_second(following.restorable_until),
        )
        yield f"Every second from {since} to {until} UTC can be restored."
    for sentence in (following.problem, following.given_up):
        if sentence:
            yield safe(sentence)
