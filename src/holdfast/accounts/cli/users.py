"""`holdfast users`: who may use the API: add them, give them passwords and roles, let them in no more."""

import sys
from typing import Annotated, Final, Literal

import typer

from holdfast.cli import output, proxy_words, session, written
from holdfast.cli.help import Command, Group
from holdfast.cli.output import counted
from holdfast.cli.session import actor
from holdfast.control import names, passwords
from holdfast.control.accounts import AccountDesk, Switched
from holdfast.errors import UsageError
from holdfast.model.account import Role
from holdfast.store.users import User

app = typer.Typer(
    cls=Group, help="Users of the API: add them, their passwords, roles and sessions.", no_args_is_help=True
)

_ASK: Final = "Password (it is not shown; a random one is made if it is empty): "
_ASK_AGAIN: Final = "The same again: "
_ONCE: Final = "It is not shown again."

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a user, or his id.")]
Stdin = Annotated[
    bool, typer.Option("--password-stdin", help="The password is the first line of standard input, or is typed unseen.")
]


def desk(context: typer.Context) -> AccountDesk:
    """The accounts of this invocation's store."""
    of = session.of(context)
    return AccountDesk(of.store(), of.settings.web)


@app.command("add", cls=Command)
def add(
    context: typer.Context,
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
    names.check(name)
    given = _password(password_stdin)
    user, made = desk(context).add(name, Role(role), given, actor=actor())
    _tell(f"{user.name} is added, as {_a(user.role)}.", user, made, as_json)


@app.command("list", cls=Command)
def listed(
    context: typer.Context, after: proxy_words.AfterId = 0, limit: written.Limit = 50, as_json: output.Json = False
) -> None:
    """List users, in the order of their ids. Times are in UTC.

    Examples:
        holdfast users list
        holdfast users list --json
    """
    found = desk(context).listing(after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        session.say(
            "There is nobody yet; `holdfast users add NAME` adds somebody, and the first `holdfast serve` an admin."
        )
        return
    rows = [
        (
            user.id,
            user.name,
            user.role,
            "disabled" if user.disabled_at else "active",
            output.when(user.last_login_at),
            output.when(user.password_changed_at),
        )
        for user in found
    ]
    output.print_table(["ID", "NAME", "ROLE", "STATE", "LAST LOGIN", "PASSWORD SINCE"], rows, right="ID")
    proxy_words.page_end(len(found), limit, found[-1].id)


@app.command("passwd", cls=Command)
def passwd(context: typer.Context, name: Name, password_stdin: Stdin = False, as_json: output.Json = False) -> None:
    """Give a user another password. All sessions of the user end; API keys stay.

    Examples:
        holdfast users passwd ann
        pass holdfast/bob | holdfast users passwd bob --password-stdin
    """
    accounts = desk(context)
    user = accounts.show(name)
    done = accounts.set_password(user.id, _password(password_stdin), actor=actor())
    sentence = f"{done.user.name} has another password; {counted(done.sessions, 'session')} ended."
    _tell(sentence, done.user, done.password, as_json, sessions=done.sessions)


@app.command("role", cls=Command)
def role(
    context: typer.Context,
    name: Name,
    role: Annotated[Literal["user", "admin"], typer.Argument(metavar="ROLE", help="user or admin.")],
    as_json: output.Json = False,
) -> None:
    """Give a user another role. All sessions of the user end, and API keys may do no more than the role.

    Examples:
        holdfast users role bob admin
        holdfast users role bob user
    """
    user = desk(context).set_role(name, Role(role), actor=actor())
    _tell(f"{user.name} is {_a(user.role)}.", user, None, as_json)


@app.command("disable", cls=Command)
def disable(context: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Let a user in no more: all sessions end, and API keys open nothing until somebody enables the user.

    Examples:
        holdfast users disable bob
        holdfast users disable bob --json
    """
    _switched(desk(context).disable(name, actor=actor()), "disabled", as_json)


@app.command("enable", cls=Command)
def enable(context: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Let a user in again. Failed logins are forgotten, also of a user who was never disabled but has to wait for them.

    Examples:
        holdfast users enable bob
        holdfast users enable bob --json
    """
    _switched(desk(context).enable(name, actor=actor()), "enabled", as_json)


@app.command("remove", cls=Command)
def remove(context: typer.Context, name: Name, yes: written.Yes = False, as_json: output.Json = False) -> None:
    """Forget a user, with all sessions and API keys. `disable` keeps the user.

    Examples:
        holdfast users remove bob
        holdfast users remove bob --yes
    """
    if not yes:
        question = f"Forget {output.safe(name)}, with all sessions and API keys?"
        session.confirm(question, "Nothing was removed.")
    user = desk(context).remove(name, actor=actor())
    _tell(f"{user.name} is forgotten.", user, None, as_json)


@app.command("sessions", cls=Command)
def sessions(
    context: typer.Context,
    name: Name,
    revoke: Annotated[bool, typer.Option("--revoke", help="End all of them.")] = False,
    before: written.Before = None,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List the sessions of a user that have not ended, the newest first, or end them. Times are in UTC.

    Examples:
        holdfast users sessions ann
        holdfast users sessions ann --revoke
    """
    accounts = desk(context)
    user = accounts.show(name)
    if revoke:
        ended = accounts.revoke_sessions(user.id, actor=actor())
        if as_json:
            output.print_json({"user": user, "sessions": ended})
        else:
            output.print_line(f"{counted(ended, 'session')} of {user.name} ended.")
        return
    found = accounts.sessions(user.id, before=before, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        session.say(f"{user.name} has no session.")
        return
    rows = [
        (
            one.id,
            output.when(one.created_at),
            output.when(one.last_used_at),
            output.when(one.expires_at),
            one.address,
            one.user_agent,
        )
        for one in found
    ]
    output.print_table(["ID", "SINCE", "LAST USED", "UNTIL", "FROM", "WITH"], rows, right="ID")
    if len(found) == limit:
        session.say(f"--before {found[-1].id} goes on.")


def _password(stdin: bool) -> str | None:
    """The password that somebody gives, checked; None: nobody does, or wants a random one."""
    typed = output.is_terminal(sys.stdin)
    if not typed and not stdin:
        return None
    given = proxy_words.password(_ASK if typed else "")
    if not given:
        return None
    passwords.check(given)
    if typed and proxy_words.password(_ASK_AGAIN) != given:
        raise UsageError("The two passwords differ; nothing was changed.")
    return given


def _switched(done: Switched, state: str, as_json: bool) -> None:
    if as_json:
        output.print_json(done._asdict())
        return
    forgotten = f"; {counted(done.forgotten, 'failed login')} forgotten" if done.forgotten else ""
    output.print_line(
        f"{done.user.name} {'is' if done.changed else 'was'} {state}{'' if done.changed else ' already'}{forgotten}."
    )


def _tell(sentence: str, user: User, password: str | None, as_json: bool, **more: object) -> None:
    """What was done, and a password that was made for it."""
    if as_json:
        output.print_json({"user": user, **({} if password is None else {"password": password}), **more})
        return
    output.print_line(sentence)
    if password is not None:
        output.print_line(f"Password: {password}")
        session.say(_ONCE)


def _a(role: Role) -> str:
    return "an admin" if role is Role.ADMIN else "a user"
