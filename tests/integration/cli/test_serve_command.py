"""`holdfast serve`: which processes it starts."""

import pytest

from holdfast.cli import background
from holdfast.cli.background import COURTESY
from holdfast.engine.supervisor import Supervisor
from tests.support.cli import Cli


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--workers", "2"), ["worker", "worker", "front with background", "front"]),
        (("--workers", "3", "--api-only"), ["front", "front", "front"]),
    ],
    ids=["all", "the API alone"],
)
def test_one_of_the_processes_that_answer_has_the_background(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: list[str]
) -> None:
    started: list[tuple[str, int]] = []

    class Recorded(Supervisor):
        def start(self) -> None:
            for place in self._places:
                words = self._command(place.number)
                kind = "worker" if "worker" in words else "front"
                kind += " with background" if kind == "front" and "--api-only" not in words else ""
                started.append((kind, self._nice(place.number)))

    monkeypatch.setattr(background, "Supervisor", Recorded)
    monkeypatch.setenv("HOLDFAST_WEB_PROCESSES", "2")
    done = cli("serve", "--port", "0", "--no-auth", *options)
    assert done.code == 1
    assert "as soon as they begin" in done.err
    assert [kind for kind, _ in started] == expected
    assert [nice for _, nice in started] == [COURTESY if kind == "worker" else 0 for kind in expected]
