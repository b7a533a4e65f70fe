"""SQL of API keys. The lookup by token is in `db/request_auth`.

The rule: the database has the hash of a token and its first characters, never the token. A key that was revoked or has expired, or whose
owner is disabled, opens nothing from the next statement on.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.accounts.records import ApiKey
from holdfast.db import audit
from holdfast.db.rows import by_name
from holdfast.errors import NotFound, Refused
from holdfast.model.auth import Scope

KIND: Final = "key"

_READ: Final = """
SELECT k.id, k.user_id, u.name AS user_name, k.name, k.prefix, k.scopes, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.version
FROM api_keys k JOIN users u ON u.id = k.user_id
"""
_BY_ID: Final = f"{_READ} WHERE k.id = %(id)s"
_OF_ALL: Final = f"{_READ} WHERE k.id > %(after)s ORDER BY k.id LIMIT %(limit)s"
_OF_USER: Final = f"{_READ} WHERE k.user_id = %(user)s AND k.id > %(after)s ORDER BY k.id LIMIT %(limit)s"
_ADD: Final = """
INSERT INTO api_keys (user_id, name, prefix, token_hash, scopes, expires_at)
VALUES (%(user)s, %(name)s, %(prefix)s, %(hash)s, %(scopes)s, clock_timestamp() + %(expires_in)s::interval)
ON CONFLICT (user_id, name) WHERE revoked_at IS NULL DO NOTHING RETURNING id
"""
_REVOKE: Final = """
UPDATE api_keys SET revoked_at = clock_timestamp(), version = version + 1 WHERE id = %(id)s AND revoked_at IS NULL
"""


def _scopes(scopes: list[str]) -> tuple[Scope, ...]:
    return tuple(Scope(scope) for scope in scopes)


_as_key: Final = by_name(ApiKey, scopes=_scopes)


def add(
    connection: psycopg.Connection,
    user_id: int,
    name: str,
    scopes: Sequence[Scope],
    *,
    token_hash: bytes,
    prefix: str,
    expires_in: timedelta | None,
    actor: str,
) -> ApiKey:
    """Add a key. Before: the same transaction has locked the owner. Refused if the owner has an unrevoked key of that name."""
    values = {"user": user_id, "name": name, "prefix": prefix, "hash": token_hash, "expires_in": expires_in}
    with connection.transaction():
        row = connection.execute(_ADD, {**values, "scopes": [str(scope) for scope in scopes]}).fetchone()
        if row is None:
            raise Refused(f"There is a key {name} of this user already; revoke it, or choose another name.")
        made = get(connection, row[0])
        details = {
            "user": made.user_name,
            "name": name,
            "prefix": prefix,
            "scopes": list(scopes),
            "expires_at": made.expires_at.isoformat() if made.expires_at else None,
        }
        audit.write(connection, actor=actor, action="add", kind=KIND, object_id=made.id, details=details)
    return made


def get(connection: psycopg.Connection, key_id: int, *, user_id: int | None = None) -> ApiKey:
    """Return one key. Raises NotFound, also if it belongs to another user than `user_id`."""
    with connection.cursor(row_factory=_as_key) as cursor:
        found = cursor.execute(_BY_ID, {"id": key_id}).fetchone()
    if found is None or user_id not in {None, found.user_id}:
        raise NotFound(f"There is no key {key_id}.")
    return found


def listing(
    connection: psycopg.Connection, *, user_id: int | None = None, after: int = 0, limit: int = 100
) -> list[ApiKey]:
    """Return keys in the order of their ids, revoked and expired ones too; `after` is the last id of the page before."""
    query = _OF_ALL if user_id is None else _OF_USER
    with connection.cursor(row_factory=_as_key) as cursor:
        return cursor.execute(query, {"user": user_id, "after": after, "limit": limit}).fetchall()


def revoke(connection: psycopg.Connection, key_id: int, *, actor: str, user_id: int | None = None) -> bool:
    """Revoke a key for good; False if it was revoked already. Raises NotFound, as `get` does."""
    with connection.transaction():
        key = get(connection, key_id, user_id=user_id)
        changed = connection.execute(_REVOKE, {"id": key_id}).rowcount > 0
        if changed:
            details = {"user": key.user_name, "name": key.name, "prefix": key.prefix}
            audit.write(connection, actor=actor, action="revoke", kind=KIND, object_id=key_id, details=details)
    return changed
