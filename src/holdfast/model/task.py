"""What a task can be, who may move it, and what a person may ask of it.

A task is one crawl of one tracked URL: it is fetched in one phase and parsed in another. The rule: both tables here are total, and
the database enforces the same transitions by trigger, also against SQL written by hand; a test compares the two.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.model.domain import Seed
from holdfast.model.page import ArchiveRef

FIRST_PRIORITY: Final = 1
LAST_PRIORITY: Final = 10
USUAL_PRIORITY: Final = 5
MOST_RETRIES: Final = 20
USUAL_RETRIES: Final = 3
LONGEST_FREQUENCY: Final = timedelta(days=36500)
SHORTEST_FREQUENCY: Final = timedelta(seconds=1)

_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(days=1)
_LONGEST_ERROR: Final = 2_000


class TaskStatus(StrEnum):
    """Where a task stands. From `queued` to `parsing` it is a report for people: the claim, or the attempt, says who is at it."""

    PENDING = "pending"
    """Waits for its time, its domain or its parent."""
    QUEUED = "queued"
    """Its URL waits in the frontier."""
    CRAWLING = "crawling"
    DOWNLOADED = "downloaded"
    """The page is there."""
    QUEUED_PARSE = "queued_parse"
    PARSING = "parsing"
    COMPLETED = "completed"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class Mover(StrEnum):
    """Who moves a task."""

    SCHEDULE = "schedule"
    ENGINE = "engine"
    PARSE = "parse"
    PERSON = "person"


ENDED: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
"""The others are live, and of one URL there is at most one live task."""
LIVE: Final = frozenset(TaskStatus) - ENDED

_BY_PEOPLE: Final[dict[TaskStatus, frozenset[TaskStatus]]] = {
    **{status: frozenset({TaskStatus.PAUSED, TaskStatus.CANCELLED}) for status in TaskStatus if status not in ENDED},
    TaskStatus.PAUSED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.COMPLETED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.CANCELLED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED}),
}

TRANSITIONS: Final[dict[Mover, dict[TaskStatus, frozenset[TaskStatus]]]] = {
    Mover.SCHEDULE: {TaskStatus.PENDING: frozenset({TaskStatus.QUEUED})},
    Mover.ENGINE: {
        TaskStatus.QUEUED: frozenset({TaskStatus.CRAWLING}),
        TaskStatus.CRAWLING: frozenset({TaskStatus.DOWNLOADED, TaskStatus.PENDING, TaskStatus.FAILED}),
        TaskStatus.DOWNLOADED: frozenset({TaskStatus.QUEUED_PARSE}),
    },
    Mover.PARSE: {
        TaskStatus.DOWNLOADED: frozenset({TaskStatus.QUEUED_PARSE}),
        TaskStatus.QUEUED_PARSE: frozenset({TaskStatus.PARSING}),
        TaskStatus.PARSING: frozenset({TaskStatus.COMPLETED, TaskStatus.QUEUED_PARSE, TaskStatus.FAILED}),
    },
    Mover.PERSON: _BY_PEOPLE,
}
"""Who may move a task from where to where. Back to pending from crawling, and to queued_parse from parsing, is another try."""


def movers(old: TaskStatus, new: TaskStatus) -> frozenset[Mover]:
    """Who may make a task that is `old` become `new`; nobody, where it is not allowed."""
    return frozenset(mover for mover, table in TRANSITIONS.items() if new in table.get(old, frozenset()))


class Operation(StrEnum):
    """What a person asks of a task."""

    RESTART = "restart"
    RESTART_PARSING = "restart_parsing"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    PRIORITY = "priority"


class Verdict(StrEnum):
    """What comes of asking."""

    ACT = "act"
    UNCHANGED = "unchanged"
    """It is as asked for already: asking twice is no error."""
    REFUSE = "refuse"


TARGET: Final[dict[Operation, TaskStatus]] = {
    Operation.RESTART: TaskStatus.PENDING,
    Operation.RESTART_PARSING: TaskStatus.DOWNLOADED,
    Operation.PAUSE: TaskStatus.PAUSED,
    Operation.RESUME: TaskStatus.PENDING,
    Operation.CANCEL: TaskStatus.CANCELLED,
}
"""The status that an operation leads to; a priority leads to none."""

_ACT, _SAME, _NO = Verdict.ACT, Verdict.UNCHANGED, Verdict.REFUSE

# fmt: off
OPERATIONS: Final[dict[TaskStatus, dict[Operation, Verdict]]] = {
    status: dict(zip(Operation, row, strict=True)) for status, row in {
        #                         restart  …parsing  pause  resume  cancel  priority
        TaskStatus.PENDING:      (_SAME,   _NO,      _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.QUEUED:       (_NO,     _NO,      _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.CRAWLING:     (_NO,     _NO,      _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.DOWNLOADED:   (_NO,     _SAME,    _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.QUEUED_PARSE: (_NO,     _SAME,    _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.PARSING:      (_NO,     _NO,      _ACT,  _SAME,  _ACT,   _ACT),
        TaskStatus.COMPLETED:    (_ACT,    _ACT,     _NO,   _NO,    _ACT,   _ACT),
        TaskStatus.FAILED:       (_ACT,    _ACT,     _NO,   _NO,    _ACT,   _ACT),
        TaskStatus.PAUSED:       (_ACT,    _ACT,     _SAME, _ACT,   _ACT,   _ACT),
        TaskStatus.CANCELLED:    (_ACT,    _ACT,     _NO,   _NO,    _SAME,  _ACT),
    }.items()
}
# fmt: on
"""What comes of each operation in each status. To cancel a task that is completed means: do not crawl it again."""

RESTARTABLE: Final = frozenset(status for status, row in OPERATIONS.items() if row[Operation.RESTART] is Verdict.ACT)


def retry_after(retry_count: int, max_retries: int) -> timedelta | None:
    """How long to wait after a failure, when so many retries were made already: 1, 2, 4, 8 … minutes, a day at most; None: give up."""
    if retry_count >= max_retries:
        return None
    return min(_FIRST_WAIT * (1 << max(retry_count, 0)), _LONGEST_WAIT)


def error_text(text: str) -> str:
    """What went wrong, as the store keeps it: it may come from the web or a plug-in, so NUL and lone surrogates go, and it is short."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:_LONGEST_ERROR]


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that somebody wants."""

    seed: Seed
    """Its URL, and the domain that it belongs to."""
    priority: int = USUAL_PRIORITY
    scheduled_at: datetime | None = None
    """Not before then; None: now."""
    frequency: timedelta | None = None
    """How long after it is completed it is crawled again; None: the domain's."""
    recurring: bool = True
    max_retries: int = USUAL_RETRIES
    parent_task_id: int | None = None
    """It waits until that one is completed."""
    batch_id: int | None = None
    webhook_url: str | None = None
    parser: str | None = None
    """None: the domain's."""


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """What came of fetching a task's URL."""

    task_id: int
    attempt: int
    """As `due` gave it; under another one the result is refused."""
    error: str | None = None
    """None: the page is there."""
    hopeless: bool = False
    """With an error: another try would end alike, so none is made."""
    http_status: int | None = None
    response_ms: int | None = None
    proxy_id: int | None = None
    archive: ArchiveRef | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task as the store holds it."""

    id: int
    domain_id: int
    domain: str
    url: str
    url_hash: bytes
    status: TaskStatus
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
    archive: ArchiveRef | None
    http_status_code: int | None
    response_time_ms: int | None
    proxy_id: int | None
    created_at: datetime
    updated_at: datetime
    created_by: str
    parent_task_id: int | None
    previous_task_id: int | None
    batch_id: int | None
    webhook_url: str | None
    claim_epoch: int | None
    attempt: int
    version: int
    waits_for: str | None
    """`domain` or `parent`, if the schedule set it aside."""
    parser_name: str | None
    parsed_by: str | None
    parser_version: str | None
    parse_after: datetime | None
    """While it waits to be parsed: not before then; None: at once."""
