"""The seeds of jobs, kept with them, and the files that jobs are known by.

The rule: seeds are inserted by `db/seed_insert`, in the transaction that makes the frontier rows, and go with their job. Workers read
them, for URLs that failed; a job whose frontier is gone is made anew from them, when a person or a schedule starts it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import psycopg

CHUNK: Final = 10_000

_IS_GUESSED: Final = "SELECT guessed FROM job_seeds WHERE job_id = %(job)s AND url_key = %(key)s"
_HAS_ANY: Final = "SELECT EXISTS (SELECT FROM job_seeds WHERE job_id = %(job)s AND url_key = ANY(%(keys)s::bytea[]))"
_HAS_NONE: Final = "SELECT NOT EXISTS (SELECT FROM job_seeds WHERE job_id = %(job)s)"
_FRONTIER_IS_GONE: Final = """
SELECT NOT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND discovered > 0)
   AND NOT EXISTS (SELECT FROM domain_wakes WHERE job_id = %(job)s AND inserted > 0)
"""
_CHUNK: Final = """
SELECT url_key, url, seed_rank, guessed FROM job_seeds WHERE job_id = %(job)s AND url_key > %(after)s ORDER BY url_key LIMIT %(chunk)s
"""
_FORGET: Final = """
WITH chunk AS (SELECT url_key FROM job_seeds WHERE job_id = %(job)s ORDER BY url_key LIMIT %(chunk)s)
DELETE FROM job_seeds s USING chunk WHERE s.job_id = %(job)s AND s.url_key = chunk.url_key
"""
_BY_FILE: Final = "SELECT job_id FROM job_seed_files WHERE mark = %(mark)s"
_BY_CONTENT: Final = "SELECT job_id FROM job_seed_files WHERE content = %(content)s ORDER BY job_id DESC LIMIT 1"
_KNOW_FILE: Final = """
INSERT INTO job_seed_files AS f (mark, job_id, path, content) VALUES (%(mark)s, %(job)s, %(path)s, %(content)s)
ON CONFLICT (mark) DO UPDATE SET job_id = excluded.job_id, content = excluded.content
WHERE (f.job_id, f.content) <> (excluded.job_id, excluded.content)
"""


class JobSeed(NamedTuple):
    """A seed as it is kept."""

    url_key: bytes
    url: str
    rank: int | None
    guessed: bool


class SeedFile(NamedTuple):
    """A seed file as jobs are known by it."""

    mark: bytes
    """Of its absolute path and the rules of the crawl."""
    path: str
    content: bytes
    """Of its seeds and the rules of the crawl."""


def is_guessed(connection: psycopg.Connection, job_id: int, url_key: bytes) -> bool:
    """Whether this URL is a seed of the job whose scheme was not given."""
    return _says(connection, _IS_GUESSED, job_id, key=url_key)


def has_any(connection: psycopg.Connection, job_id: int, keys: Sequence[bytes]) -> bool:
    """Whether one of these URLs is a seed of the job."""
    return _says(connection, _HAS_ANY, job_id, keys=list(keys))


def has_none(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether the job has no seeds at all."""
    return _says(connection, _HAS_NONE, job_id)


def frontier_is_gone(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether the job has not a single URL in its frontier, in whatever state."""
    return _says(connection, _FRONTIER_IS_GONE, job_id)


def chunks(connection: psycopg.Connection, job_id: int) -> Iterator[list[JobSeed]]:
    """All seeds of a job, a chunk at a time."""
    after = b""
    while True:
        rows = connection.execute(_CHUNK, {"job": job_id, "after": after, "chunk": CHUNK}).fetchall()
        found = [JobSeed(*row) for row in rows]
        if found:
            yield found
        if len(found) < CHUNK:
            return
        after = found[-1].url_key


def by_file(connection: psycopg.Connection, mark: bytes) -> int | None:
    """The job that is known by this file and these rules."""
    row = connection.execute(_BY_FILE, {"mark": mark}).fetchone()
    return row[0] if row else None


def by_content(connection: psycopg.Connection, content: bytes) -> int | None:
    """The newest job that is known by a file with these seeds and rules."""
    row = connection.execute(_BY_CONTENT, {"content": content}).fetchone()
    return row[0] if row else None


def know_file(connection: psycopg.Connection, job_id: int, file: SeedFile) -> None:
    """From now on the job is known by this file; another one that was is not."""
    connection.execute(_KNOW_FILE, {"job": job_id, **file._asdict()})


def forget(connection: psycopg.Connection, job_id: int) -> int:
    """Delete a chunk of the seeds of a deleted job; how many."""
    return connection.execute(_FORGET, {"job": job_id, "chunk": CHUNK}).rowcount


def forget_files(connection: psycopg.Connection, job_id: int) -> None:
    """A job that is deleted is known by no file any more."""
    connection.execute("DELETE FROM job_seed_files WHERE job_id = %(job)s", {"job": job_id})


def _says(connection: psycopg.Connection, query: str, job_id: int, **parameters: object) -> bool:
    row = connection.execute(query, {"job": job_id, **parameters}).fetchone()
    return bool(row and row[0])
