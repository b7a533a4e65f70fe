"""Processes of a crawl under test: start, kill, freeze.

The rule: only processes that were started here are killed. The crawls inherit none of the caller's settings, and so never touch the
caller's store.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from holdfast.settings import catalog

_SERVER_NAME: Final = "postgres"
_POLL_SECONDS: Final = 0.02
PROGRAM: Final = (sys.executable, "-P", "-m", "holdfast")


def environment(settings: dict[str, str]) -> list[str]:
    """The prefix of a command that runs it with these settings and no others."""
    known = {setting.name: setting for setting in catalog()}
    names = [name for setting in known.values() for name in (setting.env, *setting.aliases)]
    unset = [word for name in names for word in ("-u", name)]
    return ["env", *unset, *(f"{known[name].env}={value}" for name, value in settings.items())]


class CrawlProcess:
    """One run of the crawl command, with all worker processes below it."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        settings: dict[str, str],
        folder: Path,
        supervised: bool = False,
        name: str = "crawl",
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """Start the command. `supervised`: its workers are separate processes; otherwise it is the worker itself."""
        self._supervised = supervised
        self._out = folder / f"{name}.out"
        command = [*environment(settings), *program, *arguments]
        with self._out.open("wb") as out, (folder / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs; a dead process is reaped."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for its end; returns whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def code(self) -> int | None:
        """The exit code; None: it runs."""
        return self._process.poll()

    def output_json(self) -> dict[str, Any]:
        """Its standard output, parsed as JSON; empty if there is none."""
        try:
            printed: dict[str, Any] = json.loads(self._out.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return printed

    def workers(self) -> list[int]:
        """The pids of the worker processes."""
        if not self.alive:
            return []
        return self._descendants() if self._supervised else [self.pid]

    def _descendants(self) -> list[int]:
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        found = []
        for child in children:
            with suppress(psutil.NoSuchProcess):
                if child.name() != _SERVER_NAME and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child.pid)
        return found

    def kill(self) -> None:
        """Kill the command and all its workers. The command is stopped first, so that it does not restart a worker meanwhile. After:
        none of the processes lives."""
        pids = [self.pid]
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
            pids += self._descendants()
        for pid in pids:
            send(pid, signal.SIGKILL)
        self._process.wait()
        while any(is_alive(pid) for pid in pids):
            time.sleep(_POLL_SECONDS / 4)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; returns whether the process exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie; a stopped process is alive."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_server(postmaster: int) -> None:
    """Kill a database server with all its processes (SIGKILL). After: none of them lives."""
    try:
        parent = psutil.Process(postmaster)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=30)
