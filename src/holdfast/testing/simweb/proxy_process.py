"""A proxy as a child process, which can be reconfigured, killed, frozen and restarted at the same address.

The rule: its address stays the same for the lifetime of this object, and while it does not run, connections to it are refused.
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
from holdfast.testing.simweb.proxy import Behaviour, make_behaviour, reserve_port
from holdfast.testing.simweb.proxy_log import read_log

_TIMEOUT_SECONDS: Final = 60.0


class ProxyProcess:
    """A proxy process as a context manager; it runs until the end unless it is killed."""

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
        """*folder*: for NAME.log. *hosts*: see `Proxy`. *certificate*: the certificate and key files of an https proxy."""
        self.name, self.protocol, self.user = name, protocol, user
        self.log_path = folder / f"{name}.log"
        self._folder, self._password, self._hosts, self._certificate = folder, password, dict(hosts or {}), certificate
        self._behaviour = Behaviour()
        self._reserved: socket.socket | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """After: it runs at its address with the last behaviour that was set. Raises HoldfastError on failure."""
        if self._reserved is None:
            self._reserved = reserve_port()
        command = [sys.executable, "-m", "holdfast.testing.simweb.proxy", "--held", "--protocol", self.protocol]
        command += ["--port", str(self.address[1]), "--log", str(self.log_path)]
        command += ["--behave", self._behaviour.mode, "--seconds", str(self._behaviour.seconds)]
        command += ["--status", str(self._behaviour.status)]
        command += [f"--host={name}={to}" for name, to in self._hosts.items()]
        if self.user is not None:
            secret = self._folder / f"{self.name}.password"  # arguments of a process are readable by all users
            secret.touch(0o600)
            secret.write_text(self._password or "", "utf-8")
            command += ["--user", self.user, "--password-file", str(secret)]
        if self._certificate is not None:
            command += ["--certificate", str(self._certificate[0]), "--key", str(self._certificate[1])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self._read_reply():
            self.kill()
            self.stop()
            raise HoldfastError(f"The proxy {self.name} did not start.")
        return self

    @property
    def pid(self) -> int:
        """The pid of the process; 0 if it does not run."""
        return self._process.pid if self._process else 0

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port. Before: it was started once."""
        assert self._reserved is not None  # noqa: S101
        host, port = self._reserved.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """Its URL, with user and password."""
        login = "" if self.user is None else f"{quote(self.user, '')}:{quote(self._password or '', '')}@"
        return f"{self.protocol}://{login}{self.address[0]}:{self.address[1]}"

    def behave(self, mode: str, *, seconds: float = 0.0, status: int = 503) -> None:
        """Set its behaviour (see `proxy.ProxyMode`). Before: it is not frozen. After: the behaviour is in effect, or will be from the next
        start if it does not run."""
        self._behaviour = make_behaviour(mode, seconds=seconds, status=status)
        if self._process is None:
            return
        assert self._process.stdin is not None  # noqa: S101
        print(json.dumps(self._behaviour._asdict()), file=self._process.stdin, flush=True)
        reply = self._read_reply()
        if reply != {}:
            raise HoldfastError(f"The proxy {self.name} does not {mode}: {reply}")

    def log(self) -> list[dict[str, Any]]:
        """All requests so far, of all starts. See `proxy_log.read_log`."""
        return read_log(self.log_path)

    def kill(self) -> None:
        """After: it is killed (SIGKILL), also if it was frozen. Its address stays reserved."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_TIMEOUT_SECONDS)
        self._clean_up()

    def freeze(self) -> None:
        """Before: it runs. After: it is stopped (SIGSTOP), and the kernel still accepts connections for it."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """After: it continues (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """After: it has shut down, and its address is released."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101
            self._process.stdin.close()  # the process shuts down at the end of its standard input
            self.thaw()
            try:
                self._process.wait(_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._clean_up()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _read_reply(self) -> Any:
        """Read a reply of the process; None: it has ended."""
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        readable, _, _ = select.select([self._process.stdout], [], [], _TIMEOUT_SECONDS)
        reply = self._process.stdout.readline() if readable else ""
        return json.loads(reply) if reply else None

    def _clean_up(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None
