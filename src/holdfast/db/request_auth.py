"""Authentication of a request by an API key or a session, and its rate limit: both in one statement, since every request begins with it.

The rule: a key or a session is looked up for each request, so one that has ended, or whose owner is disabled, opens nothing from the next
statement on. The same statement counts the request for its caller, as `rate_limits` does.
"""

from typing import Any, Final, NamedTuple

import psycopg

from holdfast.db.rate_limits import KEY, RateUsage

LIVE_SESSION: Final = "s.revoked_at IS NULL AND s.expires_at > statement_timestamp()"
"""The condition for a session that has not ended."""

# A row that another statement has locked is skipped: that statement writes the time of last use.
_FOUND_KEY: Final = """
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
_FOUND_SESSION: Final = f"""
WITH found AS MATERIALIZED (
    SELECT s.id, s.user_id, u.name, u.role::text, u.password_changed_at < u.created_at + interval '1 s' AS first_password,
           s.last_used_at < statement_timestamp() - interval '1 minute' AS stale
    FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.token_hash = %(hash)s AND {LIVE_SESSION} AND u.disabled_at IS NULL
), mine AS MATERIALIZED (
    SELECT s.id FROM sessions s WHERE s.id = (SELECT f.id FROM found f WHERE f.stale) FOR NO KEY UPDATE SKIP LOCKED
), used AS (
    UPDATE sessions s SET last_used_at = statement_timestamp() FROM mine WHERE s.id = mine.id
)
"""  # noqa: S608 — a constant
_FIND_KEY: Final = f"{_FOUND_KEY} SELECT id, user_id, name, role, key_name, scopes FROM found"  # noqa: S608 — a constant
_FIND_SESSION: Final = f"{_FOUND_SESSION} SELECT id, user_id, name, role, first_password FROM found"  # noqa: S608 — a constant

# A caller who is not found has no role, and is counted by the address.
_COUNTED: Final = f"""
FROM (SELECT) one LEFT JOIN found f ON true
CROSS JOIN LATERAL (
    SELECT CASE f.role WHEN 'admin' THEN %(admin)s::integer WHEN 'user' THEN %(user)s::integer ELSE %(anonymous)s::integer END AS most,
           COALESCE(f.role, 'anonymous') AS role, COALESCE('user ' || f.user_id, 'address ' || %(address)s::text) AS name
) w
CROSS JOIN LATERAL rate_hit(
    {KEY.format(tier="w.role", name="w.name", most="w.most", seconds="%(seconds)s::integer")},
    w.most, make_interval(secs => %(seconds)s::integer), 1
) r
"""
_AUTHENTICATE_KEY: Final = f"""
{_FOUND_KEY} SELECT r.allowed, r.used, r.oldest, f.id, f.user_id, f.name, f.role, f.key_name, f.scopes {_COUNTED}
"""
_AUTHENTICATE_SESSION: Final = f"""
{_FOUND_SESSION} SELECT r.allowed, r.used, r.oldest, f.id, f.user_id, f.name, f.role, f.first_password {_COUNTED}
"""


class KeyHolder(NamedTuple):
    """The owner of an API key, and its scopes."""

    key_id: int
    user_id: int
    name: str
    role: str
    key_name: str
    scopes: list[str]


class SessionHolder(NamedTuple):
    """The owner of a session."""

    session_id: int
    user_id: int
    name: str
    role: str
    first_password: bool
    """The password is still the one that the account was made with."""


class RateLimits(NamedTuple):
    """The number of requests that each role may send within a window of seconds; `anonymous` is for one address."""

    seconds: int
    anonymous: int
    user: int
    admin: int


def find_key(connection: psycopg.Connection, token_hash: bytes) -> KeyHolder | None:
    """Return the owner of an API key; None if there is no such key, it has expired or was revoked, or the owner is disabled."""
    row = connection.execute(_FIND_KEY, {"hash": token_hash}).fetchone()
    return KeyHolder(*row) if row else None


def find_session(connection: psycopg.Connection, token_hash: bytes) -> SessionHolder | None:
    """Return the owner of a session; None if there is no such session, it has ended, or the owner is disabled."""
    row = connection.execute(_FIND_SESSION, {"hash": token_hash}).fetchone()
    return SessionHolder(*row) if row else None


def authenticate_key(
    connection: psycopg.Connection, token_hash: bytes, limits: RateLimits, address: str
) -> tuple[KeyHolder | None, RateUsage]:
    """Return what `find_key` does, and the rate after this request, as `rate_limits.hit` does. Before: no transaction is open."""
    row = _fetch_one(connection, _AUTHENTICATE_KEY, token_hash, limits, address)
    return (None if row[3] is None else KeyHolder(*row[3:])), RateUsage(*row[:3])


def authenticate_session(
    connection: psycopg.Connection, token_hash: bytes, limits: RateLimits, address: str
) -> tuple[SessionHolder | None, RateUsage]:
    """Return what `find_session` does, and the rate after this request, as `rate_limits.hit` does. Before: no transaction is open."""
    row = _fetch_one(connection, _AUTHENTICATE_SESSION, token_hash, limits, address)
    return (None if row[3] is None else SessionHolder(*row[3:])), RateUsage(*row[:3])


def _fetch_one(
    connection: psycopg.Connection, query: str, token_hash: bytes, limits: RateLimits, address: str
) -> tuple[Any, ...]:
    row = connection.execute(query, {"hash": token_hash, "address": address, **limits._asdict()}).fetchone()
    assert row is not None  # noqa: S101 — a function answers with a row
    return row
