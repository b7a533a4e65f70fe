"""Settling of in-doubt commits: whether a COMMIT without an answer took place.

The rule: a COMMIT that was sent but not answered is settled by polling the status of its transaction id until that has ended,
and only then by looking for its marker row. Looking first would be wrong (the old backend may commit after the look); so would
trusting the id alone: an id whose record was lost in a crash of the server is assigned to another transaction.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from holdfast.errors import RolledBack, StoreUnavailable, Unsettled

_PATIENCE: Final = 1.0
"""Seconds for the old backend to finish by itself before it is terminated."""

_MARK: Final = """
INSERT INTO commit_markers (worker, token) VALUES (%(worker)s, %(token)s) ON CONFLICT (worker) DO UPDATE SET token = excluded.token
RETURNING pg_current_xact_id()::text
"""
_MARKED: Final = "SELECT EXISTS (SELECT FROM commit_markers WHERE worker = %(worker)s AND token = %(token)s)"
_END_BACKEND: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = %(xid)s::xid8::xid AND pid <> pg_backend_pid()
"""

Connect = Callable[[], psycopg.Connection]
GiveUp = Callable[[], bool]


def never() -> bool:
    """Never give up: poll until the outcome is known."""
    return False


def settle(connect: Connect, *, xid: str, worker: str, token: uuid.UUID, give_up: GiveUp = never) -> bool:
    """Whether the transaction `xid`, which wrote `token` for `worker`, committed.

    Before: the connection that ran it is lost, its COMMIT may or may not have arrived, and `worker` has begun no transaction since.
    After: True, it is committed; False, it is rolled back for good. Polls until one of the two holds, also while the server is
    unavailable; a backend that still holds the transaction (its client is gone) is terminated, which cannot change a given answer.
    Raises Unsettled if the caller gave up: then nothing may be written that presumes either.
    """
    asked = time.monotonic()
    problem: Exception | None = None
    while not give_up():
        waited = time.monotonic() - asked
        try:
            with connect() as connection:
                if _is_over(connection, xid, patient=waited < _PATIENCE):
                    row = connection.execute(_MARKED, {"worker": worker, "token": token}).fetchone()
                    return bool(row and row[0])
        except (StoreUnavailable, psycopg.OperationalError) as away:
            problem = away
        time.sleep(0.02)
    raise Unsettled(
        f"The outcome of transaction {xid} is unknown: the worker stopped before the server answered."
    ) from problem


def _is_over(connection: psycopg.Connection, xid: str, *, patient: bool) -> bool:
    try:
        row = connection.execute("SELECT pg_xact_status(%s::xid8)", (xid,)).fetchone()
    except psycopg.errors.InvalidParameterValue:  # "is in the future": lost in a crash, and not given away again yet
        return True
    if row is None or row[0] != "in progress":
        return True
    if not patient:
        connection.execute(_END_BACKEND, {"xid": xid})
    return False


@contextmanager
def settled_transaction(
    connection: psycopg.Connection, connect: Connect, *, worker: str, give_up: GiveUp = never
) -> Iterator[None]:
    """Run a transaction of `worker` that ends committed (normal exit) or rolled back (RolledBack, or the body's own exception).

    Before: `connection` is in autocommit mode and idle, and this is the only such transaction of `worker` (it holds its name).
    After: the outcome is known, unless the caller gave up (Unsettled). A broken connection stays broken; the caller opens another.
    """
    token = uuid.uuid4()
    connection.execute("BEGIN")
    row = connection.execute(_MARK, {"worker": worker, "token": token}).fetchone()
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
        answer = connection.execute("COMMIT").statusmessage
    except psycopg.Error as problem:
        if not (connection.broken or connection.closed):
            raise
        if not settle(connect, xid=xid, worker=worker, token=token, give_up=give_up):
            raise RolledBack(f"The connection broke and transaction {xid} was rolled back.") from problem
        return
    if answer != "COMMIT":  # an error was swallowed inside, so the server has rolled back
        raise RolledBack(f"Transaction {xid} had failed before its end and was rolled back.")
