"""SQL of login attempts, and the limits on failed ones.

The rule: an attempt is counted as a failure, under a lock of the account and one of the address, before its password is verified; a
success takes it out again. So concurrent attempts, on any number of servers, get no more passwords verified than the limits allow, and a
server that dies in between leaves a failure, never a free attempt.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final, NamedTuple

import psycopg

from holdfast.accounts.queries.sessions import KEPT
from holdfast.db import audit
from holdfast.errors import TooMany, UsageError
from holdfast.model.duration import render

MOST_TOLD: Final = 100
"""Audit entries about limits in one window: a client with many addresses must not fill the log."""
_SPACE: Final = 0x6C6F676E  # "logn"
_SWEPT: Final = 10
"""Expired failures that each attempt deletes: the table stays small even where `tidy` never runs."""

# An address is known if the user has logged in from it lately, with the present password. A disabled user has no password.
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
# At a known address, failures of other addresses do not count against the account.
_OF_ACCOUNT: Final = f"account = %(account)s AND {_RECENT} AND (NOT %(known)s OR origin = %(origin)s)"
_OF_ORIGIN: Final = f"origin = %(origin)s AND {_RECENT}"
# An attempt that is still pending may succeed and be taken out: retry in a second.
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
    """The number of logins that may fail within `window`."""

    window: timedelta
    of_account: int
    of_origin: int


class LoginRequest(NamedTuple):
    """The name that a client wants to log in with, and where it comes from."""

    name: str
    account: bytes
    """The hash of the name, whether there is such a user or not."""
    origin: str
    """The address, or the network that failures are counted by."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A counted attempt, whose password may now be verified."""

    id: int
    request: LoginRequest
    user_id: int | None
    """None: there is no such user."""
    password_hash: str | None
    """None: no password is right (no such user, or disabled)."""
    known: bool
    """Whether the user has logged in from there lately."""


def reserve(connection: psycopg.Connection, request: LoginRequest, limits: Limits) -> Attempt:
    """Count an attempt as a failure, before its password is verified. TooMany, with nothing written, if too many have failed.

    Before: no transaction is open, so that a rollback of the HTTP request does not undo the count. After: it counts as a failure until
    `succeed` takes it out.
    """
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        raise UsageError("A login stands alone: it cannot be part of a request that may be repeated.")
    found = connection.execute(_FIND, {"name": request.name, "origin": request.origin, "lately": KEPT}).fetchone()
    user_id, password_hash, known = found or (None, None, False)
    values = _values(request, limits, known=known)
    _check(connection, values)  # before the lock: a refused attempt waits for no other
    connection.execute(_SWEEP, {"window": limits.window, "chunk": _SWEPT})
    with connection.transaction():
        _lock(connection, request)
        _check(connection, values)
        row = connection.execute(_PLACE, values).fetchone()
    assert row is not None  # noqa: S101 — an insert returns its row
    return Attempt(row[0], request, user_id, password_hash, known)


def fail(connection: psycopg.Connection, attempt: Attempt, limits: Limits) -> None:
    """Settle an attempt with a wrong password. The first failure that reaches a limit in a window writes an audit entry."""
    values = _values(attempt.request, limits, known=attempt.known) | {"id": attempt.id, "most_told": MOST_TOLD}
    with connection.transaction():
        _lock(connection, attempt.request)
        row = connection.execute(_FAIL, values).fetchone()
        if row is None:  # the failure has expired meanwhile and was deleted
            return
        account, failures = connection.execute(_ACCOUNT_BEGAN, values).fetchone() or (False, 0)
        origin, failures_of_origin = connection.execute(_ORIGIN_BEGAN, values).fetchone() or (False, 0)
        tell_account = bool(account and row[0] and attempt.user_id is not None)
        tell = {"tell_account": tell_account, "tell_origin": bool(origin)}
        if not any(tell.values()) or connection.execute(_TELL, values | tell).rowcount == 0:
            return
        # Without the name that was entered: people type passwords there.
        if tell_account:
            details: dict[str, object] = {"failures": failures, "address": attempt.request.origin}
            _write(connection, "user", attempt.user_id, details)
        if origin:
            _write(connection, "address", attempt.request.origin, {"failures": failures_of_origin})


def _write(connection: psycopg.Connection, kind: str, object_id: object, details: dict[str, object]) -> None:
    audit.write(connection, actor="anonymous", action="login limit", kind=kind, object_id=object_id, details=details)


def succeed(connection: psycopg.Connection, attempt: Attempt) -> None:
    """Settle an attempt with the right password. After: no failure counts against the account; those of the address still do, but for this
    attempt."""
    connection.execute("DELETE FROM login_failures WHERE id = %s", (attempt.id,))
    clear(connection, attempt.request.account)


def clear(connection: psycopg.Connection, account: bytes) -> int:
    """Reset the failures of an account; return their number."""
    return connection.execute(_CLEAR, {"account": account}).rowcount


def tidy(connection: psycopg.Connection, *, window: timedelta, chunk: int) -> int:
    """Delete at most `chunk` failures that are too old to count; return their number."""
    return connection.execute(_SWEEP, {"window": window, "chunk": chunk}).rowcount


def _values(request: LoginRequest, limits: Limits, *, known: bool) -> dict[str, object]:
    return {
        "account": request.account,
        "origin": request.origin,
        "known": known,
        "window": limits.window,
        "most": limits.of_account,
        "most_of_origin": limits.of_origin,
    }


def _lock(connection: psycopg.Connection, request: LoginRequest) -> None:
    """Keep other transactions from counting or adding failures of the account or the address until the end of this one."""
    names = (request.account, f"address {request.origin}".encode())
    keys = sorted({int.from_bytes(sha256(name).digest()[:4], "big", signed=True) for name in names})
    connection.execute(_LOCK, {"space": _SPACE, "keys": keys}).fetchall()


def _check(connection: psycopg.Connection, values: dict[str, object]) -> None:
    row = connection.execute(_WAITS, values).fetchone()
    if row is None or row[0] is None:
        return
    seconds = float(row[0])
    shown = render(timedelta(seconds=max(1, round(seconds))))
    raise TooMany(f"Too many logins have failed; wait {shown} and try again.", retry_after=seconds)
