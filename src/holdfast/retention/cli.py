"""`holdfast retention` and `holdfast archive`: what is kept how long, what was archived, and its restore."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast import factories
from holdfast.archive.file_store import DEFAULT
from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command, CommandGroup
from holdfast.cli.output import format_bytes, format_time, pluralize
from holdfast.errors import HoldfastError
from holdfast.model import duration
from holdfast.retention.records import ArchiveEntry, RetentionResult, StepResult
from holdfast.retention.restore import KEEP, ArchiveService
from holdfast.retention.service import SEGMENTS, URL_STEPS, RetentionService

if TYPE_CHECKING:
    from holdfast.cli.remote.retention import RemoteArchives, RemoteRetention

_LAST_ID: Final = 2**63 - 1
_EXAMPLES: Final = 20

retention_app = typer.Typer(cls=CommandGroup, no_args_is_help=True)
archive_app = typer.Typer(cls=CommandGroup, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.add_typer(retention_app, name="retention", help="What is kept how long, and what was archived.")
    app.add_typer(archive_app, name="archive", help="Archives of what was deleted: list, check, restore.")


def _retention(ctx: typer.Context) -> "RetentionService | RemoteRetention":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.retention import RemoteRetention

        return RemoteRetention(context.client)
    return factories.retention_service(context.settings, context.store())


def _archives(ctx: typer.Context) -> "ArchiveService | RemoteArchives":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.retention import RemoteArchives

        return RemoteArchives(context.client)
    return factories.archive_service(context.settings, context.store())


@retention_app.command("status", cls=Command)
def status(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show what is kept how long, when retention ran, and what it has archived.

    Examples:
        holdfast retention status
        holdfast retention status --json
    """
    found = _retention(ctx).status()
    if as_json:
        output.print_json(found)
        return
    rows = [
        (rule.what, "forever" if rule.kept is None else duration.render(rule.kept), rule.setting)
        for rule in found.rules
    ]
    output.print_table(["WHAT", "KEPT", "SETTING"], rows)
    output.print_line()
    if found.schedule is None:
        output.print_line(
            "Retention runs only when `holdfast retention run` is called; retention.schedule changes that."
        )
    else:
        output.print_line(f"Retention runs at {found.schedule}, next {format_time(found.next_run_at)} (UTC).")
    for run in found.runs:
        began = f"On {output.safe(run.machine)} it began {format_time(run.started_at)}"
        if run.ended_at is None:
            output.print_line(f"{began} (UTC) and has not ended: it runs, or was killed.")
            continue
        output.print_line(
            f"{began} and ended {format_time(run.ended_at)} (UTC); {pluralize(run.archives, 'archive')} written "
            f"({format_bytes(run.bytes)}). {output.safe(run.problem or '')}".rstrip()
        )
    if found.archives:
        output.print_line()
        table = [
            (
                one.kind,
                one.archives,
                one.rows,
                format_bytes(one.bytes),
                format_time(one.first_at),
                format_time(one.last_at),
            )
            for one in found.archives
        ]
        output.print_table(
            ["ARCHIVED", "ARCHIVES", "ROWS", "SIZE", "FROM (UTC)", "TO (UTC)"], table, right="ARCHIVES ROWS SIZE"
        )
    output.print_line(f"Archives go to {_place(found.store)}.")


@retention_app.command("run", cls=Command)
def run(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be archived and deleted.")] = False,
    yes: option_types.Yes = False,
    as_json: output.Json = False,
) -> None:
    """Archive what is older than the settings of `retention` say, and delete it from the store.

    Rows of live jobs stay, whatever their age: jobs that run, are paused, have a schedule or are refreshed. Each part is archived before it
    is deleted. After a kill the same command goes on; crawls may run meanwhile.

    Examples:
        holdfast retention run --dry-run
        holdfast retention run --yes --json
    """
    service = _retention(ctx)
    if not dry_run and not yes:
        found = _amount(_watched(service, dry_run=True))
        if found:
            command_context.confirm(
                f"Archive {found} to {_place(service.place)}, and delete them from the store?",
                f"{found} would be archived and deleted.",
            )
    result = _watched(service, dry_run=dry_run)
    if as_json:
        output.print_json(result)
    else:
        _print_result(result)
    if result.problems:
        raise HoldfastError("Not all was done; the next run goes on. " + " ".join(result.problems))


def _watched(service: "RetentionService | RemoteRetention", *, dry_run: bool) -> RetentionResult:
    with output.ProgressBar("Retention", None, "row") as bar:

        def watch(_step: str, rows: int) -> None:
            bar.show(rows, rows, None)

        return service.run(dry_run=dry_run, actor=command_context.actor(), watch=watch)


def _print_result(result: RetentionResult) -> None:
    done = [step for step in result.steps if step.rows]
    if not done:
        if not result.problems:
            output.print_line("Nothing is older than the settings of retention say.")
        return
    rows = [(step.step, pluralize(step.rows, _unit(step)), step.archives, format_bytes(step.bytes)) for step in done]
    output.print_table(["STEP", "WHAT", "ARCHIVES", "SIZE"], rows, right="WHAT ARCHIVES SIZE")
    verb = "would be archived and deleted" if result.dry_run else "are archived and deleted from the store"
    output.print_line(f"{_amount(result)} {verb}.")


def _unit(step: StepResult) -> str:
    return "file" if step.step == SEGMENTS else "URL" if step.step in URL_STEPS else "row"


def _amount(result: RetentionResult) -> str:
    """What the steps of a run have archived, as text; empty: nothing."""
    sums = {unit: sum(step.rows for step in result.steps if _unit(step) == unit) for unit in ("URL", "row", "file")}
    words = [pluralize(number, unit) for unit, number in sums.items() if number]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _place(place: str) -> str:
    """Where archives are, for people."""
    return "the folder retention in the data folder" if place == DEFAULT else output.safe(place)


@archive_app.command("list", cls=Command)
def list_(
    ctx: typer.Context,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only these: pages, log, segment …")] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Only rows of this job.")] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List archives, the newest first.

    Examples:
        holdfast archive list
        holdfast archive list --kind pages --job shop --json
    """
    found = _archives(ctx).listing(kind=kind, job=job, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"archives": found, "before": last})
        return
    if not found:
        command_context.say("There are no archives." if kind is None and job is None else "There are no such archives.")
        return
    rows = [
        (
            one.id,
            one.kind,
            one.state,
            _about(one),
            one.rows,
            format_bytes(one.bytes),
            format_time(one.first_at),
            format_time(one.last_at),
        )
        for one in found
    ]
    output.print_table(
        ["ID", "KIND", "STATE", "OF", "ROWS", "SIZE", "FROM (UTC)", "TO (UTC)"], rows, right="ID ROWS SIZE"
    )
    if last:
        command_context.say(f"More rows: --before {last}.")


def _about(one: ArchiveEntry) -> str:
    return one.job or one.source or "-"


@archive_app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    archive: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The archive.")],
    check: Annotated[bool, typer.Option("--check", help="Read its files, and compare them with their hashes.")] = False,
    as_json: output.Json = False,
) -> None:
    """Show the files of an archive with their counts and hashes.

    Examples:
        holdfast archive show 12
        holdfast archive show 12 --check
    """
    service = _archives(ctx)
    found = service.show(archive)
    checked = _checked(service, archive) if check else None
    if as_json:
        output.print_json({"archive": found.archive, "files": found.files, "checked": checked})
        return
    rows = [(file.table_name, file.rows, format_bytes(file.bytes), file.sha256, file.key) for file in found.files]
    output.print_table(["TABLE", "ROWS", "SIZE", "SHA-256", "FILE"], rows, right="ROWS SIZE")
    output.print_line(f"In {_place(found.archive.place)}, {found.archive.state}.")
    if checked is not None:
        output.print_line(f"{pluralize(checked, 'file')} read, and as they were written.")


def _checked(service: "ArchiveService | RemoteArchives", archive: int) -> int:
    with output.ProgressBar("Checking", None, "file") as bar:
        return service.check(archive, lambda done, of: bar.show(done, done, of))


@archive_app.command("restore", cls=Command)
def restore(
    ctx: typer.Context,
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="The archives.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="All archives of this kind.")] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="All archives with rows of this job.")] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Restore into tables of this schema, for analysis; the store stays as it is."
        ),
    ] = None,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="For how long retention leaves alone what is restored.")
    ] = duration.render(KEEP),
    as_json: output.Json = False,
) -> None:
    """Restore archives: rows into their tables, or with --schema for analysis; segments into the archive of this machine.

    With --server the background of the server does it, on its machine.

    Each file is compared with its hash first. A row that is newer in the store stays; what was restored before is unchanged. Claims,
    changes of status, tasks, audit, webhooks and images are restored with --schema only.

    Examples:
        holdfast archive restore 12
        holdfast archive restore --job shop --keep 90d
        holdfast archive restore --kind log --schema analysis
    """
    kept = option_types.parse_duration("--keep", keep)
    service = _archives(ctx)
    with output.ProgressBar("Restoring", None, "row") as bar:
        done = service.restore_all(
            ids=ids or (),
            kind=kind,
            job=job,
            schema=schema,
            keep=kept,
            watch=lambda archives, of, rows: bar.show(archives, rows, of),
        )
    if as_json:
        output.print_json({"archives": done})
        return
    if not done:
        command_context.say(
            "There is nothing to restore: there are no such archives, or all were restored before; `holdfast archive list` shows them."
        )
        return
    restored = sum(one.restored for one in done)
    there = sum(one.rows for one in done) - restored
    where = "their tables" if schema is None else f"the schema {schema}"
    output.print_line(
        f"{pluralize(len(done), 'archive')} restored: {pluralize(restored, 'row')} written into {where}"
        f"{f', {there:,} were there or have newer ones' if there else ''}."
    )
    needed = sorted({segment for one in done for segment in one.segments} - {one.id for one in done})
    if needed:
        command_context.say(
            f"Sources of these pages are in {pluralize(len(needed), 'archived file')} of the archive (WARC): "
            f"`holdfast archive restore {' '.join(map(str, needed[:_EXAMPLES]))}{' …' if len(needed) > _EXAMPLES else ''}` "
            "restores them."
        )
