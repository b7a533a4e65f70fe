"""The tutorial, followed by a shell in an empty folder: its commands are read from the page, and nothing but the ports is changed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import open_folder

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
_PORTS = ("8950", "8080")


def commands() -> str:
    """All blocks of shell, in their order."""
    return "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that the database's user may pass through."""
    with open_folder() as made:
        yield made


def test_the_tutorial_does_what_it_says(folder: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl, which the tutorial asks the server with")
    script = commands()
    for port in _PORTS:
        script = re.sub(rf"\b{port}\b", free_port(), script)
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment = own | {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    assert "40 pages" in said
    assert len((folder / "pages.jsonl").read_text().splitlines()) == 40
    assert "checks: all passed." in said
    assert "Made job daily" in said
    assert "User: admin  Password: " in said
    assert '"status":"ready"' in said
    assert "There is no active alert." in said
    assert re.search(r"Restored \S+-full into restored in .* \(generation \d+\)", said)
    assert (folder / "restored" / "archive").is_dir()
    assert (folder / ".holdfast" / "archive").is_dir()
    assert said.rstrip().endswith("The database server is stopped.")
