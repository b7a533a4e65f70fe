"""`holdfast db`: the database itself."""

import os
from typing import Annotated

import typer

from holdfast.cli import output, session
from holdfast.control import server

app = typer.Typer(help="The database: schema, address, a prompt, stop.", no_args_is_help=True)


@app.command("upgrade")
def upgrade(
    context: typer.Context, revision: Annotated[str, typer.Argument()] = "head", as_json: output.Json = False
) -> None:
    """Bring the schema up to the one that this version needs.

    [dim]Example:[/dim]  holdfast db upgrade
    """
    _report(server.upgrade(session.of(context).database(), revision), as_json)


@app.command("downgrade")
def downgrade(
    context: typer.Context,
    revision: Annotated[str, typer.Argument(help="A revision, -1 for the one before, or base for none.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: output.Json = False,
) -> None:
    """Take the schema back. What only the newer one can hold is lost; `base` removes everything.

    [dim]Example:[/dim]  holdfast db downgrade base --yes
    """
    if not yes:
        typer.confirm(f"Take the schema back to {revision}? Data that it cannot hold is deleted.", abort=True, err=True)
    _report(server.downgrade(session.of(context).database(), revision), as_json)


@app.command("current")
def current(context: typer.Context, as_json: output.Json = False) -> None:
    """Show the schema's revision and the one that this version needs. Exit code 1 if they differ.

    [dim]Example:[/dim]  holdfast db current --json
    """
    at, needed = server.revisions(session.of(context).database())
    if as_json:
        output.print_json({"current": at, "needed": needed})
    else:
        output.print_line(f"{at or 'no schema'}{'' if at == needed else f' (this version needs {needed})'}")
    if at != needed:
        raise typer.Exit(1)


@app.command("url")
def url(context: typer.Context, as_json: output.Json = False) -> None:
    """Show the database's address, for psql and other programs. A password in it is shown: it is what they need.

    [dim]Example:[/dim]  pg_dump "$(holdfast db url)"
    """
    address = session.of(context).database().url
    if as_json:
        output.print_json({"url": address})
    else:
        output.print_line(address)


@app.command("psql", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context) -> None:
    """Open a prompt on the database; further arguments go to psql.

    [dim]Example:[/dim]  holdfast db psql -c "SELECT count(*) FROM domains"
    """
    of = session.of(context)
    program, environment = server.psql(of.database(), of.settings)
    os.execve(program, [program, *context.args], os.environ | environment)  # noqa: S606 — the prompt takes this process's place


@app.command("stop")
def stop(context: typer.Context, as_json: output.Json = False) -> None:
    """Stop the bundled server. The next command starts it again; nothing that was committed is lost.

    [dim]Example:[/dim]  holdfast db stop
    """
    stopped = server.stop(session.of(context).settings, session.say)
    if as_json:
        output.print_json({"stopped": stopped})
    else:
        output.print_line("Stopped." if stopped else "It was not running.")


def _report(change: tuple[str | None, str | None], as_json: bool) -> None:
    before, after = change
    if as_json:
        output.print_json({"before": before, "after": after})
    else:
        output.print_line(
            f"{before or 'no schema'} → {after or 'no schema'}" if before != after else f"{after}: nothing to do."
        )
