"""What servers answer about tasks, batches and products, as values.

The rule: as in `values`: the API's own names, plain texts for states, datetimes for times.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypedDict


@dataclass(frozen=True, slots=True)
class Archived:
    """Where the bytes of a page are."""

    segment: str
    offset: int
    length: int
    payload_digest: str


@dataclass(frozen=True, slots=True)
class Task:
    """One crawl of one URL: it is fetched in one phase and parsed in another."""

    id: int
    url: str
    domain: str
    domain_id: int
    status: str
    status_reason: str
    priority: int
    scheduled_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    retry_count: int
    max_retries: int
    error_message: str | None
    crawl_frequency: timedelta
    next_crawl_at: datetime | None
    recrawl_count: int
    is_recurring: bool
    http_status_code: int | None
    response_time_ms: int | None
    proxy_id: int | None
    archive: Archived | None
    created_at: datetime
    updated_at: datetime
    created_by: str
    parent_task_id: int | None
    previous_task_id: int | None
    batch_id: int | None
    webhook_url: str | None
    waits_for: str | None
    parser_name: str | None
    parsed_by: str | None
    parser_version: str | None
    parse_after: datetime | None
    attempt: int
    version: int


@dataclass(frozen=True, slots=True)
class AskedTask(Task):
    """A task that was asked for."""

    created: bool
    """False: its URL had a task that has not ended; it is this one, and stays as it was."""


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next, and when, if that is known."""

    what: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that has to happen first, until when it lasts, and what a person can do about it."""

    what: str
    until: datetime | None
    change: str | None


@dataclass(frozen=True, slots=True)
class TaskStory(Task):
    """A task, why it is where it is, and what comes next."""

    batch: str | None
    moved_to: str | None
    next: Next
    waits: list[Wait]


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One change of a task's status."""

    version: int
    at: datetime
    from_status: str
    to_status: str
    why: str
    attempt: int
    claim_epoch: int | None


@dataclass(frozen=True, slots=True)
class TaskCrawl:
    """One crawl of a URL, and all that happened to it."""

    task: Task
    events: list[TaskEvent]


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks are in a status, and how it went in the last day."""

    status: str
    tasks: int
    lately: int
    mean_seconds: float | None


@dataclass(frozen=True, slots=True)
class BadTask:
    """A URL that no task can be made of, and its place, from 1."""

    place: int
    problem: str


@dataclass(frozen=True, slots=True)
class Bulk:
    """What came of asking for many tasks."""

    seen: int
    created: int
    known: int
    bad: int
    bad_urls: list[BadTask]
    """The first ones."""


@dataclass(frozen=True, slots=True)
class RestartedTask:
    """One of many tasks that were restarted."""

    id: int
    url: str


@dataclass(frozen=True, slots=True)
class RestartedTasks:
    """Tasks that were restarted: how many, and the first ones."""

    restarted: int
    tasks: list[RestartedTask]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that belong together."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[str, int]
    """By status; those that none is in are left out."""
    counted_all: bool = True
    """False: there are more, of which a list counts no more."""


@dataclass(frozen=True, slots=True)
class Rating:
    """What customers think of a product."""

    value: Decimal
    best: Decimal
    count: int | None


@dataclass(frozen=True, slots=True)
class Product:
    """A product on a page. What the page did not say is None."""

    id: int
    domain: str
    name: str
    brand: str | None
    sku: str | None
    gtin: str | None
    price: Decimal | None
    currency: str | None
    availability: str | None
    images: list[str]
    rating: Rating | None
    url: str | None
    page_url: str
    first_seen_at: datetime
    last_seen_at: datetime
    last_task_id: int | None


@dataclass(frozen=True, slots=True)
class Price:
    """A price, and the first and last fetch that showed it."""

    since: datetime
    until: datetime
    price: Decimal | None
    currency: str | None
    availability: str | None
    task_id: int | None
    last_task_id: int | None


class TaskWish(TypedDict, total=False):
    """How tasks are to be. What is left out is usual."""

    priority: int
    scheduled_at: datetime | None
    crawl_frequency: timedelta | None
    is_recurring: bool
    max_retries: int
    parent_task_id: int | None
    batch: str | None
    webhook_url: str | None
    parser_name: str | None
