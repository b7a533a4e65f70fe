"""A crawl whose job is paused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.cli import crawl
from holdfast.errors import Refused, StoreUnavailable
from holdfast.model.job import Job, JobSpec, JobState

JOB = Job(1, "news", JobSpec(), 1)
AWAY = StoreUnavailable("The database does not answer.")


class Kept:
    """Counts how often the bundled server is kept up, and whether it is now."""

    def __init__(self) -> None:
        self.times = 0
        self.now = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.times += 1
        self.now = True
        yield
        self.now = False


def patience(kept: Kept, *seen: JobState | StoreUnavailable) -> crawl._PauseWaiter:
    """One that sees these, one after the other."""
    looks = iter(seen)

    def state(_: Job) -> JobState:
        look = next(looks)
        if isinstance(look, StoreUnavailable):
            assert kept.now, "no keeper would start the server again"
            raise look
        return look

    return crawl._PauseWaiter(state, kept)


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl, "PAUSE_POLL_SECONDS", 0.0)


def test_a_database_that_goes_away_in_a_pause_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    paused, kept = JobState.PAUSED, Kept()
    waiting = patience(kept, paused, paused, AWAY, AWAY, paused, AWAY, JobState.PROCESSING)
    waiting.while_paused(JOB)
    told = capsys.readouterr().err
    assert waiting.waited
    assert (kept.times, kept.now) == (1, False)
    assert told.count("is paused") == 1
    assert told.count("does not answer. Nothing is lost; waiting until it answers.") == 2


def test_a_pause_ends_with_the_job() -> None:
    with pytest.raises(Refused, match="was cancelled"):
        patience(Kept(), JobState.PAUSED, JobState.CANCELLED).while_paused(JOB)


def test_a_job_that_is_not_paused_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept()
    waiting = patience(kept, JobState.PROCESSING)
    waiting.while_paused(JOB)
    assert (waiting.waited, kept.times, capsys.readouterr().err) == (False, 0, "")
