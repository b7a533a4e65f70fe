"""`holdfast keys`: what programs use the API with: make keys, look at them, revoke them."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from holdfast.cli import output, proxy_words, session, written
from holdfast.cli.help import Command, Group
from holdfast.cli.session import actor
from holdfast.cli.users import desk
from holdfast.control import names
from holdfast.errors import UsageError
from holdfast.model.account import Scope
from holdfast.store.api_keys import ApiKey

app = typer.Typer(cls=Group, help="API keys: make, list and revoke them.", no_args_is_help=True)

_LAST_ID: Final = 2**63 - 1


@app.command("add", cls=Command)
def add(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose key it is: a name, or an id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, in the audit log too.")],
    scopes: Annotated[
        list[Scope] | None, typer.Option("--scope", help="What it is for; may be said several times.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it opens anything: 90d, 12h. Never ends if not said.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Make an API key. It is shown once, and may never do more than its owner.

    Examples:
        holdfast keys add ann prometheus --scope metrics
        holdfast keys add ann nightly --scope read --scope crawl --expires 90d
    """
    names.check_key(name)
    if not scopes:
        raise UsageError(f"Say what the key is for, with --scope: {', '.join(Scope)}.")
    expires_in = None if expires is None else written.span("--expires", expires)
    key, token = desk(context).create_key(user, name, scopes, expires_in, actor=actor())
    if as_json:
        output.print_json({"key": key, "token": token})
        return
    until = f", until {output.when(key.expires_at)} UTC" if key.expires_at else ""
    session.say(f"Key {key.id} of {key.user_name} is for {', '.join(key.scopes)}{until}. It is not shown again:")
    output.print_line(token)


@app.command("list", cls=Command)
def listed(
    context: typer.Context,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this user.")] = None,
    after: proxy_words.AfterId = 0,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List API keys, in the order of their ids, also those that open nothing any more. Times are in UTC.

    Examples:
        holdfast keys list
        holdfast keys list --user ann --json
    """
    accounts = desk(context)
    owner = None if user is None else accounts.show(user).id
    found = accounts.keys(owner, after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        session.say("There is no such key; `holdfast keys add USER NAME --scope read` makes one.")
        return
    rows = [
        (
            key.id,
            key.user_name,
            key.name,
            f"{key.prefix}…",
            _state(key),
            ", ".join(key.scopes),
            output.when(key.expires_at),
            output.when(key.last_used_at),
        )
        for key in found
    ]
    output.print_table(["ID", "USER", "NAME", "KEY", "STATE", "FOR", "UNTIL", "LAST USED"], rows, right="ID")
    proxy_words.page_end(len(found), limit, found[-1].id)


@app.command("revoke", cls=Command)
def revoke(
    context: typer.Context,
    key: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The key.")],
    as_json: output.Json = False,
) -> None:
    """Let an API key open nothing any more, at once and for good.

    Examples:
        holdfast keys revoke 7
        holdfast keys revoke 7 --json
    """
    changed = desk(context).revoke_key(key, actor=actor())
    if as_json:
        output.print_json({"id": key, "changed": changed})
    else:
        output.print_line(f"Key {key} {'is revoked' if changed else 'was revoked already'}.")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "active"
