"""The seeds of jobs, and the seed files by which jobs are found.

The rule: seeds are inserted by `db/seed_insert`, in the transaction that inserts the frontier rows, and deleted with their job. A frontier
that is gone is restored from them when an operator or a schedule starts the job.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.model.domain import Seed
from holdfast.model.outcome import Outcome

CHUNK: Final = 10_000

_HAS_ANY: Final = "SELECT EXISTS (SELECT FROM job_seeds WHERE job_id = %(job)s AND url_key = ANY(%(keys)s::bytea[]))"
_HAS_NONE: Final = "SELECT NOT EXISTS (SELECT FROM job_seeds WHERE job_id = %(job)s)"
_FRONTIER_IS_GONE: Final = """
SELECT NOT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND discovered > 0)
   AND NOT EXISTS (SELECT FROM domain_wakes WHERE job_id = %(job)s AND inserted > 0)
"""
_CHUNK: Final = """
SELECT url_key, url, seed_rank, guessed FROM job_seeds WHERE job_id = %(job)s AND url_key > %(after)s ORDER BY url_key LIMIT %(chunk)s
"""
_BY_FILE: Final = "SELECT job_id FROM job_seed_files WHERE mark = %(mark)s"
_BY_CONTENT: Final = "SELECT job_id FROM job_seed_files WHERE content = %(content)s ORDER BY job_id DESC LIMIT 1"
_KNOW_FILE: Final = """
INSERT INTO job_seed_files AS f (mark, job_id, path, content) VALUES (%(mark)s, %(job)s, %(path)s, %(content)s)
ON CONFLICT (mark) DO UPDATE SET job_id = excluded.job_id, content = excluded.content
WHERE (f.job_id, f.content) <> (excluded.job_id, excluded.content)
"""
_MOVED_TO_HTTP: Final = """
SELECT f.url FROM unnest(%(domains)s::text[], %(keys)s::bytea[]) WITH ORDINALITY AS s(domain, key, nth)
JOIN domains d ON d.domain = s.domain JOIN url_frontier f ON f.domain_id = d.id AND f.job_id = %(job)s AND f.url_key = s.key
WHERE f.state = 'denied' AND f.reason LIKE %(reason)s ORDER BY s.nth
"""


class JobSeed(NamedTuple):
    """A stored seed."""

    url_key: bytes
    url: str
    rank: int | None
    guessed: bool


class SeedFile(NamedTuple):
    """A seed file by which a job is found."""

    mark: bytes
    """A hash of its absolute path and the rules of the crawl."""
    path: str
    content: bytes
    """A hash of its seeds and the rules of the crawl."""


def has_any(connection: psycopg.Connection, job_id: int, keys: Sequence[bytes]) -> bool:
    """Whether one of these URLs is a seed of the job."""
    return _exists(connection, _HAS_ANY, job_id, keys=list(keys))


def has_none(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether the job has no seeds at all."""
    return _exists(connection, _HAS_NONE, job_id)


def frontier_is_gone(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether the job has no URL in its frontier, in any state."""
    return _exists(connection, _FRONTIER_IS_GONE, job_id)


def chunks(connection: psycopg.Connection, job_id: int) -> Iterator[list[JobSeed]]:
    """All seeds of a job, in chunks."""
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
    """The job that is found by this file and these rules."""
    row = connection.execute(_BY_FILE, {"mark": mark}).fetchone()
    return row[0] if row else None


def by_content(connection: psycopg.Connection, content: bytes) -> int | None:
    """The newest job that is found by a file with these seeds and rules."""
    row = connection.execute(_BY_CONTENT, {"content": content}).fetchone()
    return row[0] if row else None


def know_file(connection: psycopg.Connection, job_id: int, file: SeedFile) -> None:
    """Let the job be found by this file, instead of another one that was."""
    connection.execute(_KNOW_FILE, {"job": job_id, **file._asdict()})


def moved_to_http(connection: psycopg.Connection, job_id: int, seeds: Sequence[Seed]) -> list[str]:
    """The https URLs of those seeds of a job that were replaced by http URLs."""
    parameters = {
        "job": job_id,
        "domains": [seed.domain for seed in seeds],
        "keys": [seed.url_key for seed in seeds],
        "reason": f"{Outcome.NO_HTTPS}:%",
    }
    return [row[0] for row in connection.execute(_MOVED_TO_HTTP, parameters)]


def _exists(connection: psycopg.Connection, query: str, job_id: int, **parameters: object) -> bool:
    row = connection.execute(query, {"job": job_id, **parameters}).fetchone()
    return bool(row and row[0])
