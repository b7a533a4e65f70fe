"""Tasks: their statuses, the transitions that each actor may make, and the operations of the operator.

A task is one crawl of one tracked URL: it is fetched in one phase and parsed in another. The rule: both tables here are total, and the
database enforces the same transitions by trigger, also against SQL written by hand; a test compares the two.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final

HIGHEST_PRIORITY: Final = 1
LOWEST_PRIORITY: Final = 10
DEFAULT_PRIORITY: Final = 5
MAX_RETRIES: Final = 20
DEFAULT_RETRIES: Final = 3
MAX_FREQUENCY: Final = timedelta(days=36500)
MIN_FREQUENCY: Final = timedelta(seconds=1)

_FIRST_WAIT: Final = timedelta(minutes=1)
_MAX_WAIT: Final = timedelta(days=1)
_MAX_ERROR: Final = 2_000


class TaskStatus(StrEnum):
    """The status of a task. From `queued` to `parsing` it is for display: the claim, or the attempt, decides who processes it."""

    PENDING = "pending"
    """Waits for its time, its domain or its parent."""
    QUEUED = "queued"
    """Its URL waits in the frontier."""
    CRAWLING = "crawling"
    DOWNLOADED = "downloaded"
    """The page is stored."""
    QUEUED_PARSE = "queued_parse"
    PARSING = "parsing"
    COMPLETED = "completed"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class TransitionActor(StrEnum):
    """The component (or person) that changes the status of a task."""

    SCHEDULE = "schedule"
    ENGINE = "engine"
    PARSE = "parse"
    PERSON = "person"


ENDED: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
"""Final statuses. All others are live, and a URL has at most one live task."""
LIVE: Final = frozenset(TaskStatus) - ENDED

_OPERATOR_TRANSITIONS: Final[dict[TaskStatus, frozenset[TaskStatus]]] = {
    **{status: frozenset({TaskStatus.PAUSED, TaskStatus.CANCELLED}) for status in TaskStatus if status not in ENDED},
    TaskStatus.PAUSED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.COMPLETED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED, TaskStatus.CANCELLED}),
    TaskStatus.CANCELLED: frozenset({TaskStatus.PENDING, TaskStatus.DOWNLOADED}),
}

TRANSITIONS: Final[dict[TransitionActor, dict[TaskStatus, frozenset[TaskStatus]]]] = {
    TransitionActor.SCHEDULE: {TaskStatus.PENDING: frozenset({TaskStatus.QUEUED})},
    TransitionActor.ENGINE: {
        TaskStatus.QUEUED: frozenset({TaskStatus.CRAWLING}),
        TaskStatus.CRAWLING: frozenset({TaskStatus.DOWNLOADED, TaskStatus.PENDING, TaskStatus.FAILED}),
        TaskStatus.DOWNLOADED: frozenset({TaskStatus.QUEUED_PARSE}),
    },
    TransitionActor.PARSE: {
        TaskStatus.DOWNLOADED: frozenset({TaskStatus.QUEUED_PARSE}),
        TaskStatus.QUEUED_PARSE: frozenset({TaskStatus.PARSING}),
        TaskStatus.PARSING: frozenset({TaskStatus.COMPLETED, TaskStatus.QUEUED_PARSE, TaskStatus.FAILED}),
    },
    TransitionActor.PERSON: _OPERATOR_TRANSITIONS,
}
"""The transitions that each actor may make. From crawling to pending, and from parsing to queued_parse, is a retry."""


def allowed_actors(old: TaskStatus, new: TaskStatus) -> frozenset[TransitionActor]:
    """The actors that may change a task from `old` to `new`; empty if the transition is not allowed."""
    return frozenset(mover for mover, table in TRANSITIONS.items() if new in table.get(old, frozenset()))


class Operation(StrEnum):
    """An operation of the operator on a task."""

    RESTART = "restart"
    RESTART_PARSING = "restart_parsing"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    PRIORITY = "priority"


class OperationVerdict(StrEnum):
    """The result of an operation."""

    ACT = "act"
    UNCHANGED = "unchanged"
    """The task is in that status already: repeating an operation is not an error."""
    REFUSE = "refuse"


TARGET_STATUS: Final[dict[Operation, TaskStatus]] = {
    Operation.RESTART: TaskStatus.PENDING,
    Operation.RESTART_PARSING: TaskStatus.DOWNLOADED,
    Operation.PAUSE: TaskStatus.PAUSED,
    Operation.RESUME: TaskStatus.PENDING,
    Operation.CANCEL: TaskStatus.CANCELLED,
}
"""The status that an operation leads to; a change of priority leads to none."""

_ACT, _SAME, _NO = OperationVerdict.ACT, OperationVerdict.UNCHANGED, OperationVerdict.REFUSE

# fmt: off
OPERATIONS: Final[dict[TaskStatus, dict[Operation, OperationVerdict]]] = {
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
"""The result of each operation in each status. Cancelling a completed task means that it is not crawled again."""

RESTARTABLE: Final = frozenset(
    status for status, row in OPERATIONS.items() if row[Operation.RESTART] is OperationVerdict.ACT
)


def retry_delay(retry_count: int, max_retries: int) -> timedelta | None:
    """The delay after a failure when `retry_count` retries were made before: 1, 2, 4, 8 … minutes, a day at most; None: give up."""
    if retry_count >= max_retries:
        return None
    return min(_FIRST_WAIT * (1 << max(retry_count, 0)), _MAX_WAIT)


def clean_error(text: str) -> str:
    """The error as stored: it may come from the web or a plug-in, so NUL and lone surrogates are replaced, and it is cut."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:_MAX_ERROR]
