"""`holdfast db`: schema, address, psql, stop and move."""

import os
from typing import Annotated

import typer

from holdfast.cli import command_context, move, output
from holdfast.cli.help import Command, Group
from holdfast.control import database_admin as server
from holdfast.workers.cli import Yes

app = typer.Typer(cls=Group, help="The database: schema, address, psql, stop, move.", no_args_is_help=True)


@app.command("upgrade", cls=Command)
def upgrade(
    ctx: typer.Context,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="Revision to upgrade to; head is the newest.")
    ] = "head",
    as_json: output.Json = False,
) -> None:
    """Upgrade the schema to the revision that this version needs.

    Examples:
        holdfast db upgrade
    """
    _report(server.upgrade(command_context.get(ctx).database(), revision), as_json)


# Unknown options are allowed, so that -1 is a revision.
@app.command("downgrade", cls=Command, context_settings={"ignore_unknown_options": True})
def downgrade(
    ctx: typer.Context,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="Revision to go back to; -1 is the one before, base is no schema.")
    ],
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Downgrade the schema. Data that the older schema cannot hold is deleted; `base` deletes everything.

    Examples:
        holdfast db downgrade -1
        holdfast db downgrade base --yes
    """
    if not yes:
        loss = "All data is deleted." if revision == "base" else "Data that it cannot hold is deleted."
        command_context.confirm(f"Downgrade the schema to {output.safe(revision)}? {loss}", "Nothing was changed.")
    _report(server.downgrade(command_context.get(ctx).database(), revision), as_json)


@app.command("current", cls=Command)
def current(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show the schema's revision and the one that this version needs. Exit code 1 if they differ.

    Examples:
        holdfast db current
        holdfast db current --json
    """
    at, needed = server.revisions(command_context.get(ctx).database())
    if as_json:
        output.print_json({"current": at, "needed": needed})
    else:
        output.print_line(f"{at or 'no schema'}{'' if at == needed else f' (this version needs {needed})'}")
    if at != needed:
        raise typer.Exit(1)


@app.command("url", cls=Command)
def url(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show the connection URL of the database, for psql and other programs. It includes the password, if there is one.

    Examples:
        pg_dump "$(holdfast db url)"
    """
    address = command_context.get(ctx).database().url
    if as_json:
        output.print_json({"url": address})
    else:
        output.print_line(address)


@app.command(
    "psql",
    cls=Command,
    options_metavar="[ARGUMENTS OF PSQL]",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def psql(ctx: typer.Context) -> None:
    """Open psql on the database; further arguments are passed to psql.

    Examples:
        holdfast db psql
        holdfast db psql -c "SELECT count(*) FROM domains"
    """
    context = command_context.get(ctx)
    program, environment = server.psql(context.database(), context.settings)
    os.execve(program, [program, *ctx.args], os.environ | environment)  # noqa: S606 — psql replaces this process


@app.command("stop", cls=Command)
def stop(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Stop the bundled database server. The next command starts it again; nothing that was committed is lost.

    Examples:
        holdfast db stop
    """
    stopped = server.stop(command_context.get(ctx).settings, command_context.say)
    if as_json:
        output.print_json({"stopped": stopped})
    else:
        output.print_line("The database server is stopped." if stopped else "The database server was not running.")


move.register(app)


def _report(change: tuple[str | None, str | None], as_json: bool) -> None:
    before, after = ((revision or "no schema") for revision in change)
    if as_json:
        output.print_json({"before": change[0], "after": change[1]})
    else:
        output.print_line(f"{after}: nothing to do." if before == after else f"{before} → {after}")
