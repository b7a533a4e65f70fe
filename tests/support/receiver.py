"""A web server that receives webhooks and checks them as its owner would, and a sender as a process of its own."""

import asyncio
import json
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.db.connection import Database
from holdfast.model.webhook import SIGNATURE, verify
from holdfast.settings import Settings
from holdfast.webhooks.sender import Sender

SECRET: Final = "receiver-and-sender-know-this"
AGENT: Final = "Holdfast/tests"
AT_ONCE: Final = 8
"""Messages that a sender process has on their way."""
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Answer:
    """What the receiver says to one request."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False
    """It says nothing until the receiver is closed."""
    after: int = 0
    """It says it when so many requests have come in all."""


@dataclass(frozen=True)
class Got:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    def signed_with(self, *secrets: str) -> bool:
        return verify(self.headers[SIGNATURE], self.body, [secret.encode() for secret in secrets], datetime.now(UTC))

    @property
    def message(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


class Receiver:
    """On loopback, in threads of this process. Answers to a path are used up one by one; without any it is a 200."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self._answers: dict[str, list[Answer]] = defaultdict(list)
        self._closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(Got(self.path, dict(self.headers.items()), body))
                answers = receiver._answers[self.path]
                answer = answers.pop(0) if answers else Answer()
                if answer.hang:
                    receiver._closing.wait()
                    self.close_connection = True
                    return
                while len(receiver.got) < answer.after and not receiver._closing.wait(0.01):
                    pass
                self.send_response(answer.status)
                for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — its name there
                """Nothing on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def says(self, *answers: Answer, path: str = "/hook") -> None:
        self._answers[path] += answers


def settings(data: Path, **webhook: object) -> Settings:
    """With receivers on loopback allowed, and the secret that they know."""
    given = {"secret": SECRET, **webhook}
    return Settings.model_validate({"data": data, "fetch": {"allow_private": True}, "webhook": given})


class SenderProcess:
    """Sends what is due, once, in a process of its own."""

    def __init__(self, database: Database, data: Path) -> None:
        command = [sys.executable, "-m", "tests.support.receiver", database.url, str(data)]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> int:
        """How many were delivered, when it has ended."""
        assert self._process.stdout is not None
        told = self._process.stdout.read()
        assert self._process.wait(60) == 0
        return int(told)


async def _main(url: str, data: str) -> None:
    sender = Sender(Database(url), settings(Path(data), at_once=AT_ONCE, timeout="1m"), AGENT)
    try:
        print((await sender.deliver_due()).delivered)
    finally:
        await sender.aclose()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
