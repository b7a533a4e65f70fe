"""`holdfast users`: add users of the API, set passwords and roles, disable and remove them, list and end sessions."""

import sys
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from holdfast.accounts import name_rules, passwords
from holdfast.accounts.records import User
from holdfast.accounts.service import AccountService, Switched
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.errors import UsageError
from holdfast.model.auth import Role
from holdfast.proxies.cli import output as proxy_output

if TYPE_CHECKING:
    from holdfast.cli.remote.accounts import RemoteAccounts

app = typer.Typer(
    cls=Group, help="Users of the API: add them, their passwords, roles and sessions.", no_args_is_help=True
)

_ASK: Final = "Password (it is not shown; a random one is generated if it is empty): "
_ASK_AGAIN: Final = "The same again: "
_ONCE: Final = "It is not shown again."

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name or the id of a user.")]
Stdin = Annotated[
    bool, typer.Option("--password-stdin", help="The password is the first line of standard input, or is typed unseen.")
]


def accounts_of(ctx: typer.Context) -> "AccountService | RemoteAccounts":
    """Return the accounts of this invocation's database, or of its server."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.accounts import RemoteAccounts

        return RemoteAccounts(context.client)
    return account_service(ctx)


def account_service(ctx: typer.Context) -> AccountService:
    """Return the accounts of this invocation's database. Raises UsageError with a server."""
    context = command_context.get(ctx)
    return AccountService(context.store(), context.settings.web)


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and any of . _ - @.")],
    role: Annotated[Literal["user", "admin"], typer.Option(help="Users read, admins do everything.")] = "user",
    password_stdin: Stdin = False,
    as_json: output.Json = False,
) -> None:
    """Add a user. The password is asked for on a terminal, or read from standard input; otherwise a random one is shown once.

    Examples:
        holdfast users add ann --role admin
        pass holdfast/bob | holdfast users add bob --password-stdin
    """
    name_rules.check(name)
    given = _password(password_stdin)
    user, made = accounts_of(ctx).add(name, Role(role), given, actor=actor())
    _print_result(f"{user.name} is added, as {_with_article(user.role)}.", user, made, as_json)


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    after: proxy_output.AfterId = 0,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List users, in the order of their ids. Times are in UTC.

    Examples:
        holdfast users list
        holdfast users list --json
    """
    found = accounts_of(ctx).users(after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say(
            "There are no users; `holdfast users add NAME` adds one, and the first `holdfast serve` adds the user admin."
        )
        return
    rows = [
        (
            user.id,
            user.name,
            user.role,
            "disabled" if user.disabled_at else "active",
            output.format_time(user.last_login_at),
            output.format_time(user.password_changed_at),
        )
        for user in found
    ]
    output.print_table(["ID", "NAME", "ROLE", "STATE", "LAST LOGIN", "PASSWORD SINCE"], rows, right="ID")
    proxy_output.print_next_page(len(found), limit, found[-1].id)


@app.command("passwd", cls=Command)
def passwd(ctx: typer.Context, name: Name, password_stdin: Stdin = False, as_json: output.Json = False) -> None:
    """Give a user another password. All sessions of the user end; API keys stay.

    Examples:
        holdfast users passwd ann
        pass holdfast/bob | holdfast users passwd bob --password-stdin
    """
    accounts = accounts_of(ctx)
    user = accounts.show(name)
    done = accounts.set_password(user.id, _password(password_stdin), actor=actor())
    sentence = f"{done.user.name} has another password; {_ended(done.sessions)} ended."
    _print_result(sentence, done.user, done.password, as_json, sessions=done.sessions)


@app.command("role", cls=Command)
def role(
    ctx: typer.Context,
    name: Name,
    role: Annotated[Literal["user", "admin"], typer.Argument(metavar="ROLE", help="user or admin.")],
    as_json: output.Json = False,
) -> None:
    """Give a user another role. All sessions of the user end, and API keys may do no more than the role.

    Examples:
        holdfast users role bob admin
        holdfast users role bob user
    """
    user = accounts_of(ctx).set_role(name, Role(role), actor=actor())
    _print_result(f"{user.name} is {_with_article(user.role)}.", user, None, as_json)


@app.command("disable", cls=Command)
def disable(ctx: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Disable a user: all sessions end, and API keys are refused until the user is enabled again.

    Examples:
        holdfast users disable bob
        holdfast users disable bob --json
    """
    _print_switched(accounts_of(ctx).disable(name, actor=actor()), "disabled", as_json)


@app.command("enable", cls=Command)
def enable(ctx: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Enable a user again. Failed logins no longer count, also of a user who was never disabled but has to wait for them.

    Examples:
        holdfast users enable bob
        holdfast users enable bob --json
    """
    _print_switched(accounts_of(ctx).enable(name, actor=actor()), "enabled", as_json)


@app.command("remove", cls=Command)
def remove(ctx: typer.Context, name: Name, yes: option_types.Yes = False, as_json: output.Json = False) -> None:
    """Delete a user with all sessions and API keys. `disable` keeps the user.

    Examples:
        holdfast users remove bob
        holdfast users remove bob --yes
    """
    if not yes:
        question = f"Delete {output.safe(name)}, with all sessions and API keys?"
        command_context.confirm(question, "Nothing was removed.")
    user = accounts_of(ctx).remove(name, actor=actor())
    _print_result(f"{user.name} is deleted.", user, None, as_json)


@app.command("sessions", cls=Command)
def sessions(
    ctx: typer.Context,
    name: Name,
    revoke: Annotated[bool, typer.Option("--revoke", help="End all of them.")] = False,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List the sessions of a user that have not ended, the newest first, or end them. Times are in UTC.

    Examples:
        holdfast users sessions ann
        holdfast users sessions ann --revoke
    """
    accounts = accounts_of(ctx)
    user = accounts.show(name)
    if revoke:
        ended = accounts.revoke_sessions(user.id, actor=actor())
        if as_json:
            output.print_json({"user": user, "sessions": ended})
        else:
            output.print_line(f"{_ended(ended).capitalize()} of {user.name} ended.")
        return
    found = accounts.sessions(user.id, before=before, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say(f"{user.name} has no session.")
        return
    rows = [
        (
            one.id,
            output.format_time(one.created_at),
            output.format_time(one.last_used_at),
            output.format_time(one.expires_at),
            one.address,
            one.user_agent,
        )
        for one in found
    ]
    output.print_table(["ID", "SINCE", "LAST USED", "UNTIL", "FROM", "WITH"], rows, right="ID")
    if len(found) == limit:
        command_context.say(f"More rows: --before {found[-1].id}.")


def _password(stdin: bool) -> str | None:
    """Return the password that was typed or piped, checked; None: a random one is wanted."""
    typed = output.is_terminal(sys.stdin)
    if not typed and not stdin:
        return None
    given = proxy_output.read_password(_ASK if typed else "")
    if not given:
        return None
    passwords.check(given)
    if typed and proxy_output.read_password(_ASK_AGAIN) != given:
        raise UsageError("The two passwords differ; nothing was changed.")
    return given


def _print_switched(done: Switched, state: str, as_json: bool) -> None:
    if as_json:
        output.print_json(done._asdict())
        return
    forgotten = f"; {pluralize(done.forgotten, 'failed login')} forgotten" if done.forgotten else ""
    output.print_line(
        f"{done.user.name} {'is' if done.changed else 'was'} {state}{'' if done.changed else ' already'}{forgotten}."
    )


def _print_result(sentence: str, user: User, password: str | None, as_json: bool, **more: object) -> None:
    """Print what was done, and a password that was generated for it."""
    if as_json:
        output.print_json({"user": user, **({} if password is None else {"password": password}), **more})
        return
    output.print_line(sentence)
    if password is not None:
        output.print_line(f"Password: {password}")
        command_context.say(_ONCE)


def _ended(sessions: int | None) -> str:
    return "all sessions" if sessions is None else pluralize(sessions, "session")


def _with_article(role: Role) -> str:
    return "an admin" if role is Role.ADMIN else "a user"
