"""`holdfast config`: the settings in force and their sources."""

import typer

from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.control import settings_docs as configuration
from holdfast.errors import SettingsError

app = typer.Typer(cls=Group, help="Settings: values in force and where each comes from.", no_args_is_help=True)


@app.command("show", cls=Command)
def show(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show every setting, its value and its source. Secrets are masked.

    Examples:
        holdfast config show
        HOLDFAST_CLAIMS_LEASE=10m holdfast config show --json
    """
    rows = configuration.rows(command_context.get(ctx).settings)
    if as_json:
        output.print_json([row._asdict() for row in rows])
    else:
        output.print_table(["SETTING", "VALUE", "FROM"], [(row.name, row.value, row.source) for row in rows])


@app.command("check", cls=Command)
def check(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Check the settings and print every problem. Exit code 2 if there is one.

    Examples:
        holdfast config check
        holdfast config check --config production.toml
    """
    context = command_context.get(ctx)
    problems = configuration.check(file=context.config_file, options={"data": context.data})
    if as_json:
        output.print_json({"ok": not problems, "problems": problems})
    else:
        output.print_line("\n".join(map(output.safe, problems)) or "The settings are valid.")
    if problems:
        raise typer.Exit(SettingsError.exit_code)
