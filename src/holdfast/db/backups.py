"""Backups of the store: which are kept, and since when files must stay because one of them names them."""

from datetime import datetime

import psycopg


def oldest_kept(connection: psycopg.Connection) -> datetime | None:
    """Return when the oldest backup that is kept was begun; None: none is kept.

    A file that nothing in the store names since a time after that is still named by the backup, and must not be deleted, unless the
    backup has a copy of it (`backups/repository`).
    """
    row = connection.execute("SELECT min(started_at) FROM backups WHERE state IN ('running', 'complete')").fetchone()
    return row[0] if row else None
