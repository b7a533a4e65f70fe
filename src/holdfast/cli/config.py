"""`holdfast config`: what is in force, and where it comes from."""

import typer

from holdfast.cli import output, session
from holdfast.cli.help import Command, Group
from holdfast.control import configuration
from holdfast.errors import SettingsError

app = typer.Typer(cls=Group, help="Settings: what is in force, and where it comes from.", no_args_is_help=True)


@app.command("show", cls=Command)
def show(context: typer.Context, as_json: output.Json = False) -> None:
    """Show every setting, its value and where that comes from. Secrets are masked.

    Examples:
        holdfast config show
        HOLDFAST_CLAIMS_LEASE=10m holdfast config show --json
    """
    rows = configuration.rows(session.of(context).settings)
    if as_json:
        output.print_json([row._asdict() for row in rows])
    else:
        output.print_table(["SETTING", "VALUE", "FROM"], [(row.name, row.value, row.source) for row in rows])


@app.command("check", cls=Command)
def check(context: typer.Context, as_json: output.Json = False) -> None:
    """Check the settings; every problem at once, exit code 2 if there is one.

    Examples:
        holdfast config check
        holdfast config check --config production.toml
    """
    of = session.of(context)
    problems = configuration.check(file=of.config_file, options={"data": of.data})
    if as_json:
        output.print_json({"ok": not problems, "problems": problems})
    else:
        output.print_line("\n".join(map(output.safe, problems)) or "The settings are fine.")
    if problems:
        raise typer.Exit(SettingsError.exit_code)
