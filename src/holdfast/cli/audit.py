"""`holdfast audit`: who created or changed what, when."""

from typing import Annotated, Any, Final

import typer

from holdfast.cli import output, session, written
from holdfast.cli.help import Command
from holdfast.control.audit import AuditDesk
from holdfast.store.audit import Entry

_PLURALS: Final = {"batch": "batches", "frontier": "frontier", "proxy": "proxies"}


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("audit", cls=Command)(audit)


def audit(
    context: typer.Context,
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", callback=session.readable, help="Only what this one did.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", callback=session.readable, help="Only what was done to a job, task, batch …"),
    ] = None,
    object_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", callback=session.readable, help="Of that kind, only this one.")
    ] = None,
    before: written.Before = None,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show who created or changed what, the newest first. Times are in UTC.

    Examples:
        holdfast audit --limit 20
        holdfast audit --actor cli:ann
        holdfast audit --kind task --id 12 --json
    """
    desk = AuditDesk(session.of(context).store())
    found = desk.listing(actor=actor, kind=kind, object_id=object_id, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"entries": found, "before": last})
        return
    if not found:
        session.say("Nothing like that was done.")
        return
    rows = [
        (
            entry.id,
            output.when(entry.at),
            entry.actor,
            entry.action,
            _object(entry),
            _details(entry.details),
        )
        for entry in found
    ]
    output.print_table(["ID", "WHEN (UTC)", "WHO", "DID", "TO", "DETAILS"], rows, right="ID")
    if last:
        session.say(f"--before {last} goes on.")


def _object(entry: Entry) -> str:
    kind = entry.object_kind
    # Several at once; the details say which.
    return (
        _PLURALS.get(kind, kind if kind.endswith("s") else f"{kind}s")
        if entry.object_id == "*"
        else f"{kind} {entry.object_id}"
    )


def _details(details: dict[str, Any]) -> str:
    told = {name.replace("_", " "): value for name, value in sorted(details.items()) if value is not None}
    return ", ".join(f"{name} {value}" for name, value in told.items())
