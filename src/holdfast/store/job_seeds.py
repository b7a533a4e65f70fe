"""The seeds of jobs, kept with them.

The rule: inserts only, by `store/seeding`, in the transaction that makes the frontier rows. Workers read them, for URLs that failed.
"""

from typing import Final

import psycopg

CHUNK: Final = 10_000

_IS_GUESSED: Final = "SELECT guessed FROM job_seeds WHERE job_id = %(job)s AND url_key = %(key)s"
_FORGET: Final = """
WITH chunk AS (SELECT url_key FROM job_seeds WHERE job_id = %(job)s ORDER BY url_key LIMIT %(chunk)s)
DELETE FROM job_seeds s USING chunk WHERE s.job_id = %(job)s AND s.url_key = chunk.url_key
"""


def is_guessed(connection: psycopg.Connection, job_id: int, url_key: bytes) -> bool:
    """Whether this URL is a seed of the job whose scheme was not given."""
    row = connection.execute(_IS_GUESSED, {"job": job_id, "key": url_key}).fetchone()
    return bool(row and row[0])


def forget(connection: psycopg.Connection, job_id: int) -> int:
    """Delete a chunk of the seeds of a deleted job, and what it is known by; how many seeds."""
    connection.execute("DELETE FROM job_seed_files WHERE job_id = %(job)s", {"job": job_id})
    return connection.execute(_FORGET, {"job": job_id, "chunk": CHUNK}).rowcount
