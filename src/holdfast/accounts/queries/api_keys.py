"""API keys: what programs come in with.

The rule: the store knows the hash of a key and its first characters, never the key. One that was revoked or has expired, or whose
owner may not come in, opens nothing from the next statement on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import kwargs_row

from holdfast.errors import NotFound, Refused
from holdfast.model.account import Scope
from holdfast.store import audit

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
# Whoever else is writing down that it was used does so for us, too.
FOUND: Final = """
WITH found AS MATERIALIZED (
    SELECT k.id, k.user_id, u.name, u.role::text, k.name AS key_name, k.scopes,
           COALESCE(k.last_used_at < statement_timestamp() - interval '1 minute', true) AS stale
    FROM api_keys k JOIN users u ON u.id = k.user_id
    WHERE k.token_hash = %(hash)s AND k.revoked_at IS NULL AND u.disabled_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > statement_timestamp())
), mine AS MATERIALIZED (
    SELECT k.id FROM api_keys k WHERE k.id = (SELECT f.id FROM found f WHERE f.stale) FOR NO KEY UPDATE SKIP LOCKED
), used AS (
    UPDATE api_keys k SET last_used_at = statement_timestamp() FROM mine WHERE k.id = mine.id
)
"""
"""How a statement begins that has to know whose key it is: `found` is him, if the key opens anything."""
_FIND: Final = f"{FOUND} SELECT id, user_id, name, role, key_name, scopes FROM found"  # noqa: S608 — a constant
_REVOKE: Final = """
UPDATE api_keys SET revoked_at = clock_timestamp(), version = version + 1 WHERE id = %(id)s AND revoked_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as people look at it, without what it opens with."""

    id: int
    user_id: int
    user_name: str
    name: str
    prefix: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    version: int


class KeyHolder(NamedTuple):
    """Whose key it is, and what for."""

    key_id: int
    user_id: int
    name: str
    role: str
    key_name: str
    scopes: list[str]


def _key(**columns: Any) -> ApiKey:
    return ApiKey(**{**columns, "scopes": tuple(Scope(scope) for scope in columns["scopes"])})


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
    """A new key. Before: the owner is there, in the same transaction. Refused if he has one of that name that was not revoked."""
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
    """One key. Raises NotFound, also if it is not of the user who is named."""
    with connection.cursor(row_factory=kwargs_row(_key)) as cursor:
        found = cursor.execute(_BY_ID, {"id": key_id}).fetchone()
    if found is None or user_id not in {None, found.user_id}:
        raise NotFound(f"There is no key {key_id}.")
    return found


def listing(
    connection: psycopg.Connection, *, user_id: int | None = None, after: int = 0, limit: int = 100
) -> list[ApiKey]:
    """Keys in the order of their ids, also those that open nothing any more; `after` is the last one seen."""
    query = _OF_ALL if user_id is None else _OF_USER
    with connection.cursor(row_factory=kwargs_row(_key)) as cursor:
        return cursor.execute(query, {"user": user_id, "after": after, "limit": limit}).fetchall()


def find(connection: psycopg.Connection, token_hash: bytes) -> KeyHolder | None:
    """Whose key it is; None if it is none, has expired or was revoked, or he may not come in."""
    row = connection.execute(_FIND, {"hash": token_hash}).fetchone()
    return KeyHolder(*row) if row else None


def revoke(connection: psycopg.Connection, key_id: int, *, actor: str, user_id: int | None = None) -> bool:
    """Let a key open nothing any more, for good; False if it was revoked already. Raises NotFound, as `get` does."""
    with connection.transaction():
        key = get(connection, key_id, user_id=user_id)
        changed = connection.execute(_REVOKE, {"id": key_id}).rowcount > 0
        if changed:
            details = {"user": key.user_name, "name": key.name, "prefix": key.prefix}
            audit.write(connection, actor=actor, action="revoke", kind=KIND, object_id=key_id, details=details)
    return changed
