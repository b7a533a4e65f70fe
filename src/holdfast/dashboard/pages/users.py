"""Users and the API keys of all users: add, role, disable, enable, password, sessions, delete, revoke."""

from fastapi import Request, Response

from holdfast.accounts.api.auth import mark_current
from holdfast.accounts.records import User
from holdfast.api.app_services import Services
from holdfast.api.forms import read_form
from holdfast.api.pagination import decode_id_cursor
from holdfast.api.request_types import Id, UserName
from holdfast.dashboard.lists import ROWS, id_page, read_list
from holdfast.dashboard.rendering import Context, PageContext
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import UsageError
from holdfast.model.auth import Role

router = page_router()

_ROLES = (Role.USER, Role.ADMIN)
_MAX_SESSIONS = 100


@router.get("/users")
def users(context: Context) -> Response:
    """All users, and a form for a new one."""
    return _users(context)


@router.post("/users")
def add(context: Context, request: Request, services: Services) -> Response:
    """Add a user. A generated password is shown this once, on the page that answers."""
    form = read_form(request)
    name, role = form.required("name", "Name"), form.choice("role", "Role", Role) or Role.USER
    user, password = services.accounts.add(name, role, form.raw("password") or None, actor=context.caller.name)
    if password is None:
        return context.redirect(f"/users/{user.name}", f"{user.name} is added.")
    return _users(context, created=user, password=password)


@router.get("/users/{name}")
def user(name: UserName, context: Context, services: Services) -> Response:
    """One user with sessions and keys."""
    return _user(context, services.accounts.show(name))


@router.post("/users/{name}/role")
def set_role(name: UserName, context: Context, request: Request, services: Services) -> Response:
    """Give a user another role."""
    role = read_form(request).choice("role", "Role", Role)
    if role is None:
        raise UsageError("Choose a role.")
    before = services.accounts.show(name)
    changed = services.accounts.set_role(name, role, actor=context.caller.name)
    if changed.role is before.role:
        return context.redirect(f"/users/{changed.name}", f"{changed.name} is {_with_article(role)}, as before.")
    return context.redirect(
        f"/users/{changed.name}", f"{changed.name} is {_with_article(role)} now; all sessions have ended."
    )


@router.post("/users/{name}/disable")
def disable(name: UserName, context: Context, services: Services) -> Response:
    """Disable a user until an admin enables the account again."""
    done = services.accounts.disable(name, actor=context.caller.name)
    return context.redirect(
        f"/users/{done.user.name}", f"{done.user.name} is disabled: all sessions have ended, and API keys are refused."
    )


@router.post("/users/{name}/enable")
def enable(name: UserName, context: Context, services: Services) -> Response:
    """Enable a user again; failed logins no longer count."""
    done = services.accounts.enable(name, actor=context.caller.name)
    forgotten = f" {plural(done.forgotten, 'failed login')} no longer count." if done.forgotten else ""
    return context.redirect(f"/users/{done.user.name}", f"{done.user.name} is enabled.{forgotten}")


@router.post("/users/{name}/password")
def set_password(name: UserName, context: Context, request: Request, services: Services) -> Response:
    """Set a password. A generated one is shown this once, on the page that answers."""
    chosen = read_form(request).raw("password") or None
    done = services.accounts.set_password(name, chosen, actor=context.caller.name)
    if done.password is None:
        ended = plural(done.sessions or 0, "session")
        return context.redirect(f"/users/{done.user.name}", f"{done.user.name} has another password; {ended} ended.")
    return _user(context, done.user, password=done.password, ended=done.sessions or 0)


@router.post("/users/{name}/sessions/end")
def end_sessions(name: UserName, context: Context, services: Services) -> Response:
    """Log a user out everywhere."""
    found = services.accounts.show(name)
    ended = services.accounts.revoke_sessions(found.id, actor=context.caller.name)
    return context.redirect(f"/users/{found.name}", f"{plural(ended, 'session')} of {found.name} ended.")


@router.get("/users/{name}/delete")
def confirm_delete(name: UserName, context: Context, services: Services) -> Response:
    """What deleting a user does."""
    found = services.accounts.show(name)
    keys = [key for key in services.accounts.keys(found.id, limit=500) if key.revoked_at is None]
    sessions = services.accounts.sessions(found.id, limit=500)
    return context.page("users/delete.html", user=found, keys=keys, sessions=sessions)


@router.post("/users/{name}/delete")
def delete(name: UserName, context: Context, services: Services) -> Response:
    """Delete a user with all sessions and keys."""
    gone = services.accounts.remove(name, actor=context.caller.name)
    return context.redirect("/users", f"{gone.name} is deleted, with all sessions and API keys.")


@router.get("/users/all/keys")
def keys(context: Context, services: Services) -> Response:
    """The API keys of all users."""
    shown = read_list(
        context,
        lambda form: id_page(services.accounts.keys(after=decode_id_cursor(form.text("cursor")) or 0, limit=ROWS)),
    )
    return context.page("users/keys.html", notice=shown.notice, shown=shown)


@router.post("/users/all/keys/{id}/revoke")
def revoke(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Revoke a key of any user."""
    revoked = services.accounts.revoke_key(id, actor=context.caller.name)
    said = "is revoked; requests with it are refused from now on" if revoked else "was revoked before"
    return context.redirect("/users/all/keys", f"Key {id} {said}.")


def _users(context: PageContext, *, created: User | None = None, password: str | None = None) -> Response:
    accounts = context.services.accounts
    shown = read_list(
        context, lambda form: id_page(accounts.users(after=decode_id_cursor(form.text("cursor")) or 0, limit=ROWS))
    )
    return context.page(
        "users/list.html", notice=shown.notice, shown=shown, roles=_ROLES, created=created, password=password
    )


def _user(context: PageContext, found: User, *, password: str | None = None, ended: int = 0) -> Response:
    accounts = context.services.accounts
    return context.page(
        "users/user.html",
        user=found,
        roles=_ROLES,
        is_self=found.id == context.caller.user_id,
        sessions=mark_current(accounts.sessions(found.id, limit=_MAX_SESSIONS), context.caller),
        keys=accounts.keys(found.id, limit=200),
        password=password,
        ended=ended,
    )


def _with_article(role: Role) -> str:
    return "an admin" if role is Role.ADMIN else f"a {role}"
