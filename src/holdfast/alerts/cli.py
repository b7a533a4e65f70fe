"""`holdfast alerts`: what is wrong, and what was."""

from typing import Annotated

import typer

from holdfast.cli import output, session, written
from holdfast.cli.help import Command
from holdfast.control.alerts import AlertDesk
from holdfast.store.alerts import Alert


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("alerts", cls=Command)(alerts)


def alerts(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    before: written.Before = None,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show problems that need attention, the newest first. A background looks for it every ten seconds. Times are in UTC.

    Examples:
        holdfast alerts
        holdfast alerts --all --json
    """
    desk = AlertDesk(session.of(context).store())
    found = desk.listing(active=None if every else True, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"alerts": found, "before": last})
        return
    if not found:
        session.say("There is no alert." if every else "Nothing is wrong.")
        return
    rows = [
        (one.id, one.kind, one.subject or "-", one.state, f"{one.value:,.3g}", output.when(one.since), _until(one))
        for one in found
    ]
    notes = {number: _details(one) for number, one in enumerate(found) if one.details}
    columns = ["ID", "ALERT", "ABOUT", "STATE", "VALUE", "SINCE (UTC)", "UNTIL (UTC)"]
    output.print_table(columns, rows, notes, right="ID VALUE")
    if last:
        session.say(f"--before {last} goes on.")


def _until(one: Alert) -> str:
    return output.when(one.resolved_at)


def _details(one: Alert) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_said(value)}" for name, value in sorted(one.details.items()))


def _said(value: object) -> object:
    """A value in words: causes with their numbers."""
    if not isinstance(value, list):
        return value
    return "; ".join(f"{one['cause'].replace('_', ' ')} {one['requests']}" for one in value) or "none"
