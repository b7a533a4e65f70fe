"""`holdfast audit`: the log of changes: who, what, when."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.audit.records import AuditFilter, Entry
from holdfast.audit.service import AuditService
from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteAuditLog

_PLURALS: Final = {"batch": "batches", "frontier": "frontier", "proxy": "proxies"}


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("audit", cls=Command)(audit)


def audit(
    ctx: typer.Context,
    actor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=command_context.valid_text, help="Only changes by this user, key or cli:USER."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            callback=command_context.valid_text,
            help="Only changes to this kind of object: job, task, batch …",
        ),
    ] = None,
    object_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            callback=command_context.valid_text,
            help="Only changes to the object with this id; needs --kind.",
        ),
    ] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show who created or changed what, the newest first. Times are in UTC.

    Examples:
        holdfast audit --limit 20
        holdfast audit --actor cli:ann
        holdfast audit --kind task --id 12 --json
    """
    where = AuditFilter(actor=actor, kind=kind, object_id=object_id)
    found = _audit_log(ctx).page(where, after=None if before is None else (before,), limit=limit).rows
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"entries": found, "before": last})
        return
    if not found:
        command_context.say("There are no such entries in the audit log.")
        return
    rows = [
        (
            entry.id,
            output.format_time(entry.at),
            entry.actor,
            entry.action,
            _object(entry),
            _details(entry.details),
        )
        for entry in found
    ]
    output.print_table(["ID", "WHEN (UTC)", "WHO", "DID", "TO", "DETAILS"], rows, right="ID")
    if last:
        command_context.say(f"More rows: --before {last}.")


def _audit_log(ctx: typer.Context) -> "AuditService | RemoteAuditLog":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteAuditLog

        return RemoteAuditLog(context.client)
    return AuditService(context.store())


def _object(entry: Entry) -> str:
    kind = entry.object_kind
    # An entry for several objects; the details name them.
    return (
        _PLURALS.get(kind, kind if kind.endswith("s") else f"{kind}s")
        if entry.object_id == "*"
        else f"{kind} {entry.object_id}"
    )


def _details(details: dict[str, Any]) -> str:
    shown = {name.replace("_", " "): value for name, value in sorted(details.items()) if value is not None}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
