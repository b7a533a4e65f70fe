"""Idempotency keys: stored responses, so that a request that is sent twice is executed once.

The rule: the row is written in the transaction that does the work. It exists if and only if the work is done; a concurrent repetition
of the request waits for the first one at the row's key.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from holdfast.errors import UnderWay

_CHUNK: Final = 1_000

# An expired response counts as none. The row of a request in progress is not visible: the insert waits for its transaction.
_RESERVE: Final = """
INSERT INTO kept_answers AS k (owner, key, fingerprint, expires_at)
VALUES (%(owner)s, %(key)s, %(fingerprint)s, clock_timestamp() + %(keep)s)
ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, expires_at = excluded.expires_at, status = NULL,
    headers = '{}', body = NULL
WHERE k.expires_at <= clock_timestamp()
"""
_READ: Final = "SELECT fingerprint, status, headers, body FROM kept_answers WHERE owner = %(owner)s AND key = %(key)s"
_KEEP: Final = """
UPDATE kept_answers SET status = %(status)s, headers = %(headers)s, body = %(body)s WHERE owner = %(owner)s AND key = %(key)s
"""
_TIDY: Final = """
DELETE FROM kept_answers WHERE (owner, key) IN (
    SELECT owner, key FROM kept_answers WHERE expires_at <= clock_timestamp() ORDER BY expires_at LIMIT %(chunk)s)
"""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The stored response of a request."""

    fingerprint: bytes
    """Hash of the request."""
    status: int
    headers: dict[str, str]
    body: bytes


def reserve(
    connection: psycopg.Connection, *, owner: str, key: str, fingerprint: bytes, ttl: timedelta, timeout: timedelta
) -> StoredResponse | None:
    """Reserve the key for this transaction (None), or return the stored response of an earlier request.

    `ttl`: how long the response is stored. Before: the transaction that does the work is open. Raises UnderWay if another request with
    the key is still in progress after `timeout`; the transaction has failed then.
    """
    parameters = {"owner": owner, "key": key, "fingerprint": fingerprint, "keep": ttl}
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{round(timeout.total_seconds() * 1000)}ms",))
    try:
        reserved = connection.execute(_RESERVE, parameters).rowcount == 1
    except psycopg.errors.LockNotAvailable as problem:
        raise UnderWay("A request with this Idempotency-Key is still under way; ask again in a moment.") from problem
    connection.execute("SELECT set_config('lock_timeout', '0', true)")
    if reserved:
        return None
    with connection.cursor(row_factory=class_row(StoredResponse)) as cursor:
        return cursor.execute(_READ, parameters).fetchone()


def save_response(
    connection: psycopg.Connection, *, owner: str, key: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    """Store the response of a request. Before: `reserve` returned None in this transaction."""
    parameters = {"owner": owner, "key": key, "status": status, "headers": Jsonb(headers), "body": body}
    connection.execute(_KEEP, parameters)


def delete_expired(connection: psycopg.Connection) -> int:
    """Delete a chunk of expired responses; returns how many."""
    return connection.execute(_TIDY, {"chunk": _CHUNK}).rowcount
