"""Who asks, and how often they have asked: both in one statement, since every request of the API begins with it.

The rule: whoever comes in by a key or a session is looked up each time, as `api_keys` and `sessions` do it: what has ended opens nothing
from the next statement on. The same statement counts the request for whoever it turns out to be, as `rates` does it.
"""

from typing import Any, Final, NamedTuple

import psycopg

from holdfast.store import api_keys, sessions
from holdfast.store.api_keys import KeyHolder
from holdfast.store.rates import KEY, Rate
from holdfast.store.sessions import Holder

# Who is not found has no role, and is counted by the address.
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
_BY_KEY: Final = f"""
{api_keys.FOUND} SELECT r.allowed, r.used, r.oldest, f.id, f.user_id, f.name, f.role, f.key_name, f.scopes {_COUNTED}
"""
_BY_SESSION: Final = f"""
{sessions.FOUND} SELECT r.allowed, r.used, r.oldest, f.id, f.user_id, f.name, f.role {_COUNTED}
"""


class Limits(NamedTuple):
    """How many requests may come within so many seconds, of each role; of nobody's from one address."""

    seconds: int
    anonymous: int
    user: int
    admin: int


def by_key(
    connection: psycopg.Connection, token_hash: bytes, limits: Limits, address: str
) -> tuple[KeyHolder | None, Rate]:
    """Whose key it is, as `api_keys.find` says; and the hit, as `rates.hit` does. Before: no transaction is open."""
    row = _asked(connection, _BY_KEY, token_hash, limits, address)
    return (None if row[3] is None else KeyHolder(*row[3:])), Rate(*row[:3])


def by_session(
    connection: psycopg.Connection, token_hash: bytes, limits: Limits, address: str
) -> tuple[Holder | None, Rate]:
    """Whose session it is, as `sessions.find` says; and the hit, as `rates.hit` does. Before: no transaction is open."""
    row = _asked(connection, _BY_SESSION, token_hash, limits, address)
    return (None if row[3] is None else Holder(*row[3:])), Rate(*row[:3])


def _asked(
    connection: psycopg.Connection, query: str, token_hash: bytes, limits: Limits, address: str
) -> tuple[Any, ...]:
    row = connection.execute(query, {"hash": token_hash, "address": address, **limits._asdict()}).fetchone()
    assert row is not None  # noqa: S101 — a function answers with a row
    return row
