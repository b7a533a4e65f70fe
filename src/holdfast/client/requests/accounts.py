"""Requests about users, API keys and the audit log."""

from datetime import datetime

from holdfast.accounts.records import ApiKey, CreatedUser, ListedSession, Me, User
from holdfast.audit.records import Entry
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path, if_match, no_body


def me() -> RequestSpec[Me]:
    """The user that the server takes you for."""
    return RequestSpec("GET", "/api/auth/me", decode_one(Me))


def users() -> ListSpec[User]:
    """Users, in the order of their ids."""
    return ListSpec("/api/admin/users", User, {})


def user(user: str | int) -> RequestSpec[User]:
    """One user, by name or id."""
    return RequestSpec("GET", format_path("/api/admin/users/{}", user), decode_one(User))


def create_user(name: str, *, role: str = "user", password: str | None = None) -> RequestSpec[CreatedUser]:
    """Create a user. Without `password` one is generated, and is in the response."""
    body = {"name": name, "role": role, "password": password}
    return RequestSpec("POST", "/api/admin/users", decode_one(CreatedUser), body=body)


def change_user(
    user: str | int,
    *,
    role: str | None = None,
    disabled: bool | None = None,
    password: str | None = None,
    version: int | None = None,
) -> RequestSpec[User]:
    """Change one of role, disabled and password; all sessions of the user end. With `version`: only if there was no
    other change since that version."""
    path = format_path("/api/admin/users/{}", user)
    body = {"role": role, "disabled": disabled, "password": password}
    return RequestSpec("PATCH", path, decode_one(User), body=body, headers=if_match(version))


def delete_user(user: str | int, *, version: int | None = None) -> RequestSpec[None]:
    """Delete a user with all sessions and API keys."""
    return RequestSpec("DELETE", format_path("/api/admin/users/{}", user), no_body, headers=if_match(version))


def user_sessions(user: str | int) -> ListSpec[ListedSession]:
    """Sessions of a user that have not ended, the newest first."""
    return ListSpec(format_path("/api/admin/users/{}/sessions", user), ListedSession, {})


def end_user_sessions(user: str | int) -> RequestSpec[None]:
    """End all sessions of a user."""
    return RequestSpec("DELETE", format_path("/api/admin/users/{}/sessions", user), no_body)


def api_keys() -> ListSpec[ApiKey]:
    """API keys of all users, revoked and expired ones too, in the order of their ids."""
    return ListSpec("/api/admin/keys", ApiKey, {})


def revoke_api_key(key: int) -> RequestSpec[None]:
    """Revoke an API key of any user, for good."""
    return RequestSpec("DELETE", format_path("/api/admin/keys/{}", key), no_body)


def audit(
    *,
    actor: str | None = None,
    kind: str | None = None,
    object_id: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> ListSpec[Entry]:
    """The audit log, the newest entry first; `object_id` needs `kind`."""
    what = {"actor": actor, "kind": kind, "object_id": object_id, "action": action}
    return ListSpec("/api/admin/audit", Entry, {**what, "since": since, "until": until})
