"""Parts of responses that several routes share."""

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter

from holdfast.api.request_types import View
from holdfast.control.input_files import BadLine
from holdfast.model.job import JobState
from holdfast.operations.records import Operation


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump_json(value: object, *, ensure_ascii: bool = False) -> str:
    """Encode a record or a model as responses are encoded."""
    kind: Any = type(value)
    return _adapter(kind).dump_json(value, ensure_ascii=ensure_ascii).decode()


class JobView(View):
    """A job, with what there is to do and what was done."""

    id: int
    name: str
    kind: str
    """`crawl`, or `tasks` for the standing job of all tasks."""
    state: JobState
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    state_reason: str | None
    """Why it was reopened, or the cause of a failure."""
    schedule: str | None
    next_run_at: datetime | None
    spec: dict[str, Any]
    version: int
    """Rises with every edit of the spec or of the secrets; the `ETag` of the job."""
    crawl: str | None
    """The crawl that is open: `running` or `stopped`."""
    crawl_started_at: datetime | None
    max_pages: int | None
    """Of that crawl."""
    pages: int
    errors: int
    bytes: int
    domains: int
    ready: int
    """Domains that could be worked on now."""
    spent: int
    """Domains that reached a limit, or used their share and wait for the next round."""
    done: int
    """Domains with nothing left to do."""
    discovered: int
    waiting: int
    urls_done: int
    denied: int
    failed: int
    depth: int
    out_of_budget: bool
    """A limit that a person gave is reached: nothing is fetched until it is crawled anew, by its schedule or `holdfast crawl`."""
    secrets: list[str]
    """The names of headers that are sent to the origins of its seeds; their values are never shown."""


class JobProgressView(JobView):
    """A job that is being watched."""

    requests: int
    """In flight, of all workers."""
    waits: list[str]
    """Why domains of it wait at this moment, and what the job as a whole waits for; at most a few."""


def accepted(response: Response, operation: Operation) -> Operation:
    """The response of a route that starts an operation; the Location header names it."""
    response.headers["Location"] = f"/api/operations/{operation.id}"
    return operation


class BadSeed(View):
    """A seed that cannot be one."""

    line: int
    """Its place, from 1."""
    problem: str


def bad_seeds(lines: Iterable[BadLine]) -> list[BadSeed]:
    """Invalid seeds, as `control` found them."""
    return [BadSeed(line=one.line, problem=one.problem) for one in lines]
