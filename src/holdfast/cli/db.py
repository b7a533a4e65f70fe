"""`holdfast db`: the database itself."""

import os
from typing import Annotated

import typer

from holdfast.cli import output, session
from holdfast.cli.claims import Yes
from holdfast.cli.help import Command, Group
from holdfast.control import server

app = typer.Typer(cls=Group, help="The database: schema, address, a prompt, stop.", no_args_is_help=True)


@app.command("upgrade", cls=Command)
def upgrade(
    context: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="How far; head is all the way.")] = "head",
    as_json: output.Json = False,
) -> None:
    """Bring the schema up to the one that this version needs.

    Examples:
        holdfast db upgrade
    """
    _report(server.upgrade(session.of(context).database(), revision), as_json)


# Unknown options pass, so that -1 is a revision.
@app.command("downgrade", cls=Command, context_settings={"ignore_unknown_options": True})
def downgrade(
    context: typer.Context,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="A revision, -1 for the one before, or base for none.")
    ],
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Take the schema back. What only the newer one can hold is lost; `base` removes everything.

    Examples:
        holdfast db downgrade -1
        holdfast db downgrade base --yes
    """
    if not yes:
        loss = "All data is deleted." if revision == "base" else "Data that it cannot hold is deleted."
        session.confirm(f"Take the schema back to {output.safe(revision)}? {loss}", "Nothing was changed.")
    _report(server.downgrade(session.of(context).database(), revision), as_json)


@app.command("current", cls=Command)
def current(context: typer.Context, as_json: output.Json = False) -> None:
    """Show the schema's revision and the one that this version needs. Exit code 1 if they differ.

    Examples:
        holdfast db current
        holdfast db current --json
    """
    at, needed = server.revisions(session.of(context).database())
    if as_json:
        output.print_json({"current": at, "needed": needed})
    else:
        output.print_line(f"{at or 'no schema'}{'' if at == needed else f' (this version needs {needed})'}")
    if at != needed:
        raise typer.Exit(1)


@app.command("url", cls=Command)
def url(context: typer.Context, as_json: output.Json = False) -> None:
    """Show the database's address, for psql and other programs. A password in it is shown: it is what they need.

    Examples:
        pg_dump "$(holdfast db url)"
    """
    address = session.of(context).database().url
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
def psql(context: typer.Context) -> None:
    """Open a prompt on the database; further arguments go to psql.

    Examples:
        holdfast db psql
        holdfast db psql -c "SELECT count(*) FROM domains"
    """
    of = session.of(context)
    program, environment = server.psql(of.database(), of.settings)
    os.execve(program, [program, *context.args], os.environ | environment)  # noqa: S606 — the prompt takes this process's place


@app.command("stop", cls=Command)
def stop(context: typer.Context, as_json: output.Json = False) -> None:
    """Stop the bundled server. The next command starts it again; nothing that was committed is lost.

    Examples:
        holdfast db stop
    """
    stopped = server.stop(session.of(context).settings, session.say)
    if as_json:
        output.print_json({"stopped": stopped})
    else:
        output.print_line("Stopped." if stopped else "It was not running.")


def _report(change: tuple[str | None, str | None], as_json: bool) -> None:
    before, after = ((revision or "no schema") for revision in change)
    if as_json:
        output.print_json({"before": change[0], "after": change[1]})
    else:
        output.print_line(f"{after}: nothing to do." if before == after else f"{before} → {after}")
