"""SQL of sessions. The lookup by token is in `db/request_auth`.

The rule: the database has the hash of a token, never the token. A session that has ended opens nothing from the next statement on.
Looking a session up writes at most once a minute, and waits for no lock.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import class_row

from holdfast.accounts.records import Session
from holdfast.db import audit
from holdfast.db.request_auth import LIVE_SESSION
from holdfast.errors import NotFound

KIND: Final = "session"
KEPT: Final = timedelta(days=7)
"""How long a session stays in the database after its end: it tells which addresses a user has logged in from."""

_READ: Final = """
SELECT s.id, s.user_id, s.created_at, s.expires_at, s.last_used_at, s.revoked_at, s.address, s.user_agent FROM sessions s
"""
_LIVE_OF: Final = (
    f"{_READ} WHERE s.user_id = %(user)s AND {LIVE_SESSION} AND s.id < %(before)s ORDER BY s.id DESC LIMIT %(limit)s"
)
_BEGIN: Final = """
INSERT INTO sessions (user_id, token_hash, expires_at, address, origin, user_agent)
VALUES (%(user)s, %(hash)s, clock_timestamp() + %(lifetime)s, %(address)s, %(origin)s, %(agent)s)
RETURNING id, expires_at
"""
_REVOKE: Final = "UPDATE sessions s SET revoked_at = clock_timestamp()"
_REVOKE_ONE: Final = (
    f"{_REVOKE} FROM users u WHERE s.id = %(id)s AND u.id = s.user_id AND {LIVE_SESSION} RETURNING u.name"
)
_REVOKE_TOKEN: Final = f"""
{_REVOKE} FROM users u WHERE s.token_hash = %(hash)s AND u.id = s.user_id AND {LIVE_SESSION} RETURNING s.id, u.name
"""
_REVOKE_ALL: Final = f"""
{_REVOKE} FROM (SELECT s.id FROM sessions s WHERE s.user_id = %(user)s AND {LIVE_SESSION} ORDER BY s.id FOR NO KEY UPDATE) live
WHERE s.id = live.id
"""  # noqa: S608 — a constant
_TIDY: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM sessions WHERE LEAST(expires_at, revoked_at) < statement_timestamp() - %(kept)s
    ORDER BY LEAST(expires_at, revoked_at) LIMIT %(chunk)s FOR UPDATE SKIP LOCKED
)
DELETE FROM sessions s USING old WHERE s.id = old.id
"""


class Client(NamedTuple):
    """The client of a login."""

    address: str
    origin: str
    """The address or network that failed logins are counted by."""
    user_agent: str


def begin(
    connection: psycopg.Connection, user_id: int, token_hash: bytes, client: Client, *, lifetime: timedelta
) -> tuple[int, datetime]:
    """Begin a session; return its id and the time of its end. Before: the transaction that has verified the password is open."""
    values = {"user": user_id, "hash": token_hash, "lifetime": lifetime, **client._asdict(), "agent": client.user_agent}
    row = connection.execute(_BEGIN, values).fetchone()
    assert row is not None  # noqa: S101 — an insert returns its row
    return row[0], row[1]


def listing(
    connection: psycopg.Connection, user_id: int, *, before: int | None = None, limit: int = 100
) -> list[Session]:
    """Return sessions of a user that have not ended, the newest first; `before` is the last id of the page before."""
    keys = {"user": user_id, "before": 2**63 - 1 if before is None else before, "limit": limit}
    with connection.cursor(row_factory=class_row(Session)) as cursor:
        return cursor.execute(_LIVE_OF, keys).fetchall()


def end(connection: psycopg.Connection, token_hash: bytes) -> bool:
    """End the session of a token; False if there is no such session, or it has ended."""
    with connection.transaction():
        row = connection.execute(_REVOKE_TOKEN, {"hash": token_hash}).fetchone()
        if row is not None:
            audit.write(connection, actor=row[1], action="logout", kind=KIND, object_id=row[0])
    return row is not None


def replace(connection: psycopg.Connection, token_hash: bytes) -> int | None:
    """End the session that a client had before a new login; return its id. The caller writes the audit entry for both."""
    row = connection.execute(_REVOKE_TOKEN, {"hash": token_hash}).fetchone()
    return row[0] if row else None


def revoke(connection: psycopg.Connection, session_id: int, *, actor: str, user_id: int | None = None) -> bool:
    """End a session; False if it has ended. Raises NotFound, also if it belongs to another user than `user_id`."""
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
    """End all sessions of a user; return their number. Before: a transaction is open that writes the audit entry."""
    return connection.execute(_REVOKE_ALL, {"user": user_id}).rowcount


def tidy(connection: psycopg.Connection, *, chunk: int) -> int:
    """Delete at most `chunk` sessions that ended long ago; return their number."""
    return connection.execute(_TIDY, {"kept": KEPT, "chunk": chunk}).rowcount
