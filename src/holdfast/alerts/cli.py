"""`holdfast alerts`: active and resolved alerts."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.alerts.records import Alert
from holdfast.alerts.service import AlertService
from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteAlerts


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("alerts", cls=Command)(alerts)


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
    """
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
            one.state,
            f"{one.value:,.3g}",
            output.format_time(one.since),
            _until(one),
        )
        for one in found
    ]
    notes = {number: _details(one) for number, one in enumerate(found) if one.details}
    columns = ["ID", "ALERT", "ABOUT", "STATE", "VALUE", "SINCE (UTC)", "UNTIL (UTC)"]
    output.print_table(columns, rows, notes, right="ID VALUE")
    if last:
        command_context.say(f"More rows: --before {last}.")


def _alerts(ctx: typer.Context) -> "AlertService | RemoteAlerts":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteAlerts

        return RemoteAlerts(context.client)
    return AlertService(context.store())


def _until(one: Alert) -> str:
    return output.format_time(one.resolved_at)


def _details(one: Alert) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_detail(value)}" for name, value in sorted(one.details.items()))


def _detail(value: object) -> object:
    """A detail as text: causes with their number of requests."""
    if not isinstance(value, list):
        return value
    return "; ".join(f"{one['cause'].replace('_', ' ')} {one['requests']}" for one in value) or "none"
