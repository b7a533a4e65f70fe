"""What may be done to a job is decided in one table."""

import pytest

from holdfast.model.job import JobAction, JobState, after

EXPECTED = {
    JobAction.PAUSE: {"pending": "paused", "processing": "paused", "paused": "paused"},
    JobAction.RESUME: {"pending": "pending", "processing": "processing", "paused": "pending"},
    JobAction.CANCEL: {
        "pending": "cancelled",
        "processing": "cancelled",
        "paused": "cancelled",
        "failed": "cancelled",
        "cancelled": "cancelled",
    },
}


@pytest.mark.parametrize("action", JobAction)
@pytest.mark.parametrize("state", JobState)
def test_every_action_in_every_state(action: JobAction, state: JobState) -> None:
    assert after(action, state) == EXPECTED[action].get(state)


@pytest.mark.parametrize("action", JobAction)
def test_what_was_done_may_be_said_again(action: JobAction) -> None:
    for state in JobState:
        once = after(action, state)
        assert once is None or after(action, once) == once
