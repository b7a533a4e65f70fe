"""Tasks and batches: what queries return and the API answers with, the options of new tasks, and the filters of the lists."""

import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict

from holdfast.errors import UsageError
from holdfast.model.activity import WaitCondition
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import record
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_FREQUENCY,
    MAX_RETRIES,
    MIN_FREQUENCY,
    TaskStatus,
)

if TYPE_CHECKING:
    from holdfast.model.fetch_types import ArchiveRef

_PARSER_NAME: Final = re.compile(r"[\w.-]{1,100}")
_MAX_WEBHOOK: Final = 2048
_MAX_ID: Final = 2**63 - 1
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


# Tasks ---------------------------------------------------------------------------------------------------------------


@record
class Archived:
    """The location of a page in the archive."""

    segment: str
    """A file of the archive."""
    offset: int
    length: int
    payload_digest: str
    """SHA-256 of the body, in hexadecimal digits."""

    @property
    def ref(self) -> "ArchiveRef":
        """The location as `archive` takes it."""
        from holdfast.model.fetch_types import ArchiveRef  # it needs ada-url, which the client does without

        return ArchiveRef(self.segment, self.offset, self.length, bytes.fromhex(self.payload_digest))


@record
class Task:
    """One crawl of one URL: it is fetched in one phase and parsed in another."""

    id: int
    url: str
    domain: str
    domain_id: int
    status: TaskStatus
    status_reason: str
    priority: int
    """From 1 (first) to 10."""
    scheduled_at: datetime
    """Not before then."""
    started_at: datetime | None
    completed_at: datetime | None
    """When it ended, well or not."""
    retry_count: int
    max_retries: int
    error_message: str | None
    crawl_frequency: timedelta
    """How long after its end it is crawled again."""
    next_crawl_at: datetime | None
    recrawl_count: int
    is_recurring: bool
    http_status_code: int | None
    response_time_ms: int | None
    proxy_id: int | None
    archive: Archived | None
    """null: there is no page of it."""
    created_at: datetime
    updated_at: datetime
    created_by: str
    parent_task_id: int | None
    """It waits until that one is completed."""
    previous_task_id: int | None
    """The crawl of the same URL before it."""
    batch_id: int | None
    webhook_url: str | None
    waits_for: str | None
    """`domain` or `parent`, if the scheduler has set it aside."""
    parser_name: str | None
    """The parser that it is for; null: the domain's parser."""
    parsed_by: str | None
    parser_version: str | None
    parse_after: datetime | None
    """While it waits to be parsed: not before then."""
    claim_epoch: int | None
    """The epoch of the claim under which it was last fetched."""
    attempt: int
    version: int

    @property
    def url_hash(self) -> bytes:
        """The key of its URL in the database."""
        from holdfast.model.url import url_key  # it needs ada-url, which the client does without

        return url_key(self.url)

    @classmethod
    def extend(cls, task: "Task", **more: Any) -> Self:
        """Make a record of a subclass: the fields of a task, and more."""
        return cls(**{one.name: getattr(task, one.name) for one in fields(Task)}, **more)


@record
class AskedTask(Task):
    """A task that was asked for."""

    created: bool
    """False: its URL had a task that has not ended; it is this one, and stays as it was."""


@record
class TaskRestart(Task):
    """A task that was restarted."""

    task_id: int
    """The same as `id`."""
    restarted: bool
    """False: it was waiting for that already, and stays as it was."""
    message: str


@record
class NextStep:
    """The next step of a task, as the middle of a sentence."""

    what: str
    at: datetime | None = None
    """When, if that is known."""


@record
class TaskStory(Task):
    """A task, the reason of its state, and what comes next."""

    now: datetime
    """By the clock of the database."""
    batch: str | None
    parent_status: TaskStatus | None
    moved_to: str | None
    """Where redirects have led it to so far."""
    next: NextStep
    waits: list[WaitCondition]
    """What its URL waits for in the frontier."""


@record
class TaskEvent:
    """One change of a task's status."""

    version: int
    at: datetime
    from_status: TaskStatus
    to_status: TaskStatus
    why: str
    attempt: int
    claim_epoch: int | None


@record
class TaskCrawl:
    """One crawl of a URL."""

    task: Task
    events: list[TaskEvent]
    """All changes of its status, the oldest first."""


@record
class TaskCount:
    """How many tasks are in a status."""

    status: TaskStatus
    tasks: int
    lately: int
    """That ended in it within the last day; of statuses that end a task only."""
    mean_seconds: float | None
    """How long those took from the first request to the end, on average."""


@record
class BadTask:
    """A URL that no task can be made of."""

    place: int
    """Among `urls`, from 1."""
    problem: str


@record
class Bulk:
    """The result of asking for many tasks."""

    seen: int
    created: int
    known: int
    """Their URLs had tasks that have not ended; these stay as they were."""
    bad: int
    bad_urls: list[BadTask]
    """The first 1000 of them."""


@record
class RestartedTask:
    """One of many tasks that were restarted."""

    id: int
    url: str


@record
class RestartedTasks:
    """The tasks that were restarted."""

    restarted: int
    """How many. As many as `limit`: there may be more; ask again."""
    tasks: list[RestartedTask]
    """The first 1000 of them."""


@record
class FailedTasks:
    """How many tasks a restart of failed tasks would restart."""

    tasks: int
    exact: bool
    """False: there may be more; only the first failed tasks were looked at."""


@record
class Batch:
    """Tasks that belong together, by a name."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[TaskStatus, int]
    """How many are in each status; statuses without tasks are left out."""
    counted_all: bool = True
    """False: it has more tasks than are counted for a list; look at it alone."""


# Options and filters -------------------------------------------------------------------------------------------------


class TaskArguments(TypedDict, total=False):
    """The fields of `TaskOptions` as keyword arguments; one that is left out has its default."""

    priority: int
    scheduled_at: datetime | None
    crawl_frequency: timedelta | None
    is_recurring: bool
    max_retries: int
    parent_task_id: int | None
    batch: str | None
    webhook_url: str | None
    parser_name: str | None


@record
class TaskOptions:
    """Options of new tasks."""

    priority: int = DEFAULT_PRIORITY
    scheduled_at: datetime | None = None
    """The earliest time, with its time zone; None: now."""
    crawl_frequency: timedelta | None = None
    """None: the domain's."""
    is_recurring: bool = True
    max_retries: int = DEFAULT_RETRIES
    parent_task_id: int | None = None
    batch: str | None = None
    """By name; it must exist."""
    webhook_url: str | None = None
    parser_name: str | None = None
    """None: the domain's."""

    def check(self) -> None:
        """Raise UsageError if a value is invalid. Needs no database."""
        check_priority(self.priority)
        check_time(self.scheduled_at)
        if self.crawl_frequency is not None and not MIN_FREQUENCY <= self.crawl_frequency <= MAX_FREQUENCY:
            raise UsageError("A frequency is from one second to 36500 days.")
        if not 0 <= self.max_retries <= MAX_RETRIES:
            raise UsageError(f"A task is tried again 0 to {MAX_RETRIES} times, not {self.max_retries}.")
        if self.parser_name is not None and not _PARSER_NAME.fullmatch(self.parser_name):
            raise UsageError("A parser is one word of letters, digits, dots and dashes.")
        if self.parent_task_id is not None and not 0 < self.parent_task_id <= _MAX_ID:
            raise UsageError(f"{self.parent_task_id} is not the id of a task.")
        if self.webhook_url is not None:
            from holdfast.model.url import parse_url  # it needs ada-url, which the client does without

            webhook = parse_url(self.webhook_url)
            if len(webhook.href) > _MAX_WEBHOOK:
                raise UsageError(f"A webhook's URL is at most {_MAX_WEBHOOK} bytes long.")
            if webhook.has_credentials:
                raise UsageError(
                    "A webhook's URL must not contain a password: every user who can read tasks would see it."
                )


@record
class TaskFilter(ListFilter):
    """Which tasks to list; None: all."""

    status: TaskStatus | None = None
    domain: str | None = None
    batch: str | None = None
    """By name."""
    parent_task_id: int | None = None
    priority: int | None = None


@record
class BatchFilter(ListFilter):
    """Which batches to list; None: all."""

    prefix: str | None = None
    """Only those whose names begin so."""


def check_priority(priority: int) -> None:
    """Raise UsageError if it is no priority."""
    if not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        raise UsageError(f"A priority is from {HIGHEST_PRIORITY} (first) to {LOWEST_PRIORITY}, not {priority}.")


def check_time(time: datetime | None) -> None:
    """Raise UsageError if the database cannot store a time."""
    if time is not None and (time.tzinfo is None or not _EARLIEST <= time < _LATEST):
        raise UsageError("A time is written with its time zone, and lies after 1970 and before the year 9999.")
