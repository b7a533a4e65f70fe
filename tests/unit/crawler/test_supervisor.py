"""Worker processes are restarted when they die, and not when a restart would not help."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.crawler import supervisor as supervisors
from holdfast.crawler.supervisor import Supervisor

PATIENCE = 30.0
WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("alive", flush=True)
while sys.stdin.buffer.read(1):
    pass
print("orphan", flush=True)
"""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(supervisors, "MAX_PAUSE", 0.05)


def supervise(folder: Path, script: str, count: int = 1) -> Supervisor:
    return Supervisor(lambda number: [sys.executable, "-c", script, str(number)], count, folder / "logs")


def tick_until(supervisor: Supervisor, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        supervisor.tick()
        time.sleep(0.01)


def said(supervisor: Supervisor, number: int = 1) -> list[str]:
    """Whole lines: a line and its end may be two writes."""
    file = supervisor.log_file(number)
    return file.read_text().split("\n")[:-1] if file.exists() else []


def test_all_are_started_and_stopped_in_order(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, WAITS, 2)
    supervisor.start()
    tick_until(supervisor, lambda: said(supervisor, 1) == said(supervisor, 2) == ["alive"])
    assert len(set(supervisor.pids())) == 2
    supervisor.stop()
    tick_until(supervisor, lambda: not supervisor.tick())
    assert (supervisor.restarts, supervisor.refusal, supervisor.pids()) == (0, None, [])


def test_one_that_is_killed_comes_back(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, WAITS, 2)
    supervisor.start()
    tick_until(supervisor, lambda: said(supervisor, 1) == said(supervisor, 2) == ["alive"])
    first, second = supervisor.pids()
    os.kill(first, signal.SIGKILL)
    tick_until(supervisor, lambda: said(supervisor, 1) == ["alive", "alive"])
    assert supervisor.restarts == 1
    assert second in supervisor.pids()
    assert first not in supervisor.pids()
    supervisor.kill()
    assert not supervisor.tick()


def test_one_that_is_killed_again_and_again_comes_back_every_time(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, WAITS)
    supervisor.start()
    for times in range(1, 8):
        tick_until(supervisor, lambda times=times: len(said(supervisor)) == times)  # type: ignore[misc]
        os.kill(supervisor.pids()[0], signal.SIGKILL)
    tick_until(supervisor, lambda: len(said(supervisor)) == 8)
    assert (supervisor.restarts, supervisor.refusal) == (7, None)
    supervisor.kill()


def test_some_stand_back_behind_others_also_those_that_come_back(tmp_path: Path) -> None:
    supervisor = Supervisor(
        lambda _: [sys.executable, "-c", WAITS], 2, tmp_path / "logs", nice=lambda number: 5 if number == 1 else 0
    )

    def priorities() -> list[int]:
        return [os.getpriority(os.PRIO_PROCESS, pid) for pid in supervisor.pids()]

    supervisor.start()
    try:
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert priorities() == [min(19, ours + 5), ours]
        os.kill(supervisor.pids()[0], signal.SIGKILL)
        tick_until(supervisor, lambda: supervisor.restarts == 1)
        assert priorities() == [min(19, ours + 5), ours]
    finally:
        supervisor.kill()


def test_one_that_is_done_stays_away(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, "pass")
    supervisor.start()
    tick_until(supervisor, lambda: not supervisor.tick())
    assert (supervisor.restarts, supervisor.refusal) == (0, None)


@pytest.mark.parametrize("code", sorted(supervisors.FATAL_EXIT_CODES))
def test_what_a_restart_would_not_mend_is_not_restarted(tmp_path: Path, code: int) -> None:
    supervisor = supervise(tmp_path, f"import sys; print('why'); sys.exit({code})")
    supervisor.start()
    tick_until(supervisor, lambda: not supervisor.tick())
    assert (supervisor.restarts, supervisor.refusal) == (0, code)
    assert said(supervisor) == ["why"]


def test_one_that_fails_at_once_every_time_is_given_up(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, "import sys; sys.exit(1)")
    supervisor.start()
    tick_until(supervisor, lambda: not supervisor.tick())
    assert (supervisor.restarts, supervisor.refusal) == (supervisors.MAX_FAULTS - 1, 1)


def test_none_is_started_again_while_stopping(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, WAITS)
    supervisor.start()
    tick_until(supervisor, lambda: said(supervisor) == ["alive"])
    os.kill(supervisor.pids()[0], signal.SIGKILL)
    supervisor.stop()
    tick_until(supervisor, lambda: not supervisor.tick())
    assert supervisor.restarts == 0


def test_workers_notice_that_the_supervisor_is_gone(tmp_path: Path) -> None:
    """Their standard input ends with it, however it ends."""
    supervisor = supervise(tmp_path, WAITS)
    supervisor.start()
    tick_until(supervisor, lambda: said(supervisor) == ["alive"])
    (place,) = supervisor._slots
    assert place.process is not None
    assert place.process.stdin is not None
    place.process.stdin.close()
    tick_until(supervisor, lambda: said(supervisor) == ["alive", "orphan"])
    tick_until(supervisor, lambda: not supervisor.tick())
