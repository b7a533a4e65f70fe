"""A simulated web in a process of its own, held by whoever started it.

The rule: it ends when its holder ends, however that happens.
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
from holdfast.simweb.log import Hit, read_file
from holdfast.simweb.plan import Address, Web
from holdfast.simweb.server import TOKEN_HEADER
from holdfast.simweb.site import ExpectedPage, expected

_PATIENCE: Final = 60.0


class WebProcess:
    """A context manager; while it is open, the web is served."""

    def __init__(self, web: Web, *, log: Path | None = None, port: int = 0) -> None:
        self.web = web
        self.log_path: Path
        self.address: Address
        self._asked_log, self._port, self._token = log, port, ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """After: the web answers. Raises HoldfastError if it cannot."""
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-simweb-")
        folder = Path(self._folder.name)
        self.log_path = self._asked_log or folder / "access.log"
        spec = folder / "web.json"
        spec.write_text(self.web.as_json(), encoding="utf-8")
        command = [sys.executable, "-m", "holdfast.simweb", "--spec", str(spec), "--log", str(self.log_path)]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port), "--held"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None  # noqa: S101
        readable, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        said = self._process.stdout.readline() if readable else ""
        if not said:
            self.kill()
            raise HoldfastError("The simulated web did not start.")
        ready = json.loads(said)
        self.address, self._token = Address(tuple(ready["ports"]), ready["by_port"]), ready["token"]
        return self

    @property
    def pid(self) -> int:
        """Of the process that serves; 0 if none does."""
        return self._process.pid if self._process else 0

    @property
    def port(self) -> int:
        """Where it listens, or the first site does."""
        return self.address.ports[0]

    @property
    def urls(self) -> list[str]:
        """The home page of every site."""
        return [self.url(number) for number in range(self.web.sites)]

    def url(self, site: int = 0) -> str:
        """The home page of a site."""
        return f"{self.address.origin(site)}/"

    def expected(self, site: int = 0, *, max_redirects: int = 5) -> list[ExpectedPage]:
        """The truth about a site, with its URLs as they are served here."""
        return list(expected(self.web, site, self.address.origin(site), max_redirects=max_redirects))

    def log(self) -> list[Hit]:
        """Every request that ended until now, in the order in which they began."""
        if self._process is not None and self._process.poll() is None:
            self.control("flush")
        return read_file(self.log_path)

    def stats(self, *, paths: bool = False) -> dict[str, Any]:
        """Requests by host, those under way, and with *paths* how often each path was asked for."""
        return self.control("stats", **({"paths": "1"} if paths else {}))

    def pause(self, seconds: float) -> None:
        """After: requests that come in the next *seconds* are answered when these are over."""
        self.control("pause", seconds=str(seconds))

    def next_generation(self) -> int:
        """After: pages that change have changed. Which generation it is now."""
        return int(self.control("generation")["generation"])

    def control(self, action: str, **values: str) -> dict[str, Any]:
        """Tell the process something. Raises HoldfastError if it does not do it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("GET", f"/__control__/{action}?{urlencode(values)}", headers={TOKEN_HEADER: self._token})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise HoldfastError(f"The simulated web does not know how to {action}.")
        done: dict[str, Any] = json.loads(said)
        return done

    def stop(self) -> None:
        """After: the process has ended in order and its log is complete; a log of its own is gone."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101
            self._process.stdin.close()  # it ends by that
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """After: the process is gone at once (SIGKILL); up to 50 ms of its log may be lost."""
        if self._process is not None:
            self._process.kill()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._process is not None:
            self._process.wait(_PATIENCE)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
