"""What may be done to a job is decided in one table."""

import pytest

from holdfast.errors import UsageError
from holdfast.model.job import MAX_NAME_LENGTH, JobAction, JobState, check_job_name, state_after

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
    assert state_after(action, state) == EXPECTED[action].get(state)


@pytest.mark.parametrize("action", JobAction)
def test_what_was_done_may_be_said_again(action: JobAction) -> None:
    for state in JobState:
        once = state_after(action, state)
        assert once is None or state_after(action, once) == once


@pytest.mark.parametrize("name", ["shop", "a.example-1f2e3d", "...", ".hidden", "täglich um 7", "x" * MAX_NAME_LENGTH])
def test_names_of_jobs(name: str) -> None:
    check_job_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (".", "means a folder"),
        ("..", "means a folder"),
        ("a/b", "no slash"),
        ("", "does not begin or end with a space"),
        (" x", "does not begin or end with a space"),
        ("12", "named by their ids"),
        ("x" * (MAX_NAME_LENGTH + 1), "at most 90 characters"),
    ],
)
def test_names_that_a_path_or_an_id_cannot_have(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_job_name(name)
