"""`holdfast serve`: which processes it starts."""

import os

import pytest

from holdfast.cli import serve
from holdfast.cli.serve import ARROW_POOL, MALLOC_ARENAS, WORKER_NICENESS
from holdfast.crawler.supervisor import Supervisor
from tests.support.cli import Cli


@pytest.mark.parametrize(
    ("options", "expected", "words"),
    [
        (("--workers", "2"), ["worker", "worker", "front with background", "front"], "with 2 workers;"),
        (
            ("--workers", "3", "--api-only"),
            ["front", "front", "front"],
            "with 3 processes of the API alone: no workers, no background;",
        ),
        (("--api-only",), ["front"], "with 1 process of the API alone: no workers, no background;"),
    ],
    ids=["all", "the API alone", "one process"],
)
def test_one_of_the_processes_that_answer_has_the_background(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: list[str], words: str
) -> None:
    started: list[tuple[str, int]] = []

    class Recorded(Supervisor):
        def start(self) -> None:
            for place in self._slots:
                command = self._command(place.number)
                kind = "worker" if "worker" in command else "front"
                kind += " with background" if kind == "front" and "--api-only" not in command else ""
                started.append((kind, self._nice(place.number)))

    monkeypatch.setattr(serve, "Supervisor", Recorded)
    monkeypatch.setenv("HOLDFAST_WEB_PROCESSES", "2")
    done = cli("serve", "--port", "0", "--no-auth", *options)
    assert done.code == 1
    assert "exit at startup" in done.err
    assert words in done.err
    assert [kind for kind, _ in started] == expected
    assert [nice for _, nice in started] == [WORKER_NICENESS if kind == "worker" else 0 for kind in expected]


@pytest.mark.parametrize("chosen", [None, "jemalloc"], ids=["default", "the operator's"])
def test_processes_get_allocators_that_return_memory(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    inherited: dict[str, str] = {}

    class Recorded(Supervisor):
        def start(self) -> None:
            inherited.update(os.environ)

    monkeypatch.setattr(serve, "Supervisor", Recorded)
    for name in ("MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL"):
        monkeypatch.setenv(name, chosen or "")
        if chosen is None:
            monkeypatch.delenv(name)
    cli("serve", "--port", "0", "--no-auth", "--api-only")
    assert inherited["MALLOC_ARENA_MAX"] == (chosen or MALLOC_ARENAS)
    assert inherited["ARROW_DEFAULT_MEMORY_POOL"] == (chosen or ARROW_POOL)
