"""Start, kill and stop the API's server in the proofs: `holdfast serve`, or one API process on a socket that the proof keeps open.

The rule: only processes that were started here are killed, and they inherit no Holdfast settings from the environment.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

import httpx
import psutil

from holdfast.api.server import listen
from holdfast.testing.torture.process import PROGRAM, CrawlProcess, environment, is_alive, send
from holdfast.testing.torture.sandbox import Sandbox
from tests.support.api import PLAIN

PATIENCE: Final = 60.0
MANY: Final = str(1_000_000)
SETTINGS: Final = {
    "web.anonymous_limit": MANY,
    "web.user_limit": MANY,
    "web.admin_limit": MANY,
    "web.seed_limit": MANY,
    "fetch.allow_private": "true",
    "domains.crawl_delay": "0.05s",
    "worker.idle": "0.2s",
}


def answers(client: httpx.Client) -> bool:
    """Whether the server answers within a second."""
    try:
        return client.get("/health", timeout=1.0).status_code == 200
    except httpx.TransportError:
        return False


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    """Return when the condition holds; fail with this sentence after PATIENCE seconds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"{otherwise}, for {PATIENCE:.0f} s")
        time.sleep(0.01)


class Front:
    """One API process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    def wait(self) -> bool:
        """Wait for its end; False: it still runs after PATIENCE seconds."""
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """Ask it to stop."""
        self._process.terminate()

    def kill(self) -> None:
        """kill -9. After: it is gone."""
        self._process.kill()
        self._process.wait()


class Door:
    """A listening socket that stays open while servers come and go, as that of `holdfast serve` does."""

    def __init__(self, sandbox: Sandbox, program: Sequence[str] = PROGRAM) -> None:
        self._sandbox, self._program = sandbox, program
        self._listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    @contextmanager
    def serving(self, *options: str) -> Iterator[Front]:
        """Run a server that answers; it is killed at the end."""
        number = self._listener.fileno()
        words = ["--data", str(self._sandbox.data), "front", "--listener", str(number), "--api-only", *options]
        with (self._sandbox.folder / "front.log").open("ab") as log:
            front = Front(
                subprocess.Popen(
                    [*environment(SETTINGS | self._sandbox.settings()), *self._program, *words],
                    cwd=self._sandbox.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[number],
                )
            )
        try:
            with httpx.Client(base_url=self.url, verify=PLAIN) as client:
                wait_for(lambda: front.code is not None or answers(client), "the server does not answer")
            if front.code is not None:
                raise AssertionError(f"the server ended with {front.code}:\n{self._sandbox.logs()}")
            yield front
        finally:
            front.kill()


class Served:
    """`holdfast serve`, and its API process."""

    def __init__(self, sandbox: Sandbox, *options: str) -> None:
        """Start it. Before: the sandbox is entered."""
        self._victim = CrawlProcess(
            ["--data", str(sandbox.data), "serve", "--port", "0", *options],
            settings=SETTINGS | sandbox.settings(),
            folder=sandbox.folder,
            supervised=True,
            name="serve",
        )
        self._log = sandbox.folder / "serve.log"
        self._sandbox = sandbox
        self.url = ""

    def __enter__(self) -> Self:
        self.until(self._said, "it does not say where it listens")
        with httpx.Client(base_url=self.url, verify=PLAIN) as client:
            self.until(lambda: answers(client), "it does not answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._victim.kill()

    def _said(self) -> bool:
        found = re.findall(r"Serving at (\S+)", self._log.read_text("utf-8"))
        self.url = found[-1] if found else ""
        return bool(found)

    def until(self, condition: Callable[[], object], otherwise: str) -> None:
        """Return when the condition holds; fail after PATIENCE seconds, or if the server has ended."""
        wait_for(lambda: condition() or not self._victim.alive, otherwise)
        if not self._victim.alive:
            raise AssertionError(f"serve ended with {self._victim.code}:\n{self._sandbox.logs()}")

    def fronts(self) -> list[int]:
        """Ids of the API processes that run."""
        return [pid for pid in self._victim.workers() if _is_front(pid)]

    def kill_front(self) -> bool:
        """Kill the API process with SIGKILL; whether there was one. After: it is gone."""
        fronts = self.fronts()
        landed = sum(send(pid, signal.SIGKILL) for pid in fronts) > 0
        while any(is_alive(pid) for pid in fronts):
            time.sleep(0.002)
        return landed

    def everybody(self) -> list[int]:
        """Ids of all its processes that run, the supervisor first."""
        return [self._victim.pid, *self._victim.workers()]

    def said(self) -> str:
        """Everything it has printed."""
        return self._log.read_text("utf-8")

    def terminate(self) -> None:
        """Ask it to stop."""
        os.kill(self._victim.pid, signal.SIGTERM)

    def end(self) -> int | None:
        """Wait for its end and return the exit code; None: it still runs after PATIENCE seconds."""
        self._victim.wait(PATIENCE)
        return self._victim.code


def _is_front(pid: int) -> bool:
    with suppress(psutil.Error):
        return "front" in psutil.Process(pid).cmdline()
    return False
