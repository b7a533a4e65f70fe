"""Users, the keys and sessions of all, and the audit log: for admins."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, SecretStr

from holdfast.control.queries import AuditQuery
from holdfast.errors import UsageError
from holdfast.model.account import Role
from holdfast.web.api.auth import KeyView, SessionView
from holdfast.web.guard import GuardedRoute
from holdfast.web.office import TheOffice, Who
from holdfast.web.paging import USUAL, CursorText, Limit, Page, behind, keyed, page_of, unpack_id
from holdfast.web.problems import documented
from holdfast.web.shapes import Body, Filter, Id, IfMatch, Since, Until, UserName, View, Word, tag, wanted_version

router = APIRouter(route_class=GuardedRoute, tags=["accounts"])


class UserView(View):
    """A user."""

    id: int
    name: str
    role: Role
    disabled_at: datetime | None
    created_at: datetime
    updated_at: datetime
    password_changed_at: datetime
    last_login_at: datetime | None
    version: int


class NewUser(Body):
    """A user to be made."""

    name: Word = Field(examples=["ann"])
    role: Role = Role.USER
    password: Annotated[SecretStr | None, Field(max_length=1024)] = None
    """null: one is made, and is in the answer."""


class MadeUser(UserView):
    """A user that was made."""

    password: str | None
    """The one that was made; nobody can see it again. null: you gave one."""


class UserChange(Body):
    """What is to be different. What is left out stays as it is."""

    role: Role | None = None
    disabled: bool | None = None
    password: Annotated[SecretStr | None, Field(max_length=1024)] = None


class Entry(View):
    """Something that somebody did."""

    id: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


@router.get("/api/admin/users", summary="Users")
def users(
    office: TheOffice, request: Request, response: Response, cursor: CursorText = None, limit: Limit = USUAL
) -> Page[UserView]:
    """In the order of their ids."""
    found = office.accounts.listing(after=unpack_id(cursor) or 0, limit=limit)
    return page_of(request, response, [UserView.of(user) for user in found], limit)


@router.post("/api/admin/users", summary="Make a user", status_code=201)
def add_user(given: NewUser, response: Response, office: TheOffice, who: Who) -> MadeUser:
    """With a password of your choice, or one that is made and shown this once."""
    chosen = given.password.get_secret_value() if given.password is not None else None
    user, made = office.accounts.add(given.name, given.role, chosen, actor=who.name)
    response.headers["Location"] = f"/api/admin/users/{user.name}"
    tag(response, user.version)
    return MadeUser.of(user, password=made)


@router.get("/api/admin/users/{name}", summary="A user", responses=documented(404))
def user(name: UserName, response: Response, office: TheOffice) -> UserView:
    """By name or id."""
    found = office.accounts.show(name)
    tag(response, found.version)
    return UserView.of(found)


@router.patch("/api/admin/users/{name}", summary="Change a user", responses=documented(404, 412))
def change_user(
    name: UserName, change: UserChange, response: Response, office: TheOffice, who: Who, if_match: IfMatch = None
) -> UserView:
    """One thing at a time. All sessions of the user end. The last admin stays one."""
    asked = change.model_dump(exclude_none=True)
    if len(asked) != 1:
        raise UsageError("Change one thing at a time: role, disabled or password.")
    version = wanted_version(if_match)
    accounts = office.accounts
    if change.role is not None:
        changed = accounts.set_role(name, change.role, actor=who.name, version=version)
    elif change.password is not None:
        chosen = change.password.get_secret_value()
        changed = accounts.set_password(name, chosen, actor=who.name, version=version).user
    else:
        switch = accounts.disable if change.disabled else accounts.enable
        changed = switch(name, actor=who.name, version=version).user
    tag(response, changed.version)
    return UserView.of(changed)


@router.delete("/api/admin/users/{name}", summary="Forget a user", status_code=204, responses=documented(404, 412))
def remove_user(name: UserName, office: TheOffice, who: Who, if_match: IfMatch = None) -> None:
    """With all sessions and keys. The last admin stays."""
    office.accounts.remove(name, actor=who.name, version=wanted_version(if_match))


@router.get("/api/admin/users/{name}/sessions", summary="Sessions of a user", responses=documented(404))
def sessions(
    name: UserName,
    office: TheOffice,
    who: Who,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[SessionView]:
    """Those that have not ended, the newest first."""
    owner = office.accounts.show(name)
    found = office.accounts.sessions(owner.id, before=unpack_id(cursor), limit=limit)
    mine = who.grant_id if who.via == "session" else None
    return page_of(request, response, [SessionView.of(row, current=row.id == mine) for row in found], limit)


@router.delete(
    "/api/admin/users/{name}/sessions", summary="Log a user out everywhere", status_code=204, responses=documented(404)
)
def end_sessions(name: UserName, office: TheOffice, who: Who) -> None:
    """All sessions of the user end at once."""
    office.accounts.revoke_sessions(name, actor=who.name)


@router.get("/api/admin/keys", summary="API keys of all users")
def keys(
    office: TheOffice, request: Request, response: Response, cursor: CursorText = None, limit: Limit = USUAL
) -> Page[KeyView]:
    """Also those that open nothing any more, in the order of their ids."""
    found = office.accounts.keys(after=unpack_id(cursor) or 0, limit=limit)
    return page_of(request, response, [KeyView.of(row) for row in found], limit)


@router.delete("/api/admin/keys/{id}", summary="Revoke anybody's API key", status_code=204, responses=documented(404))
def revoke_key(id: Id, office: TheOffice, who: Who) -> None:  # noqa: A002 — the name of the parameter
    """It opens nothing any more, from now on and for good."""
    office.accounts.revoke_key(id, actor=who.name)


@router.get("/api/admin/audit", summary="Who did what")
def audit(
    office: TheOffice,
    request: Request,
    response: Response,
    actor: Filter = None,
    kind: Filter = None,
    object_id: Annotated[Filter, Query(description="With `kind` only.")] = None,
    action: Filter = None,
    since: Since = None,
    until: Until = None,
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[Entry]:
    """The newest first."""
    query = AuditQuery(actor, kind, object_id, action, since, until)
    found = office.browser.audit(query, after=behind("audit", "newest", cursor), limit=limit)
    return keyed(request, response, [Entry.of(row) for row in found.rows], found.next)
