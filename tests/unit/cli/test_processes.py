"""The processes that a command starts."""

import subprocess
from pathlib import Path

import pytest

from holdfast.cli.command_context import CommandContext
from holdfast.cli.processes import holdfast_command
from holdfast.testing.torture.process import PROGRAM


@pytest.mark.parametrize("kind", ["supervised", "torture"])
def test_code_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("typer", "psycopg", "logging"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the current folder was run')\n")
    command = (
        holdfast_command(CommandContext(data=tmp_path / "data"), "--version")
        if kind == "supervised"
        else [*PROGRAM, "--version"]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("holdfast ")
