"""`holdfast keys`: add, list and revoke API keys."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from holdfast.accounts import name_rules
from holdfast.accounts.cli.users import account_service, accounts_of
from holdfast.accounts.records import ApiKey
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.errors import UsageError
from holdfast.model.auth import Scope
from holdfast.proxies.cli import output as proxy_output

app = typer.Typer(cls=Group, help="API keys: make, list and revoke them.", no_args_is_help=True)

_LAST_ID: Final = 2**63 - 1


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose key it is: a name, or an id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, in the audit log too.")],
    scopes: Annotated[
        list[Scope] | None, typer.Option("--scope", help="What it may be used for; may be given several times.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 90d, 12h. It never expires if not given.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Make an API key. It is shown once, and may never do more than its owner.

    Examples:
        holdfast keys add ann prometheus --scope metrics
        holdfast keys add ann nightly --scope read --scope crawl --expires 90d
    """
    command_context.get(ctx).require_local(
        "`holdfast keys add`",
        "the API makes keys only for who is logged in. Make it in the dashboard under “Account”, or run it where the store is.",
    )
    name_rules.check_key(name)
    if not scopes:
        raise UsageError(f"Say what the key is for, with --scope: {', '.join(Scope)}.")
    expires_in = None if expires is None else option_types.parse_duration("--expires", expires)
    key, token = account_service(ctx).create_key(user, name, scopes, expires_in, actor=actor())
    if as_json:
        output.print_json({"key": key, "token": token})
        return
    until = f", until {output.format_time(key.expires_at)} UTC" if key.expires_at else ""
    command_context.say(
        f"Key {key.id} of {key.user_name} is for {', '.join(key.scopes)}{until}. It is not shown again:"
    )
    output.print_line(token)


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this user.")] = None,
    after: proxy_output.AfterId = 0,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List API keys, in the order of their ids, revoked and expired ones too. Times are in UTC.

    Examples:
        holdfast keys list
        holdfast keys list --user ann --json
    """
    accounts = accounts_of(ctx)
    owner = None if user is None else accounts.show(user).id
    found = accounts.keys(owner, after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say("There is no such key; `holdfast keys add USER NAME --scope read` adds one.")
        return
    rows = [
        (
            key.id,
            key.user_name,
            key.name,
            f"{key.prefix}…",
            _state(key),
            ", ".join(key.scopes),
            output.format_time(key.expires_at),
            output.format_time(key.last_used_at),
        )
        for key in found
    ]
    output.print_table(["ID", "USER", "NAME", "KEY", "STATE", "FOR", "UNTIL", "LAST USED"], rows, right="ID")
    proxy_output.print_next_page(len(found), limit, found[-1].id)


@app.command("revoke", cls=Command)
def revoke(
    ctx: typer.Context,
    key: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The key.")],
    as_json: output.Json = False,
) -> None:
    """Revoke an API key, at once and for good.

    Examples:
        holdfast keys revoke 7
        holdfast keys revoke 7 --json
    """
    changed = accounts_of(ctx).revoke_key(key, actor=actor())
    if as_json:
        output.print_json({"id": key, "changed": changed})
    else:
        output.print_line(f"Key {key} {'is revoked' if changed else 'was revoked already'}.")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "active"
