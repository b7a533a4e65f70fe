"""Mistakes and mishaps of a person who crawls, in this process: each ends with its exit code, the cause and the next step.

`make accept` runs all of them, and those that need processes and real time-outs, as a person would.
"""

from pathlib import Path

import pytest

from tests.support.crawls import Crawls
from tests.support.mishaps import MISHAPS, Mishap, Town, town


def problem_with(mishap: Mishap, crawls: Crawls, made: Town, capsys: pytest.CaptureFixture[str]) -> str | None:
    """How it ended otherwise than it has to; None: as it has to."""
    code = crawls.command(*mishap.command(made), **mishap.environment(made))
    captured = capsys.readouterr()
    said = captured.err + captured.out
    missing = [words for words in mishap.says if words not in said]
    if (code, missing) == (mishap.code, []) and "Traceback" not in said:
        return None
    return f"{mishap.name}: {code}, without {missing}\n{said}"


def test_every_mishap_names_its_cause_and_the_next_step(
    crawls: Crawls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One database for all of them, as they are on different hosts: a test for each would take most of its time to make one."""
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.01, 0.01))
    crawls.set(fetch={"allow_private": False})
    with town(tmp_path) as made:
        problems = [problem_with(mishap, crawls, made, capsys) for mishap in MISHAPS if not mishap.slow]
    assert [problem for problem in problems if problem] == []
