"""The program `holdfast` as a person uses it: commands in a folder of its own, with the bundled database."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PATIENCE: Final = 280.0
"""Seconds that a crawl may take; one that takes longer does not end by itself."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str
    began: float
    took: float

    @property
    def said(self) -> str:
        """All that it printed."""
        return f"{self.err}{self.out}"


class Running:
    """A command that runs in a process group of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._began, self._clock = time.time(), time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Wait until it ends. TimeoutExpired after `patience` seconds, when it has been killed."""
        try:
            out, err = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"it did not end within {patience:.0f} s; it said:\n{err}{out}") from None
        return Ended(self.process.returncode, out, err, self._began, time.monotonic() - self._clock)


class Holdfast:
    """An installation with a data folder."""

    def __init__(self, folder: Path, program: Path | None = None) -> None:
        """*program*: the `holdfast` of another version; None: that of this one."""
        folder.mkdir(parents=True)
        folder.chmod(0o755)  # the database's own user passes through it
        self.folder = folder
        self._program = program or Path(sys.executable).with_name("holdfast")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") and name != "COLUMNS"
        }

    def start(self, *arguments: str, **settings: str) -> Running:
        """Start a command; `settings` are set by the environment, as `claims_batch="1"`."""
        named = {f"HOLDFAST_{name.upper()}": value for name, value in settings.items()}
        command = [str(self._program), *arguments]
        return Running(command, self.folder, {**self._environment, **named})

    def __call__(self, *arguments: str, **settings: str) -> Ended:
        """Run a command to its end."""
        return self.start(*arguments, **settings).wait()

    def crawl(self, *arguments: str, **settings: str) -> Ended:
        """Crawl loopback addresses without a delay."""
        return self("crawl", *arguments, "--allow-private", "--delay", "0", "--concurrency", "32", **settings)

    def exported(self, what: str, *options: str) -> list[dict[str, Any]]:
        """The rows of an export."""
        done = self("export", what, "-", *options)
        assert done.code == 0, done.said
        return [json.loads(line) for line in done.out.splitlines()]

    def pages(self) -> list[str]:
        """The URLs that were answered with a page."""
        return [row["url"] for row in self.exported("urls") if row["state"] == "done"]

    def verify(self) -> None:
        """Check that nothing is lost, doubled or miscounted."""
        done = self("verify")
        assert done.code == 0, done.said

    def end(self) -> None:
        """Stop the database."""
        self("db", "stop")
