"""What was read from sitemaps: one row for each that a job has read.

The rule: the row is written in the transaction that settles the URL of the sitemap, so it says what that reading brought.
"""

from collections.abc import Sequence
from typing import Final

import psycopg

from holdfast.model.commit_batch import VisitPart

_RECORD: Final = """
INSERT INTO sitemaps AS s (domain_id, job_id, url_key, read_at, format, entries, skipped, bytes, problem)
SELECT f.domain_id, f.job_id, f.url_key, clock_timestamp(), r.format, r.entries, r.skipped, r.bytes, left(r.problem, 500)
FROM (VALUES (%(domain)s::bigint, %(job)s::bigint, %(key)s::bytea, %(format)s::text, %(entries)s::bigint, %(skipped)s::bigint,
              %(bytes)s::bigint, %(problem)s::text)) AS r(domain_id, job_id, url_key, format, entries, skipped, bytes, problem)
JOIN url_frontier f USING (domain_id, job_id, url_key)
ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET read_at = excluded.read_at, format = excluded.format,
    entries = excluded.entries, skipped = excluded.skipped, bytes = excluded.bytes, problem = excluded.problem
"""


def record(connection: psycopg.Connection, parts: Sequence[VisitPart]) -> None:
    """Store what was read from the sitemaps of these parts. Before: every part's domain passed the fence of this transaction."""
    for part in parts:
        for outcome in part.outcomes:
            if (read := outcome.sitemap) is None:
                continue
            connection.execute(
                _RECORD,
                {
                    "domain": part.domain_id,
                    "job": outcome.job_id,
                    "key": outcome.url_key,
                    "format": read.format,
                    "entries": read.entries,
                    "skipped": read.skipped,
                    "bytes": read.bytes,
                    "problem": read.problem,
                },
            )
