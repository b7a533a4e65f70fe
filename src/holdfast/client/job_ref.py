"""How callers of the client name a job: by its name, its id, or a `Job`."""

from typing import Final

from holdfast.jobs.records import Job

JobRef = str | int | Job

_DOT_SEGMENTS: Final = frozenset({".", ".."})
"""Segments that clients and servers remove from paths."""


def job_segment(job: JobRef) -> str:
    """The segment of a path for a job: its id if its name cannot be a segment."""
    if isinstance(job, Job):
        return str(job.id) if "/" in job.name or job.name in _DOT_SEGMENTS else job.name
    return str(job)


def optional_job(job: JobRef | None) -> str | None:
    """The value of a parameter that may name a job."""
    return None if job is None else job_segment(job)
