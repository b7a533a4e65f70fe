"""Attempts to log in, and how many of them may fail.

The rule: an attempt takes its place among the failures, under a lock of the account and one of the address, before anybody looks at its
password; a success gives the place back. So no number of attempts at the same time gets more of them looked at than the limits allow,
through any number of servers, and a server that dies in between leaves a failure, never a free attempt.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final, NamedTuple

import psycopg

from holdfast.errors import TooMany, UsageError
from holdfast.settings.duration import render
from holdfast.store import audit
from holdfast.store.sessions import KEPT

MOST_TOLD: Final = 100
"""So many begins of limits are in the audit log for one window: whoever has many addresses must not fill it."""
_SPACE: Final = 0x6C6F676E  # "logn"
_SWEPT: Final = 10
"""Failures too old to count that an attempt takes away, which adds one: the table stays small even if nobody tidies."""

# An address is known if he has come in from it lately, with the password that he has now. One who may not come in has no password.
_FIND: Final = """
SELECT u.id, CASE WHEN u.disabled_at IS NULL THEN u.password_hash END, EXISTS (
    SELECT FROM sessions s WHERE s.user_id = u.id AND s.origin = %(origin)s AND s.created_at > u.password_changed_at
        AND LEAST(s.expires_at, s.revoked_at) > statement_timestamp() - %(lately)s)
FROM users u WHERE lower(u.name) = lower(%(name)s)
"""
_SWEEP: Final = """
DELETE FROM login_failures WHERE id IN (
    SELECT id FROM login_failures WHERE at < statement_timestamp() - %(window)s ORDER BY at LIMIT %(chunk)s FOR UPDATE SKIP LOCKED)
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(%(space)s, key) FROM unnest(%(keys)s::int[]) AS key"

_RECENT: Final = "at > statement_timestamp() - %(window)s"
# What others do at this account is not held against somebody at a known address.
_OF_ACCOUNT: Final = f"account = %(account)s AND {_RECENT} AND (NOT %(known)s OR origin = %(origin)s)"
_OF_ORIGIN: Final = f"origin = %(origin)s AND {_RECENT}"
# As long as one of those in the way is being looked at, it may be out of the way in a moment.
_WAIT: Final = """
SELECT CASE WHEN count(*) >= {most} THEN CASE WHEN bool_or(soon) THEN 1 ELSE min(seconds) END END FROM (
    SELECT EXTRACT(epoch FROM at + %(window)s - statement_timestamp()) AS seconds,
           pending AND at > statement_timestamp() - interval '10 seconds' AS soon
    FROM login_failures WHERE {those} ORDER BY at DESC LIMIT {most}) newest
"""
_WAITS: Final = f"""
SELECT GREATEST(({_WAIT.format(most="%(most)s", those=_OF_ACCOUNT)}), ({_WAIT.format(most="%(most_of_origin)s", those=_OF_ORIGIN)}))
"""
_PLACE: Final = "INSERT INTO login_failures (account, origin) VALUES (%(account)s, %(origin)s) RETURNING id"

_FAIL: Final = "UPDATE login_failures SET pending = false WHERE id = %(id)s RETURNING account IS NOT NULL"
_BEGAN: Final = """
SELECT count(*) >= {most} AND NOT bool_or({told}), count(*) FROM login_failures WHERE {those} AND NOT pending
"""
_ACCOUNT_BEGAN: Final = _BEGAN.format(most="%(most)s", told="told_account", those=_OF_ACCOUNT)
_ORIGIN_BEGAN: Final = _BEGAN.format(most="%(most_of_origin)s", told="told_origin", those=_OF_ORIGIN)
_TELL: Final = f"""
UPDATE login_failures SET told_account = %(tell_account)s, told_origin = %(tell_origin)s
WHERE id = %(id)s AND (SELECT count(*) FROM login_failures WHERE (told_account OR told_origin) AND {_RECENT}) < %(most_told)s
"""  # noqa: S608 — a constant

_CLEAR: Final = """
UPDATE login_failures f SET account = NULL, told_account = false
FROM (SELECT id FROM login_failures WHERE account = %(account)s ORDER BY id FOR UPDATE) mine WHERE f.id = mine.id
"""


class Limits(NamedTuple):
    """How many logins may fail within `window`."""

    window: timedelta
    of_account: int
    of_origin: int


class Asked(NamedTuple):
    """Who is said to come in, and from where."""

    name: str
    account: bytes
    """The hash of that name, whether there is such a user or not."""
    origin: str
    """The address, or the network that counts as one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that has its place; its password may be looked at."""

    id: int
    asked: Asked
    user_id: int | None
    """None: there is no such user."""
    password_hash: str | None
    """None: no password is right."""
    known: bool
    """Whether the user has come in from there lately."""


def reserve(connection: psycopg.Connection, asked: Asked, limits: Limits) -> Attempt:
    """A place for an attempt. TooMany, with nothing written, if too many have failed.

    Before: no transaction is open, as the place must outlive whatever becomes of the request. After: it counts as a failure until
    `clear` takes it out.
    """
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        raise UsageError("A login stands alone: it cannot be part of a request that may be repeated.")
    found = connection.execute(_FIND, {"name": asked.name, "origin": asked.origin, "lately": KEPT}).fetchone()
    user_id, password_hash, known = found or (None, None, False)
    values = _values(asked, limits, known=known)
    _check(connection, values)  # before the lock: those who are refused wait for nobody
    connection.execute(_SWEEP, {"window": limits.window, "chunk": _SWEPT})
    with connection.transaction():
        _lock(connection, asked)
        _check(connection, values)
        row = connection.execute(_PLACE, values).fetchone()
    assert row is not None  # noqa: S101 — an insert returns its row
    return Attempt(row[0], asked, user_id, password_hash, known)


def fail(connection: psycopg.Connection, attempt: Attempt, limits: Limits) -> None:
    """The password was wrong. If a limit begins with that, the audit log says so, once in a window."""
    values = _values(attempt.asked, limits, known=attempt.known) | {"id": attempt.id, "most_told": MOST_TOLD}
    with connection.transaction():
        _lock(connection, attempt.asked)
        row = connection.execute(_FAIL, values).fetchone()
        if row is None:  # the window is shorter than we took
            return
        account, failures = connection.execute(_ACCOUNT_BEGAN, values).fetchone() or (False, 0)
        origin, failures_of_origin = connection.execute(_ORIGIN_BEGAN, values).fetchone() or (False, 0)
        tell_account = bool(account and row[0] and attempt.user_id is not None)
        tell = {"tell_account": tell_account, "tell_origin": bool(origin)}
        if not any(tell.values()) or connection.execute(_TELL, values | tell).rowcount == 0:
            return
        # Not the name that was given: people type passwords there.
        if tell_account:
            details: dict[str, object] = {"failures": failures, "address": attempt.asked.origin}
            _write(connection, "user", attempt.user_id, details)
        if origin:
            _write(connection, "address", attempt.asked.origin, {"failures": failures_of_origin})


def _write(connection: psycopg.Connection, kind: str, object_id: object, details: dict[str, object]) -> None:
    audit.write(connection, actor="anonymous", action="login limit", kind=kind, object_id=object_id, details=details)


def succeed(connection: psycopg.Connection, attempt: Attempt) -> None:
    """The password was right. After: nothing that failed is held against the account; against the address it is, but for this attempt."""
    connection.execute("DELETE FROM login_failures WHERE id = %s", (attempt.id,))
    clear(connection, attempt.asked.account)


def clear(connection: psycopg.Connection, account: bytes) -> int:
    """Hold nothing against an account any more; how many failures that were."""
    return connection.execute(_CLEAR, {"account": account}).rowcount


def tidy(connection: psycopg.Connection, *, window: timedelta, chunk: int) -> int:
    """Delete failures that count no more, so many at the most; how many."""
    return connection.execute(_SWEEP, {"window": window, "chunk": chunk}).rowcount


def _values(asked: Asked, limits: Limits, *, known: bool) -> dict[str, object]:
    return {
        "account": asked.account,
        "origin": asked.origin,
        "known": known,
        "window": limits.window,
        "most": limits.of_account,
        "most_of_origin": limits.of_origin,
    }


def _lock(connection: psycopg.Connection, asked: Asked) -> None:
    """Until the end of the transaction nobody else counts or adds failures of the account or the address."""
    names = (asked.account, f"address {asked.origin}".encode())
    keys = sorted({int.from_bytes(sha256(name).digest()[:4], "big", signed=True) for name in names})
    connection.execute(_LOCK, {"space": _SPACE, "keys": keys}).fetchall()


def _check(connection: psycopg.Connection, values: dict[str, object]) -> None:
    row = connection.execute(_WAITS, values).fetchone()
    if row is None or row[0] is None:
        return
    seconds = float(row[0])
    shown = render(timedelta(seconds=max(1, round(seconds))))
    raise TooMany(f"Too many logins have failed; wait {shown} and try again.", retry_after=seconds)
