"""`holdfast segments`: which machine has which file of the archive, upload now, and a machine that is lost."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, CommandGroup
from holdfast.cli.output import format_bytes, format_time, pluralize, safe
from holdfast.errors import UsageError
from holdfast.segments.records import LostMachine
from holdfast.segments.service import SegmentService, upload_now

if TYPE_CHECKING:
    from holdfast.cli.remote.segments import RemoteSegments

_EXAMPLES = 10

app = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@app.callback()
def segments(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show the machines whose archives go to an object store (the setting archive.store), and what only they have.

    Examples:
        holdfast segments
        holdfast segments list --state local
        holdfast segments lost crawler-3 --dry-run
    """
    if ctx.invoked_subcommand is not None:
        return
    found = _service(ctx).machines()
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say("No machine has uploaded a part of the archive: the setting archive.store says where to.")
        return
    rows = [
        (
            one.id,
            one.name,
            one.open,
            one.waiting,
            format_bytes(one.waiting_bytes),
            f"{one.uploaded:,}",
            format_bytes(one.uploaded_bytes),
            one.lost,
            "lost" if one.lost_at else "uploads fail" if one.problem else "ok",
        )
        for one in found
    ]
    columns = ["ID", "MACHINE", "OPEN", "WAITING", "ON ITS DISK ONLY", "UPLOADED", "BYTES", "LOST", "STATE"]
    notes = {
        at: f"since {format_time(one.problem_since)} UTC: {safe(one.problem)}"
        for at, one in enumerate(found)
        if one.problem
    }
    output.print_table(columns, rows, notes, right="ID OPEN WAITING UPLOADED LOST")


@app.command("list", cls=Command)
def list_segments(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only open, local, uploaded or lost ones.")
    ] = None,
    machine: Annotated[str | None, typer.Option("--machine", metavar="NAME", help="Only of this machine.")] = None,
    after: Annotated[str, typer.Option("--after", metavar="SEGMENT", help="Continue after this one.")] = "",
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List files of the archive: the machine, size, state and times of each, and its SHA-256 with --json.

    Examples:
        holdfast segments list --state local
        holdfast segments list --machine crawler-3 --json
    """
    found = _service(ctx).list(state=state, machine=machine, after=after, limit=limit)
    last = found[-1].segment if len(found) == limit else None
    if as_json:
        output.print_json({"segments": found, "after": last})
        return
    if not found:
        command_context.say(
            "There are no such segments. Segments are listed where archive.store is set; `holdfast segments` shows the machines."
        )
        return
    rows = [
        (
            one.segment,
            one.machine,
            one.state,
            "-" if one.bytes is None else format_bytes(one.bytes),
            format_time(one.opened_at),
            format_time(one.uploaded_at),
        )
        for one in found
    ]
    output.print_table(["SEGMENT", "MACHINE", "STATE", "SIZE", "OPENED (UTC)", "UPLOADED (UTC)"], rows)
    if last:
        command_context.say(f"More rows: --after {safe(last)}.")


@app.command("upload", cls=Command)
def upload(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Upload all finished files of this machine's archive now. Workers do it by themselves; this is for a machine that has none any more.

    Examples:
        holdfast segments upload
        holdfast segments upload --json
    """
    context = command_context.get(ctx)
    context.require_local(
        "`holdfast segments upload`",
        "it uploads files from the disk of the machine that it runs on. Run it on the machine that has them.",
    )
    uploader = factories.segment_uploader(context.settings, context.store())
    if uploader is None:
        raise UsageError("There is no object store to upload to: set archive.store (HOLDFAST_ARCHIVE_STORE).")
    with output.ProgressBar("Uploading", None, "file") as bar:
        done = upload_now(uploader, lambda now: bar.show(now.uploaded, now.uploaded, now.uploaded + now.left))
    if as_json:
        output.print_json(done)
        return
    output.print_line(f"{pluralize(done.uploaded, 'file')} uploaded ({format_bytes(done.bytes)}).")
    if done.left:
        command_context.say(
            f"{pluralize(done.left, 'file')} still open: a worker writes there, and uploads it when it is finished."
        )


@app.command("lost", cls=Command)
def lost(
    ctx: typer.Context,
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Its name, or its id in `holdfast segments`.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost; change nothing.")] = False,
    yes: option_types.Yes = False,
    as_json: output.Json = False,
) -> None:
    """Declare a machine lost for good, with all that it had not uploaded.

    `holdfast verify` then names the pages that went with it as archive_lost, and `holdfast replay --lost` queues them again. If the
    machine comes back with its disk, it uploads what it has, and its pages are lost no more.

    Examples:
        holdfast segments lost crawler-3 --dry-run
        holdfast segments lost crawler-3 --yes
    """
    service = _service(ctx)
    found = service.count_lost(machine)
    if not dry_run:
        if not yes:
            _print(found)
            command_context.confirm(f"Is {safe(found.machine)} lost for good?", "Nothing was declared lost.")
        found = service.lose(machine, actor=actor())
    if as_json:
        output.print_json(found)
    elif dry_run or yes:
        _print(found)
    if not dry_run and not as_json and found.pages:
        command_context.say("`holdfast replay --lost` queues these pages again.")


def _print(found: LostMachine) -> None:
    verb = "would be lost" if found.dry_run else "is lost" if len(found.segments) == 1 else "are lost"
    output.print_line(
        f"{pluralize(len(found.segments), 'file')} of {safe(found.machine)} {verb}, with {pluralize(found.pages, 'page')} and "
        f"{pluralize(found.versions, 'earlier version')} of pages."
    )
    for segment in found.segments[:_EXAMPLES]:
        output.print_line(f"  {safe(segment)}")
    if len(found.segments) > _EXAMPLES:
        output.print_line(f"  … and {len(found.segments) - _EXAMPLES:,} more")


def _service(ctx: typer.Context) -> "SegmentService | RemoteSegments":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.segments import RemoteSegments

        return RemoteSegments(context.client)
    return SegmentService(context.store())
