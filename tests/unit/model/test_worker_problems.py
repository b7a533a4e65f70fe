"""Problems in the activity of a worker: stored and read again, also by other versions, each once over several workers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.model.activity import Activity, ProblemKind, WorkerProblem, problems_of

AT = datetime(2031, 12, 24, 18, tzinfo=UTC)
FULL = WorkerProblem(ProblemKind.DISK_FULL, "fetching is paused", AT, 1e6, "archive")
SLOW = WorkerProblem(ProblemKind.DATABASE_SLOW, "a commit takes 3 s", AT - timedelta(hours=1), 3.0)


def test_an_idle_worker_with_a_problem_is_not_idle() -> None:
    activity = Activity(problems=(FULL, SLOW))
    stored = activity.to_json()
    assert stored is not None
    assert Activity.from_json(stored, age=5.0) == activity
    assert Activity().to_json() is None
    assert activity.fingerprint(0.0) != Activity().fingerprint(0.0)
    assert activity.fingerprint(0.0) == Activity(problems=(replace(FULL, value=9.0), SLOW)).fingerprint(0.0)


def test_other_versions() -> None:
    older = {"requests": {}, "fetching": [], "waiting": 0, "waits": []}
    assert Activity.from_json(older).problems == ()
    newer = Activity(problems=(FULL,)).to_json()
    assert newer is not None
    newer["problems"].append({**newer["problems"][0], "kind": "moon_full"})
    assert Activity.from_json(newer).problems == (FULL,)


def test_hostile_text_is_cut_and_printable() -> None:
    stored = Activity(problems=(replace(FULL, text="\x1b[31m" + "x" * 900),)).to_json()
    (read,) = Activity.from_json(stored).problems
    assert read.text.startswith("\ufffd[31mxxx")
    assert len(read.text) == 500


def test_each_problem_of_several_workers_once_and_pauses_first() -> None:
    one = Activity(problems=(SLOW,)).to_json()
    other = Activity(problems=(replace(FULL, text="the same, a second later"), FULL, SLOW)).to_json()
    assert [problem.kind for problem in problems_of([one, None, other])] == [
        ProblemKind.DISK_FULL,
        ProblemKind.DATABASE_SLOW,
    ]
    assert [problem.pauses for problem in (FULL, SLOW)] == [True, False]
