"""`holdfast alerts`: active and resolved alerts in words; acknowledge one."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.alerts.records import Alert
from holdfast.alerts.sentences import describe, format_value
from holdfast.alerts.service import AlertService
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, CommandGroup

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteAlerts


_LAST_ID = 2**63 - 1

app = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@app.callback()
def alerts(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also resolved alerts.")] = False,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show alerts, the newest first. `holdfast serve` or `holdfast background` checks every ten seconds. Times are in UTC.

    Examples:
        holdfast alerts
        holdfast alerts --all --json
        holdfast alerts acknowledge 7
    """
    if ctx.invoked_subcommand is not None:
        return
    found = _alerts(ctx).list(active=None if every else True, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"alerts": found, "before": last})
        return
    if not found:
        command_context.say("There are no alerts." if every else "There is no active alert.")
        return
    rows = [
        (
            one.id,
            one.kind,
            one.subject or "-",
            _state(one),
            format_value(one),
            output.format_time(one.since),
            _until(one),
        )
        for one in found
    ]
    notes = {number: _note(one) for number, one in enumerate(found)}
    columns = ["ID", "ALERT", "ABOUT", "STATE", "VALUE", "SINCE (UTC)", "UNTIL (UTC)"]
    output.print_table(columns, rows, notes, right="ID VALUE")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("acknowledge", cls=Command)
def acknowledge(
    ctx: typer.Context,
    alert: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The alert.")],
    as_json: output.Json = False,
) -> None:
    """Acknowledge an alert that fires: `holdfast alerts` then shows who knows of it. It fires until its cause is gone.

    Examples:
        holdfast alerts acknowledge 7
        holdfast alerts acknowledge 7 --json
    """
    found = _alerts(ctx).acknowledge(alert, actor=actor())
    if as_json:
        output.print_json(found)
        return
    when = output.format_time(found.acknowledged_at)
    output.print_line(
        f"Alert {found.id} is acknowledged by {output.safe(found.acknowledged_by or '')} since {when} UTC."
    )


def _alerts(ctx: typer.Context) -> "AlertService | RemoteAlerts":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteAlerts

        return RemoteAlerts(context.client)
    return AlertService(context.store())


def _until(one: Alert) -> str:
    return output.format_time(one.resolved_at)


def _state(one: Alert) -> str:
    return "acknowledged" if one.state == "firing" and one.acknowledged_at is not None else one.state


def _note(one: Alert) -> str:
    """The alert in words; of one that fires also who knows of it, and the next step."""
    text = describe(one)
    if one.state != "firing":
        return text.cause
    known = ""
    if one.acknowledged_at is not None:
        known = f" Acknowledged by {one.acknowledged_by} at {output.format_time(one.acknowledged_at)} UTC."
    return f"{text.cause}{known} {text.next_step}"
