"""A simulated web as a child process.

The rule: it ends when its parent ends, in whatever way.
"""

import http.client
import json
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

from holdfast.errors import HoldfastError
from holdfast.testing.simweb.access_log import Hit, read_file
from holdfast.testing.simweb.server import TOKEN_HEADER
from holdfast.testing.simweb.site import ExpectedPage, expected
from holdfast.testing.simweb.spec import Address, Web

_TIMEOUT_SECONDS: Final = 60.0


class WebProcess:
    """A web process as a context manager; it serves until the end."""

    def __init__(self, web: Web, *, log: Path | None = None, port: int = 0) -> None:
        self.web = web
        self.log_path: Path
        self.address: Address
        self._given_log, self._port, self._token = log, port, ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """After: the web is served. Raises HoldfastError on failure."""
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-simweb-")
        folder = Path(self._folder.name)
        self.log_path = self._given_log or folder / "access.log"
        spec = folder / "web.json"
        spec.write_text(self.web.as_json(), encoding="utf-8")
        command = [sys.executable, "-m", "holdfast.testing.simweb", "--spec", str(spec), "--log", str(self.log_path)]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port), "--held"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None  # noqa: S101
        readable, _, _ = select.select([self._process.stdout], [], [], _TIMEOUT_SECONDS)
        text = self._process.stdout.readline() if readable else ""
        if not text:
            self.kill()
            raise HoldfastError("The simulated web did not start.")
        ready = json.loads(text)
        self.address, self._token = Address(tuple(ready["ports"]), ready["by_port"]), ready["token"]
        return self

    @property
    def pid(self) -> int:
        """The pid of the process; 0 if it does not run."""
        return self._process.pid if self._process else 0

    @property
    def port(self) -> int:
        """The port, or that of the first site."""
        return self.address.ports[0]

    @property
    def urls(self) -> list[str]:
        """The home page of every site."""
        return [self.url(number) for number in range(self.web.sites)]

    def url(self, site: int = 0) -> str:
        """The home page of a site."""
        return f"{self.address.origin(site)}/"

    def expected(self, site: int = 0, *, max_redirects: int = 5) -> list[ExpectedPage]:
        """The expected pages of a site, with the URLs under which they are served."""
        return list(expected(self.web, site, self.address.origin(site), max_redirects=max_redirects))

    def log(self) -> list[Hit]:
        """All requests that have ended, in the order of their start."""
        if self._process is not None and self._process.poll() is None:
            self.control("flush")
        return read_file(self.log_path)

    def stats(self, *, paths: bool = False) -> dict[str, Any]:
        """Requests by host, requests in progress, and with *paths* the requests by path."""
        return self.control("stats", **({"paths": "1"} if paths else {}))

    def pause(self, seconds: float) -> None:
        """After: requests within the next *seconds* get their response after these."""
        self.control("pause", seconds=str(seconds))

    def next_generation(self) -> int:
        """After: changing pages have changed. Returns the new generation."""
        return int(self.control("generation")["generation"])

    def control(self, action: str, **values: str) -> dict[str, Any]:
        """Send a control command to the process. Raises HoldfastError if it fails."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", f"/__control__/{action}?{urlencode(values)}", headers={TOKEN_HEADER: self._token})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise HoldfastError(f"The simulated web refused the command {action!r}: HTTP {answer.status}.")
        result: dict[str, Any] = json.loads(text)
        return result

    def stop(self) -> None:
        """After: the process has shut down and its log is complete; a temporary log is deleted."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101
            self._process.stdin.close()  # the process shuts down at the end of its standard input
            try:
                self._process.wait(_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """After: the process is killed (SIGKILL); up to 50 ms of its log may be lost."""
        if self._process is not None:
            self._process.kill()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._process is not None:
            self._process.wait(_TIMEOUT_SECONDS)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
