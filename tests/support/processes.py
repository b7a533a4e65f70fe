"""Worker processes as a test drives them: real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """`tests.support.worker` in a process of its own."""

    def __init__(self, url: str, name: str, *flags: str) -> None:
        command = [sys.executable, "-m", "tests.support.worker", url, name, *flags]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name: str = self._read()["name"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, do: str, **order: object) -> None:
        """Give an order without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **order: object) -> Any:
        """Give an order and wait for the answer."""
        self.send(do, **order)
        return self._read()

    def answer(self) -> Any:
        """The answer to an order that was sent before."""
        return self._read()

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        while psutil.Process(self._process.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, also of a frozen one."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the worker ended with {self._process.poll()}"
        return json.loads(line)
