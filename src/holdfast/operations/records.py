"""Operations: long work in the background that the API starts."""

from datetime import datetime
from typing import Any, Literal

from holdfast.model.record import record

OperationState = Literal["waiting", "running", "done", "failed"]


@record
class Operation:
    """Long work in the background: its state, its progress and its result."""

    id: int
    kind: str
    state: OperationState
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    """How often it was started: more than once if a process that ran it died."""
    arguments: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any] | None
    problem: str | None
    """Why it failed."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with success or failure."""
        return self.state in {"done", "failed"}


@record
class StartedOperation(Operation):
    """An operation that a background process has just taken."""

    again: bool
    """Whether a process had started it before."""
