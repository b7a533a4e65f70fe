"""A crawl as the processes of somebody who does not wish it well.

The rule: what is killed was started here. The crawls get none of the settings of whoever runs this, and so never touch his store.
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

_SERVER: Final = "postgres"
_TICK: Final = 0.02
PROGRAM: Final = (sys.executable, "-P", "-m", "holdfast")


def environment(settings: dict[str, str]) -> list[str]:
    """The front of a command that runs it with these settings and no others."""
    known = {setting.name: setting for setting in catalog()}
    names = [name for setting in known.values() for name in (setting.env, *setting.aliases)]
    unset = [word for name in names for word in ("-u", name)]
    return ["env", *unset, *(f"{known[name].env}={value}" for name, value in settings.items())]


class Victim:
    """One life of a crawl: the command that was started, and every worker below it."""

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
        """Start it. `supervised`: its workers are processes of their own; otherwise it is the worker."""
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
        """Whether it runs; a dead one is no zombie afterwards."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait so long for its end; whether it came."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def code(self) -> int | None:
        """How it ended."""
        return self._process.poll()

    def answer(self) -> dict[str, Any]:
        """What it printed, as JSON; nothing if it did not get that far."""
        try:
            said: dict[str, Any] = json.loads(self._out.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return said

    def workers(self) -> list[int]:
        """Processes that crawl."""
        if not self.alive:
            return []
        return self._below() if self._supervised else [self.pid]

    def _below(self) -> list[int]:
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        found = []
        for child in children:
            with suppress(psutil.NoSuchProcess):
                if child.name() != _SERVER and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child.pid)
        return found

    def kill(self) -> None:
        """Kill all of it at one moment: stopped first, so that nobody starts a worker anew meanwhile. After: none of it lives."""
        pids = [self.pid]
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
            pids += self._below()
        for pid in pids:
            send(pid, signal.SIGKILL)
        self._process.wait()
        while any(is_alive(pid) for pid in pids):
            time.sleep(_TICK / 4)


def send(pid: int, number: signal.Signals) -> bool:
    """Whether there was somebody to send it to."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Whether a process is there and not yet dead; a stopped one is."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_server(postmaster: int) -> None:
    """kill -9 of a database server that was started for this, with every process of it. After: none of them lives."""
    try:
        parent = psutil.Process(postmaster)
        all_of_it = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in all_of_it:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(all_of_it, timeout=30)
