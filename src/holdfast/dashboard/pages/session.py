"""Log in, log out, and the caller's own account: password, sessions, API keys."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from holdfast.accounts.api.auth import end_session_of, mark_current, set_own_password, start_session
from holdfast.api.app_services import Services
from holdfast.api.forms import read_form
from holdfast.api.request_types import Id
from holdfast.dashboard.rendering import Context, Notice, PageContext, local_path
from holdfast.dashboard.route import page_router
from holdfast.errors import Unauthenticated, UsageError
from holdfast.model.auth import ANONYMOUS, SCOPES, Scope

router = page_router()


@router.get("/login")
def login_page(context: Context, next: Annotated[str, Query(max_length=4096)] = "/overview") -> Response:  # noqa: A002
    """The login form."""
    context.caller = ANONYMOUS
    return context.page("login.html", next=local_path(next), name="")


@router.post("/login")
def login(context: Context, request: Request, services: Services) -> Response:
    """Start a session, and go to the page that was asked for."""
    form = read_form(request)
    target, name = local_path(form.raw("next")), form.text("name") or ""
    response = RedirectResponse(target, 303)
    try:
        start_session(name, form.raw("password"), request, response, services)
    except Unauthenticated as problem:
        context.caller = ANONYMOUS
        notice = Notice("problem", str(problem))
        return context.page("login.html", status=401, notice=notice, next=target, name=name)
    return response


@router.post("/logout")
def logout(request: Request, services: Services) -> Response:
    """End the session."""
    response = RedirectResponse("/login", 303)
    end_session_of(request, response, services)
    return response


@router.get("/account")
def account(context: Context) -> Response:
    """The caller's password, sessions and keys."""
    user_id = context.caller.user_id
    if user_id is None:
        return context.page("account.html", user=None, sessions=[], keys=[], scopes=[], token=None, token_of="")
    return _account(context, user_id)


@router.post("/account/password")
def password(context: Context, request: Request, services: Services) -> Response:
    """Set another password."""
    form = read_form(request)
    if form.raw("new") != form.raw("repeat"):
        raise UsageError("The two new passwords differ; nothing was changed.")
    try:
        set_own_password(form.required("old", "Present password"), form.raw("new"), request, services, context.caller)
    except Unauthenticated:
        raise UsageError("The present password is wrong; nothing was changed.") from None
    return context.redirect("/login", "The password is changed, and all your sessions have ended. Log in again.")


@router.post("/account/sessions/{id}/end")
def end_session(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """End one of the caller's sessions."""
    services.accounts.revoke_session(id, actor=context.caller.name, user_id=_own(context))
    return context.redirect("/account", "The session has ended.")


@router.post("/account/keys")
def create_key(context: Context, request: Request, services: Services) -> Response:
    """Create an API key; its token is shown this once."""
    form = read_form(request)
    user_id = _own(context)
    scopes = [Scope(word) for word in form.all("scopes") if word in set(Scope)]
    if not scopes:
        raise UsageError("Choose at least one scope for the key.")
    name = form.required("name", "Name")
    key, token = services.accounts.create_key(user_id, name, scopes, None, actor=context.caller.name)
    return _account(context, user_id, token=token, token_of=key.name)


@router.post("/account/keys/{id}/revoke")
def revoke_key(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Revoke one of the caller's keys."""
    services.accounts.revoke_key(id, actor=context.caller.name, user_id=_own(context))
    return context.redirect("/account", "The key is revoked; requests with it are refused from now on.")


def _account(context: PageContext, user_id: int, *, token: str | None = None, token_of: str = "") -> Response:
    accounts = context.services.accounts
    user = accounts.show(user_id)
    return context.page(
        "account.html",
        user=user,
        sessions=mark_current(accounts.sessions(user_id, limit=50), context.caller),
        keys=[key for key in accounts.keys(user_id, limit=200) if key.revoked_at is None],
        scopes=sorted(SCOPES[user.role]),
        token=token,
        token_of=token_of,
    )


def _own(context: PageContext) -> int:
    if context.caller.user_id is None:
        raise UsageError("This server runs without authentication: there are no accounts.")
    return context.caller.user_id
