"""Jobs: what users asked to be crawled."""

from typing import Final

import psycopg

from holdfast.errors import NotFound

DEFAULT: Final = "default"
"""The standing job that seeds feed."""


def find(connection: psycopg.Connection, name: str) -> int:
    """The id of the job called `name`."""
    row = connection.execute("SELECT id FROM crawl_jobs WHERE name = %s", (name,)).fetchone()
    if row is None:
        raise NotFound(f"There is no job called {name!r}.")
    return int(row[0])


def is_runnable(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether anybody may work on it: not paused, ended, cancelled or deleted."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM crawl_jobs WHERE id = %s AND state IN ('pending', 'processing'))", (job_id,)
    ).fetchone()
    return bool(row and row[0])
