"""Answers that are kept, so that a request that is sent twice is done once.

The rule: the row is written in the transaction that does what the answer says. It is there if and only if that is done; whoever repeats
the request meanwhile waits for the first one's end at the row's key.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from holdfast.errors import UnderWay

_CHUNK: Final = 1_000

# An answer that has expired is as good as none. The row of one who is still at it is not seen: the insert waits for him.
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
class Answer:
    """What a request was answered with."""

    fingerprint: bytes
    """Of the request."""
    status: int
    headers: dict[str, str]
    body: bytes


def reserve(
    connection: psycopg.Connection, *, owner: str, key: str, fingerprint: bytes, keep: timedelta, patience: timedelta
) -> Answer | None:
    """None: nobody has asked this before, and until our transaction ends nobody else does it. Otherwise the answer that was given.

    Before: the transaction that will do it is open. UnderWay: another one is still at it after `patience`; the transaction has failed.
    """
    given = {"owner": owner, "key": key, "fingerprint": fingerprint, "keep": keep}
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{round(patience.total_seconds() * 1000)}ms",))
    try:
        reserved = connection.execute(_RESERVE, given).rowcount == 1
    except psycopg.errors.LockNotAvailable as problem:
        raise UnderWay("A request with this Idempotency-Key is still under way; ask again in a moment.") from problem
    connection.execute("SELECT set_config('lock_timeout', '0', true)")
    if reserved:
        return None
    with connection.cursor(row_factory=class_row(Answer)) as cursor:
        return cursor.execute(_READ, given).fetchone()


def keep(
    connection: psycopg.Connection, *, owner: str, key: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    """The answer of a request. Before: `reserve` said None in this transaction."""
    given = {"owner": owner, "key": key, "status": status, "headers": Jsonb(headers), "body": body}
    connection.execute(_KEEP, given)


def tidy(connection: psycopg.Connection) -> int:
    """Forget answers whose time is over, a chunk of them; how many."""
    return connection.execute(_TIDY, {"chunk": _CHUNK}).rowcount
