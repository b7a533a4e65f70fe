"""Routes for admins: users, and the keys and sessions of all users."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field, SecretStr

from holdfast.accounts.api.auth import mark_current
from holdfast.accounts.records import ApiKey, CreatedUser, ListedSession, User
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import (
    DEFAULT_LIMIT,
    CursorText,
    Limit,
    Page,
    decode_id_cursor,
    id_page,
)
from holdfast.api.request_types import (
    Body,
    Id,
    IfMatch,
    ShortText,
    UserName,
    parse_if_match,
    set_etag,
)
from holdfast.errors import UsageError
from holdfast.model.auth import Role

router = APIRouter(route_class=AuthorizedRoute, tags=["accounts"])


class NewUser(Body):
    """The user to add."""

    name: ShortText = Field(examples=["ann"])
    role: Role = Role.USER
    password: Annotated[SecretStr | None, Field(max_length=1024)] = None
    """null: one is generated, and is in the answer."""


class UserChange(Body):
    """The field to change. Fields that are left out stay as they are."""

    role: Role | None = None
    disabled: bool | None = None
    password: Annotated[SecretStr | None, Field(max_length=1024)] = None


@router.get("/api/admin/users", summary="Users")
def users(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Page[User]:
    """In the order of their ids."""
    found = services.accounts.users(after=decode_id_cursor(cursor) or 0, limit=limit)
    return id_page(request, response, found, limit)


@router.post("/api/admin/users", summary="Add a user", status_code=201)
def add_user(given: NewUser, response: Response, services: Services, caller: Caller) -> CreatedUser:
    """With a password of your choice, or one that is generated and shown this once."""
    chosen = given.password.get_secret_value() if given.password is not None else None
    user, made = services.accounts.add(given.name, given.role, chosen, actor=caller.name)
    response.headers["Location"] = f"/api/admin/users/{user.name}"
    set_etag(response, user.version)
    return CreatedUser(**asdict(user), password=made)


@router.get("/api/admin/users/{name}", summary="A user", responses=documented(404))
def user(name: UserName, response: Response, services: Services) -> User:
    """By name or id."""
    found = services.accounts.show(name)
    set_etag(response, found.version)
    return found


@router.patch("/api/admin/users/{name}", summary="Change a user", responses=documented(404, 412))
def change_user(
    name: UserName, change: UserChange, response: Response, services: Services, caller: Caller, if_match: IfMatch = None
) -> User:
    """One thing at a time. All sessions of the user end. The last admin stays one."""
    asked = change.model_dump(exclude_none=True)
    if len(asked) != 1:
        raise UsageError("Change one thing at a time: role, disabled or password.")
    version = parse_if_match(if_match)
    accounts = services.accounts
    if change.role is not None:
        changed = accounts.set_role(name, change.role, actor=caller.name, version=version)
    elif change.password is not None:
        chosen = change.password.get_secret_value()
        changed = accounts.set_password(name, chosen, actor=caller.name, version=version).user
    else:
        switch = accounts.disable if change.disabled else accounts.enable
        changed = switch(name, actor=caller.name, version=version).user
    set_etag(response, changed.version)
    return changed


@router.delete("/api/admin/users/{name}", summary="Delete a user", status_code=204, responses=documented(404, 412))
def remove_user(name: UserName, services: Services, caller: Caller, if_match: IfMatch = None) -> None:
    """With all sessions and keys. The last admin stays."""
    services.accounts.remove(name, actor=caller.name, version=parse_if_match(if_match))


@router.get("/api/admin/users/{name}/sessions", summary="Sessions of a user", responses=documented(404))
def sessions(
    name: UserName,
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ListedSession]:
    """Those that have not ended, the newest first."""
    owner = services.accounts.show(name)
    found = services.accounts.sessions(owner.id, before=decode_id_cursor(cursor), limit=limit)
    return id_page(request, response, mark_current(found, caller), limit)


@router.delete(
    "/api/admin/users/{name}/sessions", summary="Log a user out everywhere", status_code=204, responses=documented(404)
)
def end_sessions(name: UserName, services: Services, caller: Caller) -> None:
    """All sessions of the user end at once."""
    services.accounts.revoke_sessions(name, actor=caller.name)


@router.get("/api/admin/keys", summary="API keys of all users")
def keys(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Page[ApiKey]:
    """Revoked and expired ones too, in the order of their ids."""
    found = services.accounts.keys(after=decode_id_cursor(cursor) or 0, limit=limit)
    return id_page(request, response, found, limit)


@router.delete(
    "/api/admin/keys/{id}", summary="Revoke an API key of any user", status_code=204, responses=documented(404)
)
def revoke_key(id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """It is invalid from now on, for good."""
    services.accounts.revoke_key(id, actor=caller.name)
