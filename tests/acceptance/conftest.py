"""Fixtures of the acceptance tests, and the record of those that have passed at this commit."""

import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.acceptance.holdfast import Holdfast
from tests.acceptance.requirements import missing
from tests.prove.ledger import Ledger
from tests.support.servers import open_folder

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".prove"
LEDGER = Ledger(RESULTS / "acceptance.jsonl")


def commit() -> str | None:
    """The commit whose files are all as it has them, else none: then nothing is skipped."""
    git = ["git", "-C", str(ROOT)]
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    if changed.returncode or changed.stdout.strip():
        return None
    return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session")
def at_commit() -> str | None:
    """The commit that is tested."""
    return commit()


@pytest.fixture(autouse=True)
def once_per_commit(request: pytest.FixtureRequest, at_commit: str | None) -> None:
    """Skip a scenario that has passed at this commit; `.prove/acceptance.jsonl` keeps them."""
    if packages := missing():
        pytest.skip(f"apt-get install {' '.join(packages)}")
    if at_commit and f"{at_commit} {request.node.nodeid}" in LEDGER.read():
        pytest.skip("passed at this commit already")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and (at := commit()):
        LEDGER.write({"name": f"{at} {item.nodeid}", "took": round(call.duration, 1)})
    return report


@pytest.fixture
def results() -> Path:
    """The folder that keeps what the scenarios print."""
    folder = RESULTS / "acceptance"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def report(request: pytest.FixtureRequest, results: Path, figure: Callable[[str], None]) -> Callable[[str], None]:
    """Print a text at the end of the run, and keep it in `.prove/acceptance/`."""

    def write(text: str) -> None:
        (results / f"{request.node.name}.txt").write_text(text + "\n")
        figure(text)

    return write


@pytest.fixture
def holdfast() -> Iterator[Holdfast]:
    """The program with an empty data folder of its own; nothing of it runs after the test."""
    with open_folder() as folder:
        made = Holdfast(folder / "crawl")
        try:
            yield made
        finally:
            made.end()
