"""`holdfast serve` as the benchmarks of the API run it: in a folder of its own, with settings of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from holdfast.accounts.service import AccountService
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.model.auth import SCOPES, Role
from holdfast.settings import Web

PATIENCE = 120.0


class Served:
    """A server that runs."""

    def __init__(self, data: Path, *options: str, **settings: str) -> None:
        """Start it. After: it listens."""
        self.data = data
        self._environment = environment(settings)
        self._said = data.parent / "serve.out"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                self._command("serve", "--port", "0", *options), env=self._environment, stdout=out, stderr=out
            )
        wait_until(self._listens, "it does not say where it listens")
        found = re.search(r"Serving at \S+:(\d+)", self._said.read_text())
        assert found is not None
        self.port = int(found[1])
        store = embedded.ensure_running(data)
        self.pid, self.postmaster = self._process.pid, store.pid
        database = Database(store.url())
        self._accounts = AccountService(database, Web())

    def token(self, name: str, role: Role) -> str:
        """The key of a new user."""
        user, _ = self._accounts.add(name, role, None, actor="benchmark")
        return self._accounts.create_key(user.id, "benchmark", SCOPES[role], None, actor="benchmark")[1]

    def children(self, what: str) -> list[psutil.Process]:
        """Processes of it that are a `worker`, or a `front`."""
        found = []
        for child in psutil.Process(self._process.pid).children():
            with suppress(psutil.Error):
                if what in child.cmdline():
                    found.append(child)
        return found

    def stop(self) -> float:
        """Ask it to stop, and wait; how long that took."""
        began = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
        return time.monotonic() - began

    def end(self) -> None:
        """After: nothing of it runs, whatever happened."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        embedded.stop(self.data)

    def verify(self) -> list[str]:
        """What `holdfast verify` finds; nothing: it is clean."""
        done = subprocess.run(
            self._command("verify", "--json"), env=self._environment, stdout=subprocess.PIPE, check=False
        )
        try:
            checks = json.loads(done.stdout)["checks"]
        except ValueError:
            return [f"it ended with {done.returncode}"]
        return [f"{one['invariant']} {one['check']}: {one['faults']} faults" for one in checks if one["faults"]]

    def complaints(self) -> Counter[str]:
        """What the processes of the API have complained of, and how often: what they say after the time, and how tracebacks end."""
        found: Counter[str] = Counter()
        for path in sorted((self.data / "logs").glob("api-*.log")):
            for line in path.read_text("utf-8", "replace").splitlines():
                if line[:4].isdigit():
                    found.update([line[24:]] if " INFO " not in line[:32] else [])
                elif line and not line[0].isspace() and not line.startswith(("Traceback", "Interrupted; ")):
                    found[line] += 1
        return found

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", "--data", str(self.data), *words]

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            raise SystemExit(f"holdfast serve ended:\n{self._said.read_text()}")
        return "Serving at" in self._said.read_text()


@contextmanager
def serving(*options: str, **settings: str) -> Iterator[Served]:
    """A server with a store of its own, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    try:
        served = Served(folder / "data", *options, **settings)
        try:
            yield served
        finally:
            served.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(settings: dict[str, str]) -> dict[str, str]:
    """Ours, without anybody else's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "ENABLE_"))}
    return kept | {f"HOLDFAST_{name}": value for name, value in settings.items()}


def wait_until(condition: Callable[[], object], otherwise: str) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"After {PATIENCE:.0f} s {otherwise}; is the machine too busy?")
        time.sleep(0.05)
