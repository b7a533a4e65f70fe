"""A proxy in a process of its own, held by whoever started it: told how to behave, killed, frozen, started again at its place.

The rule: its address is the same as long as its holder lives, and while it does not run, connections to it are refused.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.simweb.proxy import Behaviour, behaviour, reserve
from holdfast.simweb.proxy_log import read

_PATIENCE: Final = 60.0


class ProxyProcess:
    """A context manager; while it is open, the proxy runs unless it was killed."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        protocol: str = "http",
        user: str | None = None,
        password: str | None = None,
        hosts: Mapping[str, str] | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        """In *folder* it keeps NAME.log. *hosts*: see `Proxy`. *certificate*: the file and its key, of a proxy that speaks https."""
        self.name, self.protocol, self.user = name, protocol, user
        self.log_path = folder / f"{name}.log"
        self._folder, self._password, self._hosts, self._certificate = folder, password, dict(hosts or {}), certificate
        self._behaviour = Behaviour()
        self._place: socket.socket | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """After: it runs, where it ran before, and behaves as it was told last. Raises HoldfastError if it cannot."""
        if self._place is None:
            self._place = reserve()
        command = [sys.executable, "-m", "holdfast.simweb.proxy", "--held", "--protocol", self.protocol]
        command += ["--port", str(self.address[1]), "--log", str(self.log_path)]
        command += ["--behave", self._behaviour.what, "--seconds", str(self._behaviour.seconds)]
        command += ["--status", str(self._behaviour.status)]
        command += [f"--host={name}={to}" for name, to in self._hosts.items()]
        if self.user is not None:
            secret = self._folder / f"{self.name}.password"  # arguments of a process can be read by everybody
            secret.touch(0o600)
            secret.write_text(self._password or "", "utf-8")
            command += ["--user", self.user, "--password-file", str(secret)]
        if self._certificate is not None:
            command += ["--certificate", str(self._certificate[0]), "--key", str(self._certificate[1])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self._answer():
            self.kill()
            self.stop()
            raise HoldfastError(f"The proxy {self.name} did not start.")
        return self

    @property
    def pid(self) -> int:
        """Of the process; 0 if it does not run."""
        return self._process.pid if self._process else 0

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, or did. Before: it was started once."""
        assert self._place is not None  # noqa: S101
        host, port = self._place.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """As people write it, with its password."""
        login = "" if self.user is None else f"{quote(self.user, '')}:{quote(self._password or '', '')}@"
        return f"{self.protocol}://{login}{self.address[0]}:{self.address[1]}"

    def behave(self, what: str, *, seconds: float = 0.0, status: int = 503) -> None:
        """After: it behaves so (see `proxy.What`), from its next start on if it does not run. Before: it is not frozen."""
        self._behaviour = behaviour(what, seconds=seconds, status=status)
        if self._process is None:
            return
        assert self._process.stdin is not None  # noqa: S101
        print(json.dumps(self._behaviour._asdict()), file=self._process.stdin, flush=True)
        said = self._answer()
        if said != {}:
            raise HoldfastError(f"The proxy {self.name} does not {what}: {said}")

    def log(self) -> list[dict[str, Any]]:
        """Every request that came until now, from all its lives. See `proxy_log.read`."""
        return read(self.log_path)

    def kill(self) -> None:
        """After: it is gone at once (SIGKILL), also if it was frozen. Its address stays its own."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE)
        self._clean_up()

    def freeze(self) -> None:
        """After: it does nothing any more (SIGSTOP), and the kernel still takes connections for it. Before: it runs."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """After: it goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """After: it has ended in order, and its address is anybody's."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101
            self._process.stdin.close()  # it ends by that
            self.thaw()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        self._clean_up()
        if self._place is not None:
            self._place.close()
            self._place = None

    def _answer(self) -> Any:
        """What the process says; None: nothing, as it has ended."""
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        readable, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        said = self._process.stdout.readline() if readable else ""
        return json.loads(said) if said else None

    def _clean_up(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None
