"""Routes for every user: log in and out; the caller's own sessions, password and API keys."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field, SecretStr

from holdfast.accounts.authentication import Login
from holdfast.accounts.records import ApiKey, CreatedKey, ListedSession, LoggedIn, Me, Session
from holdfast.api.app_services import AppServices, Caller, Services
from holdfast.api.auth import COOKIE, SECURE_COOKIE, AuthorizedRoute, client_address, cookie_name
from holdfast.api.errors import documented
from holdfast.api.idempotency import store_instead
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page
from holdfast.api.request_types import Body, Id, ShortText
from holdfast.errors import NotFound
from holdfast.model.auth import Principal, Scope

router = APIRouter(route_class=AuthorizedRoute, tags=["auth"])


class Credentials(Body):
    """The name and password of a user."""

    name: ShortText = Field(examples=["admin"])
    password: Annotated[SecretStr, Field(max_length=1024, examples=["correct horse battery staple"])]


class NewPassword(Body):
    """A new password, and the current one as proof."""

    old: Annotated[SecretStr, Field(max_length=1024)]
    new: Annotated[SecretStr, Field(max_length=1024)]


class NewKey(Body):
    """The key to create."""

    name: ShortText = Field(examples=["nightly export"])
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope), examples=[["read"]])]
    expires_in: timedelta | None = Field(default=None, examples=["P90D"])
    """Expires after this time (ISO 8601, or seconds); null: never."""


@router.post("/api/auth/login", summary="Log in", responses=documented(401))
def login(credentials: Credentials, request: Request, response: Response, services: Services) -> LoggedIn:
    """Sets a cookie that browsers keep from scripts and from other sites. A session that you sent along ends."""
    started = start_session(credentials.name, credentials.password.get_secret_value(), request, response, services)
    return LoggedIn(
        name=started.user.name,
        role=started.user.role,
        via="session",
        scopes=None,
        csrf=started.csrf,
        expires_at=started.expires_at,
    )


def start_session(name: str, password: str, request: Request, response: Response, services: AppServices) -> Login:
    """Log a user in and set the cookie of the session. Raises Unauthenticated, TooMany."""
    started = services.accounts.login(
        name,
        password,
        address=client_address(request),
        user_agent=request.headers.get("User-Agent", ""),
        previous=request.cookies.get(cookie_name(request)),
    )
    response.set_cookie(
        cookie_name(request),
        started.token,
        max_age=round(services.settings.web.session.total_seconds()),
        path="/",
        secure=cookie_name(request) == SECURE_COOKIE,
        httponly=True,
        samesite="strict",
    )
    return started


@router.post("/api/auth/logout", summary="Log out", status_code=204)
def logout(request: Request, response: Response, services: Services) -> None:
    """Ends the session for good; its cookie is invalid from now on."""
    end_session_of(request, response, services)


def end_session_of(request: Request, response: Response, services: AppServices) -> None:
    """End the session of a request and delete its cookie."""
    for name in (SECURE_COOKIE, COOKIE):
        token = request.cookies.get(name)
        if token is not None:
            services.accounts.logout(token)
            response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="strict")


@router.get("/api/auth/me", summary="Who you are")
async def me(caller: Caller) -> Me:
    """Your name and role, and what a session has to repeat."""
    return Me(
        name=caller.name,
        role=caller.role,
        via=caller.via,
        csrf=caller.csrf,
        scopes=None if caller.scopes is None else sorted(caller.scopes),
    )


@router.post("/api/auth/password", summary="Set another password", status_code=204, responses=documented(401))
def password(given: NewPassword, request: Request, services: Services, caller: Caller) -> None:
    """All your sessions end; log in again."""
    set_own_password(given.old.get_secret_value(), given.new.get_secret_value(), request, services, caller)


def set_own_password(old: str, new: str, request: Request, services: AppServices, caller: Principal) -> None:
    """Set the password of the caller. After: all sessions of the caller have ended. Raises Unauthenticated, TooMany, UsageError."""
    user_id = _own(caller)
    user = services.accounts.show(user_id)
    user = services.accounts.check_password(user.name, old, address=client_address(request))
    # The one that was checked: what an admin has set meanwhile stays.
    services.accounts.set_password(user_id, new, actor=caller.name, version=user.version)


@router.get("/api/auth/sessions", summary="Your sessions")
def sessions(
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ListedSession]:
    """Those that have not ended, the newest first."""
    found = services.accounts.sessions(_own(caller), before=decode_id_cursor(cursor), limit=limit)
    return id_page(request, response, mark_current(found, caller), limit)


@router.delete("/api/auth/sessions/{id}", summary="End a session", status_code=204, responses=documented(404))
def end_session(id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """Its client is logged out at once."""
    services.accounts.revoke_session(id, actor=caller.name, user_id=_own(caller))


@router.get("/api/auth/keys", summary="Your API keys")
def keys(
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ApiKey]:
    """Revoked and expired ones too, in the order of their ids."""
    found = services.accounts.keys(_own(caller), after=decode_id_cursor(cursor) or 0, limit=limit)
    return id_page(request, response, found, limit)


@router.post("/api/auth/keys", summary="Create an API key", status_code=201)
def make_key(given: NewKey, request: Request, services: Services, caller: Caller) -> CreatedKey:
    """The token in the answer is shown this once. A key may do what its scopes say, and never more than you."""
    key, token = services.accounts.create_key(
        _own(caller), given.name, given.scopes, given.expires_in, actor=caller.name
    )
    store_instead(request, CreatedKey(**asdict(key), token=None))
    return CreatedKey(**asdict(key), token=token)


@router.delete("/api/auth/keys/{id}", summary="Revoke an API key", status_code=204, responses=documented(404))
def revoke_key(id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """It is invalid from now on, for good."""
    services.accounts.revoke_key(id, actor=caller.name, user_id=_own(caller))


def mark_current(sessions: list[Session], caller: Principal) -> list[ListedSession]:
    """Mark the session that authenticated this request."""
    current = caller.grant_id if caller.via == "session" else None
    return [ListedSession(**asdict(one), current=one.id == current) for one in sessions]


def _own(caller: Principal) -> int:
    if caller.user_id is None:
        raise NotFound("Without authentication there is no user who could have this.")
    return caller.user_id
