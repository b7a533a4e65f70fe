"""Users: who may come in, under which name and role.

The rule: whoever changes a user holds the one lock of all accounts, so that of two people who take an admin away at the same time the
second one sees what the first has done; and all sessions end in the transaction that makes them worth ending.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import kwargs_row

from holdfast.errors import Changed, NotFound, Refused
from holdfast.model.account import Role
from holdfast.store import audit, sessions

KIND: Final = "user"
_ACCOUNTS_LOCK: Final = 0x61636374  # "acct"

_COLUMNS: Final = "id, name, role, disabled_at, created_at, updated_at, version, password_changed_at, last_login_at"
_READ: Final = f"SELECT {_COLUMNS} FROM users"  # noqa: S608 — a constant
_BY_ID: Final = f"{_READ} WHERE id = %(who)s"
_BY_NAME: Final = f"{_READ} WHERE lower(name) = lower(%(who)s)"
_PAGE: Final = f"{_READ} WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
_ADD: Final = f"""
INSERT INTO users (name, role, password_hash) VALUES (%(name)s, %(role)s, %(hash)s) ON CONFLICT (lower(name)) DO NOTHING
RETURNING {_COLUMNS}
"""  # noqa: S608 — a constant
_EDITS: Final = {
    column: f"UPDATE users SET {assignment}, version = version + 1, updated_at = clock_timestamp() WHERE id = %(id)s RETURNING {_COLUMNS}"  # noqa: S608 — constants
    for column, assignment in {
        "password": "password_hash = %(value)s, password_changed_at = clock_timestamp()",
        "role": "role = %(value)s",
        "disabled": "disabled_at = CASE WHEN %(value)s THEN clock_timestamp() END",
    }.items()
}
_OTHER_ADMIN: Final = "SELECT EXISTS (SELECT FROM users WHERE role = 'admin' AND disabled_at IS NULL AND id <> %(id)s)"
_ENTER: Final = f"""
UPDATE users SET last_login_at = clock_timestamp(), password_hash = COALESCE(%(new)s, password_hash)
WHERE id = %(id)s AND password_hash = %(verified)s AND disabled_at IS NULL
RETURNING {_COLUMNS}
"""  # noqa: S608 — a constant


@dataclass(frozen=True, slots=True)
class User:
    """A user as people look at him, without anything secret."""

    id: int
    name: str
    role: Role
    disabled_at: datetime | None
    created_at: datetime
    updated_at: datetime
    version: int
    password_changed_at: datetime
    last_login_at: datetime | None

    @property
    def may_administer(self) -> bool:
        """Whether he could let others in at present."""
        return self.role is Role.ADMIN and self.disabled_at is None


def _user(**columns: Any) -> User:
    return User(**{**columns, "role": Role(columns["role"])})


def _one(connection: psycopg.Connection, query: str, values: dict[str, object]) -> User | None:
    with connection.cursor(row_factory=kwargs_row(_user)) as cursor:
        return cursor.execute(query, values).fetchone()


# Looking --------------------------------------------------------------------------------------------------------------


def get(connection: psycopg.Connection, who: int | str, *, lock: bool = False) -> User:
    """A user by id or name, whatever the case of its letters. Raises NotFound."""
    query = _BY_ID if isinstance(who, int) else _BY_NAME
    found = _one(connection, query + (" FOR NO KEY UPDATE" if lock else ""), {"who": who})
    if found is None:
        raise NotFound(f"There is no user {who}.")
    return found


def listing(connection: psycopg.Connection, *, after: int = 0, limit: int = 100) -> list[User]:
    """Users in the order of their ids; `after` is the last one seen."""
    with connection.cursor(row_factory=kwargs_row(_user)) as cursor:
        return cursor.execute(_PAGE, {"after": after, "limit": limit}).fetchall()


def any_there(connection: psycopg.Connection) -> bool:
    """Whether there is any user at all."""
    row = connection.execute("SELECT EXISTS (SELECT FROM users)").fetchone()
    return bool(row and row[0])


# By hand --------------------------------------------------------------------------------------------------------------


def add(connection: psycopg.Connection, name: str, role: Role, password_hash: str, *, actor: str) -> User:
    """A new user. Refused if there is one of that name."""
    with connection.transaction():
        _alone(connection)
        return _add(connection, name, role, password_hash, actor=actor)


def add_first(connection: psycopg.Connection, name: str, password_hash: str, *, actor: str) -> User | None:
    """The first admin; None, with nothing changed, if there is any user, made at the same moment by somebody else perhaps."""
    with connection.transaction():
        _alone(connection)
        if any_there(connection):
            return None
        return _add(connection, name, Role.ADMIN, password_hash, actor=actor)


def _add(connection: psycopg.Connection, name: str, role: Role, password_hash: str, *, actor: str) -> User:
    made = _one(connection, _ADD, {"name": name, "role": role, "hash": password_hash})
    if made is None:
        raise Refused(f"There is a user {name} already.")
    details = {"name": name, "role": role}
    audit.write(connection, actor=actor, action="add", kind=KIND, object_id=made.id, details=details)
    return made


def set_password(
    connection: psycopg.Connection, who: int | str, password_hash: str, *, actor: str, version: int | None = None
) -> tuple[User, int]:
    """Another password; the user, and how many sessions ended by it."""
    with connection.transaction():
        user = _locked(connection, who, version)
        changed = _edit(connection, user, "password", password_hash)
        ended = sessions.revoke_all(connection, user.id)
        details = {"name": user.name, "sessions_ended": ended}
        audit.write(connection, actor=actor, action="set password", kind=KIND, object_id=user.id, details=details)
    return changed, ended


def set_role(
    connection: psycopg.Connection, who: int | str, role: Role, *, actor: str, version: int | None = None
) -> User:
    """Another role. After: all sessions have ended, if it is really another. Refused if no admin would be left."""
    with connection.transaction():
        user = _locked(connection, who, version)
        if user.role is role:
            return user
        _keep_an_admin(connection, user, "becomes a user")
        changed = _edit(connection, user, "role", role)
        ended = sessions.revoke_all(connection, user.id)
        details = {"name": user.name, "was": user.role, "role": role, "sessions_ended": ended}
        audit.write(connection, actor=actor, action="set role", kind=KIND, object_id=user.id, details=details)
    return changed


def switch(
    connection: psycopg.Connection, who: int | str, *, on: bool, actor: str, version: int | None = None
) -> tuple[User, bool]:
    """Let a user come in, or not any more; the user, and whether that changed anything. Refused if no admin would be left.

    After: one who may not come in has no session. The keys are as they were, and open nothing meanwhile.
    """
    with connection.transaction():
        user = _locked(connection, who, version)
        if (user.disabled_at is None) is on:
            return user, False
        if not on:
            _keep_an_admin(connection, user, "is disabled")
        changed = _edit(connection, user, "disabled", not on)
        details: dict[str, object] = {"name": user.name}
        if not on:
            details["sessions_ended"] = sessions.revoke_all(connection, user.id)
        action = "enable" if on else "disable"
        audit.write(connection, actor=actor, action=action, kind=KIND, object_id=user.id, details=details)
    return changed, True


def remove(connection: psycopg.Connection, who: int | str, *, actor: str, version: int | None = None) -> User:
    """Forget a user, with sessions and keys. Refused if no admin would be left."""
    with connection.transaction():
        user = _locked(connection, who, version)
        _keep_an_admin(connection, user, "is removed")
        connection.execute("DELETE FROM users WHERE id = %s", (user.id,))
        details = {"name": user.name, "role": user.role}
        audit.write(connection, actor=actor, action="remove", kind=KIND, object_id=user.id, details=details)
    return user


def _alone(connection: psycopg.Connection) -> None:
    """Until the end of the transaction nobody else changes users."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ACCOUNTS_LOCK,))


def _locked(connection: psycopg.Connection, who: int | str, version: int | None) -> User:
    _alone(connection)
    user = get(connection, who, lock=True)
    if version is not None and user.version != version:
        raise Changed(f"User {user.name} was changed meanwhile (version {user.version}, not {version}); look again.")
    return user


def _keep_an_admin(connection: psycopg.Connection, user: User, what: str) -> None:
    if not user.may_administer:
        return
    row = connection.execute(_OTHER_ADMIN, {"id": user.id}).fetchone()
    if not (row and row[0]):
        raise Refused(f"{user.name} is the only admin who may come in; make another one before he {what}.")


def _edit(connection: psycopg.Connection, user: User, what: str, value: object) -> User:
    changed = _one(connection, _EDITS[what], {"id": user.id, "value": value})
    assert changed is not None  # noqa: S101 — its row is locked
    return changed


# Logins ---------------------------------------------------------------------------------------------------------------


def enter(connection: psycopg.Connection, user_id: int, *, verified: str, new_hash: str | None = None) -> User | None:
    """The user whose password was found to be right against the hash `verified`; None if that, or the right to come in, is gone meanwhile.

    After: nobody changes him before our transaction ends. The hash is `new_hash`, if there is one.
    """
    return _one(connection, _ENTER, {"id": user_id, "verified": verified, "new": new_hash})
