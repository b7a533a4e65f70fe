"""SQL of jobs: their list, one job, and many."""

from collections.abc import Iterable, Sequence
from typing import Final

import psycopg

from holdfast.db.keyset_pagination import Key, Listing, Order, Page, SortColumn, only_id
from holdfast.db.planner_hints import fetch_with_settings
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.jobs.records import Job, JobFilter
from holdfast.model.job import JobState

_JOBS: Final = """
SELECT j.id, j.name, j.kind::text, j.state::text, j.created_at, j.updated_at, j.completed_at, j.state_reason, j.schedule, j.next_run_at,
       j.spec, j.settings_version AS version, j.rules_version,
       c.state::text AS crawl, c.started_at AS crawl_started_at, c.max_pages,
       COALESCE(w.pages, 0) AS pages, COALESCE(w.errors, 0) AS errors, COALESCE(w.bytes, 0) AS bytes,
       COALESCE(w.domains, 0) AS domains, COALESCE(w.ready, 0) AS ready, COALESCE(w.spent, 0) AS spent, COALESCE(w.done, 0) AS done,
       COALESCE(w.discovered, 0) AS discovered, COALESCE(w.waiting, 0) AS waiting, COALESCE(w.urls_done, 0) AS urls_done,
       COALESCE(w.denied, 0) AS denied, COALESCE(w.failed, 0) AS failed, COALESCE(w.depth, 0) AS depth,
       CASE WHEN j.state = 'pending' AND c.id IS NULL AND w.spent > 0 AND w.spent + w.done = w.domains
            THEN NOT EXISTS (SELECT FROM domain_wakes k WHERE k.job_id = j.id)
            ELSE j.state = 'pending' AND c.id IS NULL AND w.waiting > 0 AND job_is_used_up(j) END AS out_of_budget,
       ARRAY(SELECT unnest(s.names) FROM job_secrets s WHERE s.job_id = j.id ORDER BY 1) AS secrets
FROM crawl_jobs j
LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
LEFT JOIN {each} (
    SELECT job_id, count(*) AS domains, count(*) FILTER (WHERE ready) AS ready, count(*) FILTER (WHERE state = 'spent') AS spent,
           count(*) FILTER (WHERE state = 'done') AS done, sum(discovered)::bigint AS discovered, sum(waiting)::bigint AS waiting,
           sum(job_domains.done)::bigint AS urls_done, sum(denied)::bigint AS denied, sum(failed)::bigint AS failed,
           sum(pages)::bigint AS pages, sum(errors)::bigint AS errors, sum(bytes)::bigint AS bytes,
           max(depth_reached) AS depth
    FROM job_domains {of_it} GROUP BY job_id) w ON w.job_id = j.id
WHERE j.deleted_at IS NULL {wanted} ORDER BY j.id
"""
_ALL_JOBS: Final = _JOBS.format(each="", of_it="", wanted="")
SOME_JOBS: Final = _JOBS.format(
    each="LATERAL", of_it="WHERE job_id = j.id", wanted="AND j.id = ANY(%(jobs)s::bigint[])"
)
"""The jobs with the ids `jobs`; like `UNDER_WAY` it may be a part of a statement (`db/combined_query`)."""
_UNDER_WAY: Final = """
SELECT o.id FROM unnest(ARRAY['processing', 'pending', 'paused']::job_state[]) WITH ORDINALITY s (state, place)
CROSS JOIN LATERAL (SELECT j.id FROM crawl_jobs j WHERE j.state = s.state AND j.deleted_at IS NULL ORDER BY j.id DESC LIMIT %(limit)s) o
ORDER BY s.place, o.id DESC
"""
UNDER_WAY: Final = _JOBS.format(
    each="LATERAL", of_it="WHERE job_id = j.id", wanted=f"AND j.id = ANY(ARRAY({_UNDER_WAY}))"
)
"""The newest `limit` jobs of each state that `sort_under_way` shows."""
_PLACES: Final = {JobState.PROCESSING: 0, JobState.PENDING: 1, JobState.PAUSED: 2}
# By bitmaps, which take half the time where a job has work on many domains: the planner believes that to walk along an index is as good.
_BY_BITMAPS: Final = {"enable_indexscan": "off", "max_parallel_workers_per_gather": "0"}
_ONE_BY_ONE: Final = _BY_BITMAPS | {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}

JOBS: Final = Listing(
    "crawl_jobs",
    "t.id",
    only_id,
    {
        "state": "t.state = %(state)s::job_state",
        "prefix": "starts_with(t.name, %(prefix)s)",
        "scheduled": "t.schedule IS NOT NULL",
    },
    {
        "newest": Order((SortColumn("t.id", int, descending=True),)),
        "oldest": Order((SortColumn("t.id", int),)),
    },
    condition="t.deleted_at IS NULL",
)
"""The list of jobs, by their ids."""


def page(connection: psycopg.Connection, where: JobFilter, *, order: str, after: Key | None, limit: int) -> Page[Job]:
    """One page of jobs. The counts of those on the page are summed over all their domains."""
    return JOBS.records(connection, _by_ids, where.given(), order=order, after=after, limit=limit)


def get(connection: psycopg.Connection, job_id: int) -> Job:
    """Return one job. Raises NotFound."""
    found = some(connection, [job_id])
    if not found:
        raise NotFound(f"There is no job {job_id} any more.")
    return found[0]


def sort_under_way(jobs: Iterable[Job], limit: int) -> list[Job]:
    """Return of these jobs those that are crawled, wait or are paused, in this order, the newest first; without those that have nothing to
    crawl and no page."""
    found = [job for job in jobs if job.state in _PLACES and (job.waiting or job.pages)]
    return sorted(found, key=lambda job: (_PLACES[job.state], -job.id))[:limit]


def everything(connection: psycopg.Connection) -> list[Job]:
    """Return all jobs. Reads all domains of all of them."""
    return fetch_with_settings(connection, _BY_BITMAPS, _ALL_JOBS, {}, row_factory=_as_job)


def some(connection: psycopg.Connection, job_ids: Sequence[int]) -> list[Job]:
    """Return those of these jobs that exist, by id. Reads all their domains."""
    if not job_ids:
        return []
    return fetch_with_settings(connection, _ONE_BY_ONE, SOME_JOBS, {"jobs": list(job_ids)}, row_factory=_as_job)


def _by_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Job]:
    return {job.id: job for job in some(connection, ids)}


_as_job: Final = by_name(Job, state=lambda state: JobState(state))
