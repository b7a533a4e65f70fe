"""Sessions: who has come in, from where, until when.

The rule: the store knows the hash of a token, never the token. What has ended is dead in the next statement, whoever ended it; looking
a session up writes once a minute at the most, and never waits for anybody.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import class_row

from holdfast.errors import NotFound
from holdfast.store import audit

KIND: Final = "session"
KEPT: Final = timedelta(days=7)
"""So long a session is kept after its end: for people who look, and because it says which addresses a user comes from."""

_LIVE: Final = "s.revoked_at IS NULL AND s.expires_at > statement_timestamp()"
_READ: Final = """
SELECT s.id, s.user_id, s.created_at, s.expires_at, s.last_used_at, s.revoked_at, s.address, s.user_agent FROM sessions s
"""
_LIVE_OF: Final = (
    f"{_READ} WHERE s.user_id = %(user)s AND {_LIVE} AND s.id < %(before)s ORDER BY s.id DESC LIMIT %(limit)s"
)
_OPEN: Final = """
INSERT INTO sessions (user_id, token_hash, expires_at, address, origin, user_agent)
VALUES (%(user)s, %(hash)s, clock_timestamp() + %(lifetime)s, %(address)s, %(origin)s, %(agent)s)
RETURNING id, expires_at
"""
# Whoever else is writing it down at this moment does so for us, too.
FOUND: Final = f"""
WITH found AS MATERIALIZED (
    SELECT s.id, s.user_id, u.name, u.role::text, s.last_used_at < statement_timestamp() - interval '1 minute' AS stale
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.token_hash = %(hash)s AND {_LIVE} AND u.disabled_at IS NULL
), mine AS MATERIALIZED (
    SELECT s.id FROM sessions s WHERE s.id = (SELECT f.id FROM found f WHERE f.stale) FOR NO KEY UPDATE SKIP LOCKED
), used AS (
    UPDATE sessions s SET last_used_at = statement_timestamp() FROM mine WHERE s.id = mine.id
)
"""  # noqa: S608 — a constant
"""How a statement begins that has to know whose session it is: `found` is him, if it has not ended."""
_FIND: Final = f"{FOUND} SELECT id, user_id, name, role FROM found"  # noqa: S608 — a constant
_REVOKE: Final = "UPDATE sessions s SET revoked_at = clock_timestamp()"
_REVOKE_ONE: Final = f"{_REVOKE} FROM users u WHERE s.id = %(id)s AND u.id = s.user_id AND {_LIVE} RETURNING u.name"
_REVOKE_TOKEN: Final = (
    f"{_REVOKE} FROM users u WHERE s.token_hash = %(hash)s AND u.id = s.user_id AND {_LIVE} RETURNING s.id, u.name"
)
_REVOKE_ALL: Final = f"""
{_REVOKE} FROM (SELECT s.id FROM sessions s WHERE s.user_id = %(user)s AND {_LIVE} ORDER BY s.id FOR NO KEY UPDATE) live
WHERE s.id = live.id
"""  # noqa: S608 — a constant
_TIDY: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM sessions WHERE LEAST(expires_at, revoked_at) < statement_timestamp() - %(kept)s
    ORDER BY LEAST(expires_at, revoked_at) LIMIT %(chunk)s FOR UPDATE SKIP LOCKED
)
DELETE FROM sessions s USING old WHERE s.id = old.id
"""


@dataclass(frozen=True, slots=True)
class Session:
    """A login as people look at it."""

    id: int
    user_id: int
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    revoked_at: datetime | None
    address: str
    user_agent: str


class Client(NamedTuple):
    """Where a login comes from."""

    address: str
    origin: str
    """The same as failed logins are counted by it."""
    user_agent: str


class Holder(NamedTuple):
    """Whose session it is."""

    session_id: int
    user_id: int
    name: str
    role: str


def begin(
    connection: psycopg.Connection, user_id: int, token_hash: bytes, client: Client, *, lifetime: timedelta
) -> tuple[int, datetime]:
    """A new session; its id, and when it expires. Before: the transaction that found the password to be right is open."""
    values = {"user": user_id, "hash": token_hash, "lifetime": lifetime, **client._asdict(), "agent": client.user_agent}
    row = connection.execute(_OPEN, values).fetchone()
    assert row is not None  # noqa: S101 — an insert returns its row
    return row[0], row[1]


def find(connection: psycopg.Connection, token_hash: bytes) -> Holder | None:
    """Whose session it is; None if it is none, has ended, or he may not come in."""
    row = connection.execute(_FIND, {"hash": token_hash}).fetchone()
    return Holder(*row) if row else None


def listing(
    connection: psycopg.Connection, user_id: int, *, before: int | None = None, limit: int = 100
) -> list[Session]:
    """Sessions of a user that have not ended, the newest first; `before` is the id of the last one seen."""
    keys = {"user": user_id, "before": 2**63 - 1 if before is None else before, "limit": limit}
    with connection.cursor(row_factory=class_row(Session)) as cursor:
        return cursor.execute(_LIVE_OF, keys).fetchall()


def end(connection: psycopg.Connection, token_hash: bytes) -> bool:
    """Let go of a session, by whoever has its token; False if it was none, or has ended."""
    with connection.transaction():
        row = connection.execute(_REVOKE_TOKEN, {"hash": token_hash}).fetchone()
        if row is not None:
            audit.write(connection, actor=row[1], action="logout", kind=KIND, object_id=row[0])
    return row is not None


def replaced(connection: psycopg.Connection, token_hash: bytes) -> int | None:
    """End the session that a client had before it logged in anew; its id. Whoever begins the new one writes both down."""
    row = connection.execute(_REVOKE_TOKEN, {"hash": token_hash}).fetchone()
    return row[0] if row else None


def revoke(connection: psycopg.Connection, session_id: int, *, actor: str, user_id: int | None = None) -> bool:
    """End a session; False if it has ended. Raises NotFound, also if it is not of the user who is named."""
    with connection.transaction():
        row = connection.execute("SELECT user_id FROM sessions WHERE id = %s", (session_id,)).fetchone()
        if row is None or user_id not in {None, row[0]}:
            raise NotFound(f"There is no session {session_id}.")
        ended = connection.execute(_REVOKE_ONE, {"id": session_id}).fetchone()
        if ended is not None:
            details = {"user": ended[0]}
            audit.write(connection, actor=actor, action="revoke", kind=KIND, object_id=session_id, details=details)
    return ended is not None


def revoke_all(connection: psycopg.Connection, user_id: int) -> int:
    """End all sessions of a user; how many. Before: a transaction is open that says why in the audit log."""
    return connection.execute(_REVOKE_ALL, {"user": user_id}).rowcount


def tidy(connection: psycopg.Connection, *, chunk: int) -> int:
    """Delete sessions that ended long ago, so many at the most; how many."""
    return connection.execute(_TIDY, {"kept": KEPT, "chunk": chunk}).rowcount
