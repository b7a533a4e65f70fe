"""The log: what is said often is counted, lines have an end, and files do."""

import errno
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.telemetry import log as telemetry
from holdfast.telemetry.log import MAX_LINES, MAX_MESSAGE_CHARACTERS, RateLimitHandler

FLOOD = 11_202
"""As many as a client without a key had written in 5 s."""


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("tests.log")
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)


def test_after_so_many_lines_of_a_cause_they_are_counted(logger: logging.Logger) -> None:
    kept, now = _Kept(), [0.0]
    logger.addHandler(RateLimitHandler(kept, clock=lambda: now[0]))
    for number in range(MAX_LINES + FLOOD):
        logger.warning("the host %d is hostile", number)
    logger.warning("another cause")
    assert kept.said == [f"the host {number} is hostile" for number in range(MAX_LINES)] + ["another cause"]
    now[0] = 60.0
    logger.warning("a third one")
    assert kept.said[MAX_LINES + 1 :] == [
        f"… 11 202 more in the last minute, such as: the host {MAX_LINES + FLOOD - 1} is hostile",
        "a third one",
    ]


def test_the_count_does_not_wait_for_another_line(logger: logging.Logger) -> None:
    kept = _Kept()
    handler = RateLimitHandler(kept, window=0.05)
    logger.addHandler(handler)
    for _ in range(MAX_LINES + 2):
        logger.warning("again")
    assert handler._timer is not None
    handler._timer.join()
    assert kept.said[MAX_LINES:] == ["… 2 more in the last 0.05 s, such as: again"]
    for _ in range(MAX_LINES + 3):
        logger.warning("again")
    handler.close()
    assert kept.said[-1] == "… 3 more in the last 0.05 s, such as: again", "nor for the end of the window when it ends"


_CHILD = """
import logging, sys
from pathlib import Path
from holdfast.telemetry import log
log.set_up()
log.MAX_FILE_BYTES = 20_000
log.MAX_LINES = 10_000
log.rotate_stderr(Path(sys.argv[1]))
for number in range(1_000):
    logging.getLogger("uvicorn.error").warning("line %d\\n%s", number, "x" * (3_000 if number == 999 else 0))
print("and what is not logged", flush=True)
"""


def test_a_log_file_has_times_and_an_end(tmp_path: Path) -> None:
    file = tmp_path / "api-1.log"
    with open(telemetry.open_log(file), "ab") as out:  # noqa: PTH123 — a descriptor
        subprocess.run([sys.executable, "-c", _CHILD, str(tmp_path)], stdout=out, stderr=out, check=True)
    old = tmp_path / "api-1.log.1"
    assert sorted(tmp_path.iterdir()) == [file, old]
    assert old.stat().st_size < 20_000 + 100
    assert file.stat().st_size < 20_000 + 2 * MAX_MESSAGE_CHARACTERS
    *lines, last = (old.read_text() + file.read_text()).splitlines()
    assert last == "and what is not logged"
    assert all(line.startswith("20") and "WARNING uvicorn.error: line " in line for line in lines if line[0] != " ")
    assert lines[-1].endswith("more characters)")
    assert [int(line.split("line ")[1].split("\\")[0]) for line in lines if "line " in line][-3:] == [997, 998, 999]


def test_two_processes_with_one_file_put_it_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_FILE_BYTES", 1_000)
    path = tmp_path / "crawl.log"
    handlers = [telemetry._FileHandler(path) for _ in range(2)]
    record = logging.LogRecord("x", logging.INFO, "", 0, "y" * 600, None, None)
    for handler in (handlers[0], handlers[0], handlers[1], handlers[1]):
        handler.emit(record)
    for handler in handlers:
        handler.close()
    assert path.with_name("crawl.log.1").read_text().count("\n") == 3
    assert path.read_text().count("\n") == 1


def test_a_log_file_that_a_full_disk_does_not_take_is_opened_later(
    tmp_path: Path, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, full = tmp_path / "crawl.log", telemetry.open_log, [True]

    def open_log(at: Path) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(at)

    monkeypatch.setattr(telemetry, "open_log", open_log)
    handler = telemetry._FileHandler(path)
    logger.addHandler(handler)
    logger.warning("dropped")
    assert not path.exists()
    full[0] = False
    logger.warning("kept")
    logger.warning("kept, too")
    handler.close()
    assert path.read_text() == "kept\nkept, too\n"


def test_only_a_full_disk_is_no_reason_to_stop(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        telemetry.open_log_or_nothing(tmp_path / "missing" / "crawl.log")


def test_remarks_on_a_full_disk_change_neither_the_command_nor_its_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "config", "check"], stdout=subprocess.PIPE, stderr=full, check=False
        )
        failed = subprocess.run([sys.executable, "-m", "holdfast", "bogus"], stderr=full, check=False)
    assert (done.returncode, failed.returncode) == (0, 2)
