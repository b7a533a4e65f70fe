"""Backups of the store: which are kept, and since when files must stay because one of them names them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import psycopg

_NAMED_BY_NONE: Final = """
INSERT INTO unnamed_files (kind, key) SELECT %(kind)s, unnest(%(keys)s::text[]) ON CONFLICT (kind, key) DO NOTHING
"""
_SINCE: Final = "SELECT key, since FROM unnamed_files WHERE kind = %(kind)s AND key = ANY(%(keys)s)"
_NAMED: Final = "DELETE FROM unnamed_files WHERE kind = %(kind)s AND key = ANY(%(keys)s)"


def oldest_kept(connection: psycopg.Connection) -> datetime | None:
    """Return when the oldest backup that is kept was begun; None: none is kept.

    A file that nothing in the store names since a time after that is still named by the backup, and must not be deleted, unless the
    backup has a copy of it (`backups/repository`).
    """
    row = connection.execute("SELECT min(started_at) FROM backups WHERE state IN ('running', 'complete')").fetchone()
    return row[0] if row else None


def deletable(connection: psycopg.Connection, kind: str, keys: Sequence[str], *, dry_run: bool = False) -> set[str]:
    """Return those of these files, which nothing in the store names, that no kept backup names either.

    `kind`: `image` or `segment`. The others are noted, and are deletable when every kept backup was begun after that. With `dry_run`
    nothing is noted.
    """
    oldest = oldest_kept(connection)
    if oldest is None:
        return set(keys)
    values = {"kind": kind, "keys": list(keys)}
    if not dry_run:
        connection.execute(_NAMED_BY_NONE, values)
    return {key for key, since in connection.execute(_SINCE, values) if since < oldest}


def forget_unnamed(connection: psycopg.Connection, kind: str, keys: Sequence[str]) -> None:
    """Forget files that were deleted, or that something names again."""
    connection.execute(_NAMED, {"kind": kind, "keys": list(keys)})
