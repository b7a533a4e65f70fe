"""SQL of users: names, roles, password hashes.

The rule: every change of a user holds one lock for all accounts, so that of two transactions that each remove an admin the second one
sees the result of the first. A change that ends sessions ends them in the same transaction.
"""

from typing import Final

import psycopg

from holdfast.accounts.queries import sessions
from holdfast.accounts.records import User
from holdfast.db import audit
from holdfast.db.rows import by_name
from holdfast.errors import Changed, NotFound, Refused
from holdfast.model.auth import Role

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
_RECORD_LOGIN: Final = f"""
UPDATE users SET last_login_at = clock_timestamp(), password_hash = COALESCE(%(new)s, password_hash)
WHERE id = %(id)s AND password_hash = %(verified)s AND disabled_at IS NULL
RETURNING {_COLUMNS}
"""  # noqa: S608 — a constant


def _role(role: str) -> Role:
    return Role(role)


_as_user: Final = by_name(User, role=_role)


def _one(connection: psycopg.Connection, query: str, values: dict[str, object]) -> User | None:
    with connection.cursor(row_factory=_as_user) as cursor:
        return cursor.execute(query, values).fetchone()


# Reading --------------------------------------------------------------------------------------------------------------


def get(connection: psycopg.Connection, who: int | str, *, lock: bool = False) -> User:
    """Return a user by id or by name, in any case of its letters. Raises NotFound."""
    query = _BY_ID if isinstance(who, int) else _BY_NAME
    found = _one(connection, query + (" FOR NO KEY UPDATE" if lock else ""), {"who": who})
    if found is None:
        raise NotFound(f"There is no user {who}.")
    return found


def listing(connection: psycopg.Connection, *, after: int = 0, limit: int = 100) -> list[User]:
    """Return users in the order of their ids; `after` is the last id of the page before."""
    with connection.cursor(row_factory=_as_user) as cursor:
        return cursor.execute(_PAGE, {"after": after, "limit": limit}).fetchall()


def exists(connection: psycopg.Connection) -> bool:
    """Whether there is any user."""
    row = connection.execute("SELECT EXISTS (SELECT FROM users)").fetchone()
    return bool(row and row[0])


# Changes --------------------------------------------------------------------------------------------------------------


def add(connection: psycopg.Connection, name: str, role: Role, password_hash: str, *, actor: str) -> User:
    """Add a user. Refused if the name is taken."""
    with connection.transaction():
        _lock_accounts(connection)
        return _add(connection, name, role, password_hash, actor=actor)


def add_first(connection: psycopg.Connection, name: str, password_hash: str, *, actor: str) -> User | None:
    """Add the first admin; None, with nothing changed, if there is a user already, also one that a concurrent transaction added."""
    with connection.transaction():
        _lock_accounts(connection)
        if exists(connection):
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
    """Set a password; return the user and the number of sessions that ended."""
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
    """Set a role. After: all sessions have ended, if the role changed. Refused if no admin would be left."""
    with connection.transaction():
        user = _locked(connection, who, version)
        if user.role is role:
            return user
        _check_admin_remains(connection, user, "becomes a user")
        changed = _edit(connection, user, "role", role)
        ended = sessions.revoke_all(connection, user.id)
        details = {"name": user.name, "was": user.role, "role": role, "sessions_ended": ended}
        audit.write(connection, actor=actor, action="set role", kind=KIND, object_id=user.id, details=details)
    return changed


def switch(
    connection: psycopg.Connection, who: int | str, *, on: bool, actor: str, version: int | None = None
) -> tuple[User, bool]:
    """Enable or disable a user; return the user, and whether anything changed. Refused if no admin would be left.

    After: a disabled user has no session. API keys stay, and open nothing while their owner is disabled.
    """
    with connection.transaction():
        user = _locked(connection, who, version)
        if (user.disabled_at is None) is on:
            return user, False
        if not on:
            _check_admin_remains(connection, user, "is disabled")
        changed = _edit(connection, user, "disabled", not on)
        details: dict[str, object] = {"name": user.name}
        if not on:
            details["sessions_ended"] = sessions.revoke_all(connection, user.id)
        action = "enable" if on else "disable"
        audit.write(connection, actor=actor, action=action, kind=KIND, object_id=user.id, details=details)
    return changed, True


def remove(connection: psycopg.Connection, who: int | str, *, actor: str, version: int | None = None) -> User:
    """Delete a user with all sessions and keys. Refused if no admin would be left."""
    with connection.transaction():
        user = _locked(connection, who, version)
        _check_admin_remains(connection, user, "is removed")
        connection.execute("DELETE FROM users WHERE id = %s", (user.id,))
        details = {"name": user.name, "role": user.role}
        audit.write(connection, actor=actor, action="remove", kind=KIND, object_id=user.id, details=details)
    return user


def _lock_accounts(connection: psycopg.Connection) -> None:
    """Keep other transactions from changing users until the end of this one."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ACCOUNTS_LOCK,))


def _locked(connection: psycopg.Connection, who: int | str, version: int | None) -> User:
    _lock_accounts(connection)
    user = get(connection, who, lock=True)
    if version is not None and user.version != version:
        raise Changed(f"User {user.name} was changed meanwhile (version {user.version}, not {version}); look again.")
    return user


def _check_admin_remains(connection: psycopg.Connection, user: User, what: str) -> None:
    if not user.is_active_admin:
        return
    row = connection.execute(_OTHER_ADMIN, {"id": user.id}).fetchone()
    if not (row and row[0]):
        raise Refused(f"{user.name} is the only enabled admin; add another one before {user.name} {what}.")


def _edit(connection: psycopg.Connection, user: User, what: str, value: object) -> User:
    changed = _one(connection, _EDITS[what], {"id": user.id, "value": value})
    assert changed is not None  # noqa: S101 — its row is locked
    return changed


# Logins ---------------------------------------------------------------------------------------------------------------


def record_login(
    connection: psycopg.Connection, user_id: int, *, verified: str, new_hash: str | None = None
) -> User | None:
    """Return the user whose password was verified against the hash `verified`; None if the hash was replaced or the user disabled since.

    After: no other transaction changes the user before this one ends. The hash is `new_hash`, if there is one.
    """
    return _one(connection, _RECORD_LOGIN, {"id": user_id, "verified": verified, "new": new_hash})
