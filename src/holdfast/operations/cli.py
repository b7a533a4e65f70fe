"""`holdfast operations`: long work that the API started: what waits, runs, has ended or failed; one of them with its result."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command, CommandGroup
from holdfast.cli.output import pluralize
from holdfast.operations.records import Operation, OperationState
from holdfast.operations.service import OperationService
from holdfast.settings import render_duration

if TYPE_CHECKING:
    from holdfast.cli.remote.operations import RemoteOperations

_LAST_ID = 2**63 - 1
_SECONDS = frozenset({"keep", "wait"})
"""Arguments that are durations."""

app = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@app.callback()
def operations(
    ctx: typer.Context,
    state: Annotated[
        OperationState | None,
        typer.Option("--state", metavar="STATE", help="Only waiting, running, done or failed ones."),
    ] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show long work that the API, the dashboard or a command with --server started, the newest first. A background process
    (`holdfast serve`, `holdfast background`) runs it. What has ended is listed for a week. Times are in UTC.

    Examples:
        holdfast operations
        holdfast operations --state failed --json
        holdfast operations show 7
    """
    if ctx.invoked_subcommand is not None:
        return
    found = _operations(ctx).listing(state=state, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"operations": found, "before": last})
        return
    if not found:
        command_context.say(f"There are no operations{f' that are {state}' if state else ''}.")
        return
    rows = [
        (
            one.id,
            one.kind,
            one.state,
            output.format_time(one.asked_at),
            one.asked_by,
            output.format_time(one.started_at),
            output.format_time(one.ended_at),
        )
        for one in found
    ]
    notes = {number: note for number, one in enumerate(found) if (note := _note(one))}
    columns = ["ID", "OPERATION", "STATE", "REQUESTED", "BY", "STARTED", "ENDED"]
    output.print_table(columns, rows, notes, right="ID")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    operation: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The operation.")],
    as_json: output.Json = False,
) -> None:
    """Show one operation: its arguments, progress and result, or why it failed. Times are in UTC.

    Examples:
        holdfast operations show 7
        holdfast operations show 7 --json
    """
    found = _operations(ctx).show(operation)
    if as_json:
        output.print_json(found)
        return
    times = "" if found.attempts < 2 else f", attempt {found.attempts}: a process that ran it ended before it did"
    facts: list[tuple[str, object]] = [
        ("Operation", f"{found.id} ({found.kind})"),
        ("State", found.state),
        ("Requested", f"{output.format_time(found.asked_at)} by {found.asked_by}"),
        ("Started", f"{output.format_time(found.started_at)}{times}"),
        ("Ended", output.format_time(found.ended_at)),
        ("Arguments", _values(found.arguments) or "-"),
    ]
    if not found.is_over:
        facts.append(("Progress", _values(found.progress) or "-"))
    elif found.result is not None:
        facts.append(("Result", _values(found.result) or "-"))
    if found.problem is not None:
        facts.append(("Problem", found.problem))
    output.print_fields(facts)
    for name, rows in (found.result or {}).items():
        if _is_table(rows):
            output.print_line()
            _print_rows(name, rows)
    if found.state == "waiting":
        command_context.say("It waits for a background process: `holdfast serve` or `holdfast background`.")


def _operations(ctx: typer.Context) -> "OperationService | RemoteOperations":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.operations import RemoteOperations

        return RemoteOperations(context.client)
    return OperationService(context.store())


def _note(one: Operation) -> str:
    """Why an operation failed, or how far it is."""
    return one.problem or ("" if one.is_over else _values(one.progress))


def _values(values: Mapping[str, Any]) -> str:
    """Named values in one line, without tables."""
    return ", ".join(
        f"{name.replace('_', ' ')} {render_duration(timedelta(seconds=value)) if name in _SECONDS else _value(value)}"
        for name, value in values.items()
        if value is not None and value not in ([], {}) and not _is_table(value)
    )


def _is_table(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(row, dict) for row in value)


def _print_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of a result, without what is nested in it: `--json` has that."""
    columns = [key for key in rows[0] if not any(isinstance(row.get(key), list | dict) for row in rows)]
    right = [key for key in columns if isinstance(rows[0][key], int | float)]
    cells = [["-" if row.get(key) is None else _value(row[key]) for key in columns] for row in rows]
    output.print_line(f"{name.replace('_', ' ').capitalize()}:")
    titles = {key: key.replace("_", " ").upper() for key in columns}
    output.print_table(list(titles.values()), cells, right=" ".join(titles[key] for key in right))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return " ".join(map(str, value))
    if isinstance(value, list | dict):
        return f"({pluralize(len(value), 'item')}, listed by --json)"
    return str(value)
