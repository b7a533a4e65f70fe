"""`holdfast storage`: what the database and the folders of this machine take, and how much room is left."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.storage.records import StorageReport

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteStorage
    from holdfast.storage.service import StorageService

_LARGEST: Final = 10
"""Tables that are listed without `--all`."""
_LARGEST_DOMAINS: Final = 5
"""Domains that are listed without `--all`."""


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("storage", cls=Command)(storage)


def storage(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="All tables, not only the largest.")] = False,
    as_json: output.Json = False,
) -> None:
    """Show what the database, the archive, backups and logs take, how fast they grow, and when the disks of this machine are full.

    `holdfast background` and `holdfast serve` measure the sizes once a day; the growth is that of the last 30 days. Rows are estimates of
    the database. Other machines have archives and logs of their own: ask there.

    Examples:
        holdfast storage
        holdfast storage --all --json
    """
    found = _storage(ctx).report()
    if as_json:
        output.print_json(found)
        return
    _print_tables(found, every=every)
    output.print_line()
    if found.domains:
        _print_domains(found, every=every)
        output.print_line()
    output.print_fields(_fields(found))
    if found.bytes_per_day is None:
        command_context.say(
            "The growth a day is known when the sizes were measured on two days, by `holdfast background` or `holdfast serve`."
        )
    for note in found.notes:
        command_context.say(output.safe(note))
    context = command_context.get(ctx)
    if not context.remote:
        schedule = context.settings.retention.schedule
        runs = "only when `holdfast retention run` is called" if schedule is None else f"at {schedule}"
        command_context.say(f"Retention runs {runs}; `holdfast retention status` shows what is kept how long.")


def _storage(ctx: typer.Context) -> "StorageService | RemoteStorage":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteStorage

        return RemoteStorage(context.client)
    return factories.storage_service(context.settings, context.store())


def _print_tables(found: StorageReport, *, every: bool) -> None:
    shown = found.tables if every else found.tables[:_LARGEST]
    rows = [
        (
            one.name,
            "-" if one.rows is None else one.rows,
            format_bytes(one.table_bytes),
            format_bytes(one.index_bytes),
            _daily(one.bytes_per_day),
        )
        for one in shown
    ]
    columns = ["TABLE", "ROWS, ABOUT", "DATA", "INDEXES", "A DAY"]
    output.print_table(columns, rows, right="ROWS, ABOUT DATA INDEXES A DAY")
    if (rest := found.tables[len(shown) :]) and not every:
        size = sum(one.table_bytes + one.index_bytes for one in rest)
        command_context.say(f"{pluralize(len(rest), 'more table')}, {format_bytes(size)}; --all lists them.")


def _print_domains(found: StorageReport, *, every: bool) -> None:
    shown = found.domains if every else found.domains[:_LARGEST_DOMAINS]
    rows = [(output.safe(one.domain), one.pages, format_bytes(one.bytes), _daily(one.bytes_per_day)) for one in shown]
    output.print_table(["MOST FETCHED FROM", "PAGES", "FETCHED", "A DAY"], rows, right="PAGES FETCHED A DAY")


def _daily(size: float | None) -> str:
    """A growth a day, with its sign."""
    if size is None:
        return "-"
    return f"{'-' if size < 0 else '+'}{format_bytes(abs(size))}"


def _days(number: float) -> str:
    return f"{number:,.0f} days" if number >= 2 else f"{number * 24:,.0f} hours"


def _fields(found: StorageReport) -> list[tuple[str, object]]:
    grows = "" if found.bytes_per_day is None else f", {_daily(found.bytes_per_day)} a day"
    fields: list[tuple[str, object]] = [("Database", f"{format_bytes(found.database_bytes)}{grows}")]
    for folder in found.folders:
        least = "" if folder.complete else "at least "
        size = f"{least}{format_bytes(folder.bytes)} in {pluralize(folder.files, 'file')}"
        fields.append((folder.name.capitalize(), f"{size}, {folder.path}"))
    for volume in found.volumes:
        free, total = format_bytes(volume.free_bytes), format_bytes(volume.total_bytes)
        state = {"low": " (low: less than disk.warn_free)", "full": " (too little: nothing is fetched, disk.min_free)"}
        full = ""
        if volume.bytes_per_day is not None:
            full = f", {_daily(volume.bytes_per_day)} a day, "
            full += "not growing" if volume.days_until_full is None else f"full in {_days(volume.days_until_full)}"
        holds = ", ".join(volume.holds)
        fields.append(("Free", f"{free} of {total} for {holds}{full}{state.get(volume.state, '')}"))
    oldest = [f"{row.table} {output.format_time(row.at)}" for row in found.oldest if row.at is not None]
    if oldest:
        fields.append(("Oldest rows", f"{', '.join(oldest)} (UTC)"))
    return fields
