"""How the server is to plan a statement, where it would go wrong by itself, or plan anew each time what it knows already.

The rule: the settings end with the statement that they are for. Whoever uses the connection next, or goes on with the transaction,
finds it as it was.
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import RowFactory, tuple_row


def planned(
    connection: psycopg.Connection,
    settings: Mapping[str, str],
    query: str,
    values: Mapping[str, object],
    *,
    row_factory: RowFactory[Any] = tuple_row,
) -> list[Any]:
    """The rows that a statement gives when the planner has these settings, by their names. A transaction may be open."""
    pairs = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    cursor = connection.cursor(row_factory=row_factory)
    if connection.info.transaction_status is TransactionStatus.IDLE:
        # All of it goes at once, as a transaction of its own, with which the settings end: to go to and fro costs what a short
        # statement does.
        with connection.pipeline():
            connection.execute(f"SELECT {pairs}")
            cursor.execute(query, values)
        return cursor.fetchall()
    with connection.transaction():
        connection.execute(f"SELECT {pairs}")
        cursor.execute(query, values)
        connection.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in settings))
    return cursor.fetchall()
