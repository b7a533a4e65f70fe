"""Settings for one statement: of the planner, where the server would choose a bad plan or plan the same statement again each time, and a
limit of its time.

The rule: the settings end with the statement. The next user of the connection or transaction finds the defaults.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import RowFactory, tuple_row


def fetch_with_settings(
    connection: psycopg.Connection,
    settings: Mapping[str, str],
    query: str,
    values: Mapping[str, object],
    *,
    row_factory: RowFactory[Any] = tuple_row,
) -> list[Any]:
    """Execute a statement with these planner settings (name to value) and fetch its rows. A transaction may be open."""
    pairs = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    cursor = connection.cursor(row_factory=row_factory)
    if connection.info.transaction_status is TransactionStatus.IDLE:
        # Pipelined, as a transaction of its own, with which the settings end: a round trip costs as much as a short statement.
        with connection.pipeline():
            connection.execute(f"SELECT {pairs}")
            cursor.execute(query, values)
        return cursor.fetchall()
    with connection.transaction():
        connection.execute(f"SELECT {pairs}")
        cursor.execute(query, values)
        connection.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in settings))
    return cursor.fetchall()


@contextmanager
def limited_to(connection: psycopg.Connection, span: timedelta | None) -> Iterator[None]:
    """Cancel a statement in this block that takes longer: psycopg.errors.QueryCanceled. None: the limit of the connection holds.

    Before: a transaction is open. After: it can go on, also after a cancelled statement.
    """
    if span is None:
        yield
        return
    with connection.transaction():
        ((limit,),) = connection.execute("SELECT current_setting('statement_timeout')").fetchall()
        setting = "SELECT set_config('statement_timeout', %s, true)"
        connection.execute(setting, (str(max(1, round(span.total_seconds() * 1000))),))
        yield
        connection.execute(setting, (limit,))
