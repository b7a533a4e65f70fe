"""Logging in and out; one's own sessions, password and API keys."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field, SecretStr

from holdfast.errors import NotFound
from holdfast.model.account import Principal, Role, Scope
from holdfast.web.guard import COOKIE, SECURE_COOKIE, GuardedRoute, address_of, cookie_name
from holdfast.web.idempotency import keep_instead
from holdfast.web.office import TheOffice, Who
from holdfast.web.paging import USUAL, CursorText, Limit, Page, page_of, unpack_id
from holdfast.web.problems import documented
from holdfast.web.shapes import Body, Id, View, Word

router = APIRouter(route_class=GuardedRoute, tags=["auth"])


class Credentials(Body):
    """Who logs in."""

    name: Word = Field(examples=["admin"])
    password: Annotated[SecretStr, Field(max_length=1024, examples=["correct horse battery staple"])]


class Me(View):
    """Who you are."""

    name: str
    role: Role
    via: str
    """How you came in: `session`, `key` or `no-auth`."""
    scopes: list[Scope] | None = None
    """What your key is for; null: everything that your role may."""
    csrf: str | None = None
    """For a session: repeat it in the header X-CSRF-Token when you change something."""


class LoggedIn(Me):
    """You are in; the cookie of the answer is the proof."""

    expires_at: datetime


class NewPassword(Body):
    """Another password, proven by the one before."""

    old: Annotated[SecretStr, Field(max_length=1024)]
    new: Annotated[SecretStr, Field(max_length=1024)]


class SessionView(View):
    """Somebody who is logged in."""

    id: int
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    address: str
    user_agent: str
    current: bool = False
    """The one that you are asking with."""


class KeyView(View):
    """An API key, without what it opens with."""

    id: int
    user_name: str
    name: str
    prefix: str
    """How its token begins."""
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKey(Body):
    """A key to be made."""

    name: Word = Field(examples=["nightly export"])
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope), examples=[["read"]])]
    expires_in: timedelta | None = Field(default=None, examples=["P90D"])
    """After so long (ISO 8601, or seconds); null: never."""


class MadeKey(KeyView):
    """A key that was made."""

    token: str | None
    """What it opens with. Nobody can see it again: null where the same request was repeated."""


@router.post("/api/auth/login", summary="Log in", responses=documented(401))
def login(credentials: Credentials, request: Request, response: Response, office: TheOffice) -> LoggedIn:
    """Sets a cookie that browsers keep from scripts and from other sites. A session that you sent along ends."""
    made = office.accounts.login(
        credentials.name,
        credentials.password.get_secret_value(),
        address=address_of(request),
        user_agent=request.headers.get("User-Agent", ""),
        previous=request.cookies.get(cookie_name(request)),
    )
    response.set_cookie(
        cookie_name(request),
        made.token,
        max_age=round(office.settings.web.session.total_seconds()),
        path="/",
        secure=cookie_name(request) == SECURE_COOKIE,
        httponly=True,
        samesite="strict",
    )
    return LoggedIn(name=made.user.name, role=made.user.role, via="session", csrf=made.csrf, expires_at=made.expires_at)


@router.post("/api/auth/logout", summary="Log out", status_code=204)
def logout(request: Request, response: Response, office: TheOffice) -> None:
    """Ends the session for good; its cookie opens nothing any more."""
    for name in (SECURE_COOKIE, COOKIE):
        token = request.cookies.get(name)
        if token is not None:
            office.accounts.logout(token)
            response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="strict")


@router.get("/api/auth/me", summary="Who you are")
async def me(who: Who) -> Me:
    """Your name and role, and what a session has to repeat."""
    return Me(
        name=who.name,
        role=who.role,
        via=who.via,
        csrf=who.csrf,
        scopes=None if who.scopes is None else sorted(who.scopes),
    )


@router.post("/api/auth/password", summary="Set another password", status_code=204, responses=documented(401))
def password(given: NewPassword, request: Request, office: TheOffice, who: Who) -> None:
    """All your sessions end; log in again."""
    user_id = _own(who)
    user = office.accounts.show(user_id)
    user = office.accounts.check_password(user.name, given.old.get_secret_value(), address=address_of(request))
    # The one that was checked: what an admin has set meanwhile stays.
    office.accounts.set_password(user_id, given.new.get_secret_value(), actor=who.name, version=user.version)


@router.get("/api/auth/sessions", summary="Your sessions")
def sessions(
    office: TheOffice, who: Who, request: Request, response: Response, cursor: CursorText = None, limit: Limit = USUAL
) -> Page[SessionView]:
    """Those that have not ended, the newest first."""
    found = office.accounts.sessions(_own(who), before=unpack_id(cursor), limit=limit)
    return page_of(request, response, [SessionView.of(row, current=row.id == who.grant_id) for row in found], limit)


@router.delete("/api/auth/sessions/{id}", summary="End a session", status_code=204, responses=documented(404))
def end_session(id: Id, office: TheOffice, who: Who) -> None:  # noqa: A002 — the name of the parameter
    """Whoever has it is logged out at once."""
    office.accounts.revoke_session(id, actor=who.name, user_id=_own(who))


@router.get("/api/auth/keys", summary="Your API keys")
def keys(
    office: TheOffice, who: Who, request: Request, response: Response, cursor: CursorText = None, limit: Limit = USUAL
) -> Page[KeyView]:
    """Also those that open nothing any more, in the order of their ids."""
    found = office.accounts.keys(_own(who), after=unpack_id(cursor) or 0, limit=limit)
    return page_of(request, response, [KeyView.of(row) for row in found], limit)


@router.post("/api/auth/keys", summary="Make an API key", status_code=201)
def make_key(given: NewKey, request: Request, office: TheOffice, who: Who) -> MadeKey:
    """The token in the answer is shown this once. A key may do what its scopes say, and never more than you."""
    made, token = office.accounts.create_key(_own(who), given.name, given.scopes, given.expires_in, actor=who.name)
    keep_instead(request, MadeKey.of(made, token=None))
    return MadeKey.of(made, token=token)


@router.delete("/api/auth/keys/{id}", summary="Revoke an API key", status_code=204, responses=documented(404))
def revoke_key(id: Id, office: TheOffice, who: Who) -> None:  # noqa: A002 — the name of the parameter
    """It opens nothing any more, from now on and for good."""
    office.accounts.revoke_key(id, actor=who.name, user_id=_own(who))


def _own(who: Principal) -> int:
    if who.user_id is None:
        raise NotFound("Without authentication there is nobody who could have this.")
    return who.user_id
