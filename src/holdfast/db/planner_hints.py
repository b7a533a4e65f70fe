"""Planner settings for one statement, where the server would choose a bad plan or plan the same statement again each time.

The rule: the settings end with the statement. The next user of the connection or transaction finds the defaults.
"""

from collections.abc import Mapping
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
