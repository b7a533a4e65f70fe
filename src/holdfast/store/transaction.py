"""Commits whose end is always known.

The rule: a COMMIT that was sent but not answered is settled by asking the server about its transaction id. Looking for the
rows would be wrong (the old backend may commit after the look), and so would a blind retry.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from holdfast.errors import RolledBack, Unsettled

_PATIENCE: Final = 1.0
"""Seconds for the old backend to finish by itself before it is ended."""

XID = "SELECT pg_current_xact_id()::text"


def settle(connect: Callable[[], psycopg.Connection], xid: str, *, deadline: float = 60.0) -> bool:
    """Whether transaction `xid` committed.

    Before: the connection that ran it is gone, and its COMMIT may or may not have arrived.
    After: True, it is committed; False, it is rolled back for good. Asks until one of the two holds; a backend that still
    sits on the transaction (its client is gone) is ended, which cannot turn an answer that was given.
    """
    asked = time.monotonic()
    with connect() as connection:
        while True:
            row = connection.execute("SELECT pg_xact_status(%s::xid8)", (xid,)).fetchone()
            verdict = row[0] if row else None
            if verdict in {"committed", "aborted"}:
                return bool(verdict == "committed")
            waited = time.monotonic() - asked
            if verdict is None or waited > deadline:
                raise Unsettled(f"The server cannot say how transaction {xid} ended ({verdict or 'too old'}).")
            if waited > _PATIENCE:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = %s::xid8::xid AND pid <> pg_backend_pid()",
                    (xid,),
                )
            time.sleep(0.02)


@contextmanager
def settled(connection: psycopg.Connection, connect: Callable[[], psycopg.Connection]) -> Iterator[None]:
    """A transaction that ends committed (normal exit) or rolled back (RolledBack, or the body's own exception).

    Before: `connection` is in autocommit mode and idle. After: nothing is in doubt. If the connection broke it stays broken;
    the caller opens another.
    """
    connection.execute("BEGIN")
    row = connection.execute(XID).fetchone()
    xid = str(row[0]) if row else ""
    try:
        yield
    except BaseException as problem:
        if not connection.broken and not connection.closed:
            connection.execute("ROLLBACK")
            raise
        if isinstance(problem, psycopg.Error):  # COMMIT was never sent, so the server rolls back by itself
            raise RolledBack(f"The connection broke and transaction {xid} was rolled back.") from problem
        raise
    try:
        connection.execute("COMMIT")
    except psycopg.Error as problem:
        if not (connection.broken or connection.closed):
            raise
        if not settle(connect, xid):
            raise RolledBack(f"The connection broke and transaction {xid} was rolled back.") from problem
