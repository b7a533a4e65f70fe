"""The command line as tests run it: in this process where a table of cases is tried, as a program where that matters."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.app import run
from holdfast.db.connection import Database


@dataclass(frozen=True)
class Answer:
    """How an invocation ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refused(self, code: int) -> str:
        """The one sentence of a refusal; fails if it was none."""
        assert (self.code, self.out) == (code, ""), self
        assert "Traceback" not in self.err
        (line,) = self.err.splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")


class Keyboard(io.StringIO):
    """Standard input that is a terminal, with somebody typing."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Cli:
    """`holdfast` on a test's database, in an empty folder, without anybody else's settings."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Answer:
        """Run in this process. Text on `stdin` is typed on a terminal, bytes come from a pipe."""
        given = stdin or b""
        keyboard = Keyboard(given) if isinstance(given, str) else io.TextIOWrapper(io.BytesIO(given))
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", keyboard)
            code = run(arguments)
        captured = self.capsys.readouterr()
        return Answer(code, captured.out, captured.err)


def program(*arguments: str, stdin: bytes = b"", **options: Any) -> Answer:
    """Run as a process of its own, in the present environment and folder."""
    done = subprocess.run(command(*arguments), input=stdin, capture_output=True, timeout=120, check=False, **options)
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: str) -> list[str]:
    """What to start for these arguments."""
    return [sys.executable, "-m", "holdfast", *arguments]


def only_ours(monkeypatch: pytest.MonkeyPatch, folder: Path, database: Database | None) -> None:
    """Make `folder` current, and take away every setting that the environment holds, but for the database's address."""
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "ENABLE_", "DOMAIN_STATS_")) or name in {"FORCE_COLOR", "NO_COLOR", "COLUMNS"}:
            monkeypatch.delenv(name)
    if database:
        monkeypatch.setenv("HOLDFAST_DATABASE_URL", database.url)
    monkeypatch.chdir(folder)
